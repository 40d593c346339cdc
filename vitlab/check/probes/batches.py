"""What the test loader really gives: every picture once, in order, unchanged, and none that was learned."""

import hashlib
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp
from typing import Any

import torch
from torch import Tensor

from vitlab.check.finding import Finding, fine, unknown
from vitlab.check.subject import Subject
from vitlab.errors import BadInput

SECONDS = 12.0  # for one pass over a loader
COPIES = 0.005  # share of test pictures that may occur in the training part: published data sets hold a few themselves


@dataclass(frozen=True)
class Pass:
    """One pass over a loader: a fingerprint of each picture in order, and the mean and deviation of each channel."""

    prints: tuple[bytes, ...]
    mean: Tensor
    deviation: Tensor
    complete: bool


def every_picture(subject: Subject) -> Finding:
    """Count what a pass over the test loader gives, and compare with its data set."""
    test = given(subject.loaders.test, "test")
    seen, there = reading(subject, test), size_of(test)
    if not seen.complete:
        return unknown(f"a pass took longer than {SECONDS:g} s; {len(seen.prints):,} pictures were seen until then")
    if there is None:
        return unknown(f"{len(seen.prints):,} pictures were seen; the loader does not say how many there are")
    if len(seen.prints) >= there:
        return fine(f"all {there:,} test pictures are seen")
    return Finding(
        "mistake",
        f"{len(seen.prints):,} of {there:,} test pictures are seen",
        "The last batch is dropped (drop_last=True), or a sampler leaves pictures out.",
        "The accuracy is of other pictures than you say; with shuffling, of others each time. In report R1 it was "
        "9,984 of 10,000, and 0.01 points.",
        "DataLoader(test, drop_last=False).",
    )


def order(subject: Subject) -> Finding:
    """Two passes over the test loader: the same pictures in the same order?"""
    test = given(subject.loaders.test, "test")
    first, second = reading(subject, test), reading(subject, test, again=True)
    count = min(len(first.prints), len(second.prints))
    if first.prints[:count] == second.prints[:count]:
        return fine("two passes give the same pictures in the same order")
    if Counter(first.prints) == Counter(second.prints):
        return Finding(
            "warning",
            "two passes give the same pictures in another order",
            "The test loader shuffles.",
            "The accuracy stays the same, but predictions cannot be matched with pictures.",
            "DataLoader(test, shuffle=False).",
        )
    if not (first.complete and second.complete):
        return unknown("the passes were too slow to be compared whole, and they begin with other pictures")
    return fine("the order cannot be told, since the pictures themselves change: see 'unchanged'")


def unchanged(subject: Subject) -> Finding:
    """Test pictures read twice must be the same, and normalised as the training pictures are."""
    test, train = given(subject.loaders.test, "test"), subject.loaders.train
    share = changing(subject, test)
    if share:
        return Finding(
            "mistake",
            f"{share:.0%} of the test pictures are other pixels when they are read again",
            "Random transforms (crops, flips, erasing) are on for the test part.",
            "Every evaluation gives another accuracy, mostly too low, of pictures that are not the published ones.",
            "Give the test set a transform of its own, with normalisation only.",
        )
    if train is None:
        return fine("test pictures read twice are the same")
    learned, tested = reading(subject, train), reading(subject, test)
    shift = float(((learned.mean - tested.mean) / learned.deviation.clamp(min=1e-6)).abs().max())
    stretch = float((tested.deviation.clamp(min=1e-6) / learned.deviation.clamp(min=1e-6)).log().abs().max())
    measured = f"means differ by {shift:.2f} deviations, deviations by a factor of {exp(stretch):.2f}"
    if shift <= 0.5 and stretch <= 0.5:
        return fine(f"test pictures read twice are the same, and normalised as the training pictures ({measured})")
    return Finding(
        "mistake",
        f"training and test pictures differ: {measured}",
        "They are normalised differently, or one of them not at all.",
        "The model is judged on pictures of another brightness and contrast than it learned.",
        "Normalise both with the mean and deviation of the training part.",
    )


