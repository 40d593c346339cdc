"""A data set: uint8 pictures and labels, the ways to split them, and their statistics."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vitlab.data.rows import Pictures, Rows, digests
from vitlab.errors import BadInput, choose, shorten

MOST = 2**26  # numbers of one picture


@dataclass(frozen=True, eq=False)
class Part:
    """Pictures, uint8 (n, c, y, x), in memory or in a file, and their labels, int64 (n,)."""

    pictures: Pictures
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kept(self) -> torch.device:
        """Where the pictures lie before they are read, and so where a list of those to read belongs."""
        return torch.device("cpu") if isinstance(self.pictures, Rows) else self.pictures.device

    def pick(self, places: Tensor | slice) -> "Part":
        """Some of them; what lies in a file stays there."""
        there = places if isinstance(places, slice) else places.to(self.labels.device)
        pictures = self.pictures.pick(places) if isinstance(self.pictures, Rows) else self.pictures[there]
        return Part(pictures, self.labels[there])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named data set: its class names, its training and test parts, and what was decided while reading it."""

    name: str
    classes: tuple[str, ...]
    train: Part
    test: Part
    notes: tuple[str, ...] = ()  # for the user: "3 pictures skipped: a.png, ...", "resized to 32×32"


def check_sides(channels: int, height: int, width: int) -> None:
    """Whether there may be such pictures; what a file says of them is no proof."""
    if min(channels, height, width) < 1 or channels * height * width > MOST:
        shown = "×".join(shorten(str(side), 20) for side in (channels, height, width))
        raise BadInput(f"no pictures are {shown}: each has 1 to {MOST:,} numbers")


def only(data: DataSet, classes: Sequence[str]) -> DataSet:
    """The pictures of these classes alone, numbered anew in this order."""
    wanted = [data.classes.index(choose(name, data.classes, "class")) for name in dict.fromkeys(classes)]
    if len(wanted) < 2:
        raise BadInput(f"to tell one class from another takes two: {data.classes[wanted[0]]} alone was asked for")
    numbers = torch.full((len(data.classes),), -1)
    numbers[wanted] = torch.arange(len(wanted))

    def chosen(part: Part) -> Part:
        found = part.pick((numbers[part.labels] >= 0).nonzero().flatten())
        return Part(found.pictures, numbers[found.labels])

    return replace(
        data, classes=tuple(data.classes[label] for label in wanted), train=chosen(data.train), test=chosen(data.test)
    )


def hold_out(part: Part, fraction: float, seed: int = 0) -> tuple[Part, Part]:
    """Split into (rest, held out): the same share of every class, at least one picture of each class in the rest.

    Copies of a picture stay together: one that is held out has none in the rest. One that lies in several classes, and
    so has a wrong label, is not held out.
    """
    if not 0 <= fraction < 1:
        raise BadInput(f"a held-out share of {fraction:g} was asked for: it must be at least 0 and below 1")
    labels = part.labels.cpu().numpy()
    held = np.zeros(len(labels), dtype=bool)
    if fraction > 0:
        copies = digests(part.pictures).numpy()
        several = np.isin(copies, contested(copies, labels))
        copies[several] = copies[several][:1]  # as if they were one picture, the last of each class
        for shuffled in _shuffled_classes(labels, seed):
            members = shuffled[np.argsort(several[shuffled], kind="stable")]
            held[_first(members, copies[members], max(1, round(fraction * len(members))))] = True
    return part.pick(torch.from_numpy(np.flatnonzero(~held))), part.pick(torch.from_numpy(np.flatnonzero(held)))


def _first(members: np.ndarray, copies: np.ndarray, wanted: int) -> np.ndarray:
    """The first members, as near to `wanted` as can be: not all of them, and of alike `copies` all or none."""
    _, first, which = np.unique(copies, return_index=True, return_inverse=True)
    order = np.argsort(first[which], kind="stable")
    ends = (np.flatnonzero(np.diff(first[which][order])) + 1).tolist()  # where the copies of one picture end
    return members[order[: min(ends, key=lambda end: abs(end - wanted), default=0)]]


def contested(copies: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The digests that pictures of more than one class have."""
    _, first, which = np.unique(copies, return_index=True, return_inverse=True)
    return np.unique(copies[labels != labels[first][which]])


def split_test(part: Part, fraction: float, classes: Sequence[str]) -> tuple[Part, Part, list[str]]:
    """Hold out a test part where the data has none: (training part, test part, notes for the user)."""
    if not 0 < fraction < 1:
        raise BadInput(f"a test share of {fraction:g} was asked for: it must lie between 0 and 1")
    train, test = hold_out(part, fraction)
    if not len(test):
        raise BadInput(
            "no class has two pictures that differ and lie in no other class, so none can be held out for testing: "
            "add pictures or a test part"
        )
    notes = [f"{len(test)} of {len(part)} pictures held out for testing, {fraction:.0%} of each class"]
    counts, tested = Counter(part.labels.tolist()), set(test.labels.tolist())
    untested = [label for label in range(len(classes)) if label not in tested]
    for what, single in (("one picture", True), ("copies alone", False)):
        if names := [classes[label] for label in untested if (counts[label] == 1) == single]:
            notes.append(f"with {what}, so not tested: {', '.join(names)}")
    return train, test, notes


def take(part: Part, count: int, seed: int = 0) -> Part:
    """Keep `count` pictures, each class in proportion and, where `count` allows, present; the order is kept."""
    if not 1 <= count <= len(part):
        raise BadInput(f"{count} pictures were asked for: choose from 1 to {len(part)}")
    labels = part.labels.cpu().numpy()
    # The k-th of a class of m pictures enters at share k/m, so any threshold takes the same share of every class.
    entry = np.empty(len(labels))
    for members in _shuffled_classes(labels, seed):
        entry[members] = np.arange(len(members)) / len(members)
    chosen = np.lexsort((labels, entry))[:count]
    return part.pick(torch.from_numpy(np.sort(chosen)))


def all_over(count: int, most: int) -> Tensor:
    """The places of at most `most` of `count` pictures, from all over them, since they may be sorted by class."""
    return torch.linspace(0, max(count - 1, 0), min(count, most)).round().long()


def statistics(part: Part) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, on the 0..1 scale; a constant channel's deviation is given as 1."""
    pictures, channels = part.pictures, part.pictures.shape[1]
    noted = [pictures.moments()] if isinstance(pictures, Rows) else map(moments, pictures.split(128))
    total, squares = sum((some.sum(dim=0) for some in noted), torch.zeros(2, channels, dtype=torch.float64))
    pixels = pictures.numel() / channels
    mean = total / pixels
    deviation = (squares / pixels - mean**2).clamp(min=0).sqrt()
    deviation = torch.where(deviation < 1e-4, 255.0, deviation)
    return tuple((mean / 255).tolist()), tuple((deviation / 255).tolist())


def moments(pictures: Tensor) -> Tensor:
    """The exact sums of the pixels and of their squares in each channel of each picture, float64 (n, 2, c)."""
    # A row of up to 258 pixels sums exactly in float32; rows are then added in float64.
    rows = pictures.float() if pictures.shape[3] <= 258 else pictures.double()
    sums = rows.sum(dim=3), torch.linalg.vecdot(rows, rows, dim=3)
    return torch.stack([each.double().sum(dim=2) for each in sums], dim=1).cpu()


def _shuffled_classes(labels: np.ndarray, seed: int) -> list[np.ndarray]:
    """The indices of each class in turn, shuffled by `seed`."""
    # RandomState's stream is frozen by NumPy, so a split stays the same from one release to the next.
    random = np.random.RandomState(seed)
    return [random.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
