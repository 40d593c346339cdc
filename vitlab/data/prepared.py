"""A data set made ready for a run: split, limited, described by a card, and moved to the training device."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor, cat, device, isin, tensor

from vitlab.data import Sample, Source
from vitlab.data.dataset import DataSet, Part, check_sides, contested, hold_out, only, statistics, take
from vitlab.data.rows import Rows, digests
from vitlab.errors import BadInput

Normalising = Literal["statistics", "half", "imagenet"]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and deviation of its red, green and blue


@dataclass(frozen=True)
class Data:
    """Which pictures to learn from, and how many to hold out for choices."""

    source: Source = field(default_factory=Sample)  # a known data set, or your own as folder:PATH or npz:PATH
    validation: float = 0.1  # share of the training part held out for choices; 0 trains on everything
    classes: tuple[str, ...] = ()  # learn and test these classes alone, by their names; left out: all
    limit: int = 0  # learn from this many pictures only, drawn evenly over the classes; 0: all
    normalise: Normalising = "statistics"  # by the training part's mean and deviation, by ½ and ½, or by ImageNet's


@dataclass(frozen=True)
class Card:
    """What a model must know of its data: sizes, classes, how to normalise, and a fingerprint of the training part."""

    name: str
    channels: int
    height: int
    width: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    train: int
    validation: int
    test: int
    fingerprint: str
    notes: tuple[str, ...]
    tested: str = ""  # a fingerprint of the test part; runs that are older have none

    def __post_init__(self) -> None:
        check_sides(self.channels, self.height, self.width)
        if not len(self.mean) == len(self.deviation) == self.channels or not all(self.deviation):
            raise BadInput(f"{self.channels} channels need a mean and a deviation each, and no deviation is 0")
        if not self.classes or min(self.train, self.validation, self.test) < 0:
            raise BadInput("a data set has a class or more, and 0 pictures or more for training, choices and testing")
        if odd := [name for name in self.classes if not name.isprintable()]:
            raise BadInput(f"a class is called {odd[0][:60]!r}, which cannot be printed")

    @property
    def labelled(self) -> bool:
        """Whether there is a class to tell from another."""
        return len(self.classes) > 1


@dataclass(frozen=True, eq=False)
class Prepared:
    card: Card
    train: Part
    validation: Part
    test: Part

    def on(self, device: device) -> "Prepared":
        """The same pictures, on the device; those there already are not copied, and a file stays where it is."""
        return Prepared(self.card, *(move(part, device) for part in (self.train, self.validation, self.test)))


def prepare(data: Data, folder: Path) -> Prepared:
    """Load, hold out, limit; the split is the same for every seed, so that runs compare."""
    if not 0 <= data.validation < 1:
        raise BadInput(f"validation is a share from 0 up to 1, not {data.validation}")
    if data.limit < 0:
        raise BadInput(f"limit must be 0 or more, not {data.limit}")
    loaded = data.source.load(folder)
    if data.classes:
        loaded = only(loaded, data.classes)
    train, validation = hold_out(loaded.train, data.validation)
    if data.limit > len(train):
        raise BadInput(f"limit asks for {data.limit} pictures, and validation {data.validation:g} leaves {len(train)}")
    if data.limit:
        train = take(train, data.limit)
    return Prepared(describe(loaded, train, validation, data.normalise), train, validation, loaded.test)


def describe(loaded: DataSet, train: Part, validation: Part, normalise: Normalising = "statistics") -> Card:
    channels, height, width = train.pictures.shape[1:]
    mean, deviation = statistics(train) if normalise == "statistics" else known(normalise, channels)
    return Card(
        loaded.name, channels, height, width, loaded.classes, mean, deviation,
        len(train), len(validation), len(loaded.test), fingerprint(train), (*loaded.notes, *copied(train, loaded.test)),
        fingerprint(loaded.test),
    )  # fmt: skip


def copied(train: Part, test: Part) -> list[str]:
    """A word of warning where pictures are tested that are learned as well, or where one has several labels."""
    tested, learned = digests(test.pictures), digests(train.pictures)
    known = int(isin(tested + test.labels, learned + train.labels).sum())  # a digest and a label are one number so
    several = len(contested(cat([learned, tested]).numpy(), cat([train.labels, test.labels]).numpy()))
    notes = []
    if known:
        whole = f"{known:,} of the {len(test):,} test pictures are copies of training pictures"
        notes.append(f"{whole}, so the test accuracy will be too high")
    if several:
        whole = f"{several:,} pictures lie in more than one class" if several > 1 else "1 picture lies in two classes"
        notes.append(f"{whole}, so some labels are wrong")
    return notes


def known(normalise: Normalising, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation that do not follow from the pictures; ImageNet's, for other than 3 channels, as of grey."""
    if normalise == "half":
        return (0.5,) * channels, (0.5,) * channels
    mean, deviation = (each if channels == 3 else (sum(each) / 3,) * channels for each in IMAGENET)
    return mean, deviation


def fingerprint(part: Part) -> str:
    """SHA-256 of the pixels and labels, so that a run can tell that its data changed.

    Of pictures in a file, that of their own digests, so that they need not be read.
    """
    pictures, digest = part.pictures, hashlib.sha256()
    for some in [pictures.digests()] if isinstance(pictures, Rows) else pictures.split(1024):
        digest.update(some.contiguous().numpy().data)
    digest.update(part.labels.numpy().data)
    return digest.hexdigest()


def move(part: Part, to: device) -> Part:
    return Part(part.pictures.to(to), part.labels.to(to))


class Normalise:
    """uint8 → float in 0 … 1, and (x − mean) / deviation per channel."""

    def __init__(self, card: Card, to: device):
        self.mean = tensor(card.mean, device=to).view(-1, 1, 1)
        self.deviation = tensor(card.deviation, device=to).view(-1, 1, 1)

    def __call__(self, unit: Tensor) -> Tensor:
        return (unit - self.mean) / self.deviation


def unit(pictures: Tensor) -> Tensor:
    """uint8 (b, c, y, x) → float32 in 0 … 1."""
    return pictures.float() / 255


def seem_swapped(pictures: Tensor, card: Card) -> bool:
    """Whether the negatives of these would be nearer to the training pictures in mean brightness."""
    own = Normalise(card, pictures.device)
    normal, negative = (abs(float(own(unit(each)).mean())) for each in (pictures, 255 - pictures))
    return negative + 1 < normal