def overlap(subject: Subject) -> Finding:
    """Test pictures that are, pixel by pixel, among the training pictures."""
    test, train = given(subject.loaders.test, "test"), given(subject.loaders.train, "training")
    if changing(subject, train):
        return unknown("the training pictures change from pass to pass, so copies do not show; give them unaugmented")
    learned, tested = reading(subject, train), reading(subject, test)
    known = set(learned.prints)
    copies = sum(mark in known for mark in tested.prints)
    among = f"{len(tested.prints):,} test pictures, {len(learned.prints):,} training pictures"
    part = "" if learned.complete and tested.complete else " (as many as could be read in time)"
    if copies <= COPIES * len(tested.prints):
        return fine(f"{copies or 'none'} of the test pictures is a training picture: {among}{part}")
    return Finding(
        "mistake",
        f"{copies:,} test pictures are training pictures too: {among}{part}",
        "The two parts overlap: split after loading twice, a validation part taken as test, or train=True twice.",
        "The accuracy tells how well the model remembers, not how well it recognises.",
        "Split once, by index, and test on pictures that were never trained on.",
    )


def given(loader: Iterable[Any] | None, which: str) -> Iterable[Any]:
    """The loader, or a question left open."""
    if loader is None:
        raise BadInput(f"no {which} loader was given")
    return loader


def reading(subject: Subject, loader: Iterable[Any], again: bool = False) -> Pass:
    """A pass over a loader, made once and remembered."""
    key = (id(loader), again)
    if key not in subject.passes:
        subject.passes[key] = read(loader)
    return subject.passes[key]


def read(loader: Iterable[Any]) -> Pass:
    started, prints, complete = time.monotonic(), [], True
    total, squares, pixels = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), 0
    for batch in loader:
        pictures = pictures_of(batch)
        prints += [fingerprint(picture) for picture in pictures]
        exact = pictures.double()
        total, squares = total + exact.sum(dim=(0, 2, 3)), squares + exact.square().sum(dim=(0, 2, 3))
        pixels += exact[:, 0].numel()
        if time.monotonic() - started > SECONDS:
            complete = False
            break
    mean = total / max(pixels, 1)
    return Pass(tuple(prints), mean, (squares / max(pixels, 1) - mean.square()).clamp(min=0).sqrt(), complete)


def pictures_of(batch: Any) -> Tensor:
    """The pictures of a batch, (b, c, y, x): the first tensor that it holds."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple | list) else [batch]
    pictures = next((value for value in values if isinstance(value, Tensor)), None)
    if pictures is None or pictures.ndim not in (3, 4):
        raise BadInput("the loader gives no tensor of (batch, channels, height, width)")
    return (pictures if pictures.ndim == 4 else pictures[:, None]).detach().float().cpu()


def fingerprint(picture: Tensor) -> bytes:
    """The same for pictures that differ by less than rounding."""
    return hashlib.blake2b((picture * 500).round().int().numpy().tobytes(), digest_size=12).digest()


def size_of(loader: Iterable[Any]) -> int | None:
    try:
        return len(loader.dataset)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return None


def changing(subject: Subject, loader: Iterable[Any]) -> float:
    """The share of pictures that come out otherwise the second time, whatever their order."""
    first, second = reading(subject, loader), reading(subject, loader, again=True)
    if not first.prints:
        raise BadInput("the loader gives no pictures")
    if first.complete and second.complete:
        return 1 - (Counter(first.prints) & Counter(second.prints)).total() / max(len(first.prints), 1)
    data = getattr(loader, "dataset", None)
    if data is None or not hasattr(data, "__getitem__"):
        return 0.0
    places = range(0, len(data), max(len(data) // 20, 1))
    twice = [(torch.as_tensor(data[i][0]), torch.as_tensor(data[i][0])) for i in places]
    return sum(not torch.equal(a, b) for a, b in twice) / len(twice)
