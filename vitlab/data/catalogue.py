"""What lies in the data folder: fetch a named set, verify it, list them all."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitlab.data.digits import SAMPLE, SAMPLE_COUNTS, Sample
from vitlab.data.named import PUBLISHED
from vitlab.data.origins import Report
from vitlab.data.published import Published, absent, fetch, member_file, places, read_cache, read_files
from vitlab.errors import choose


@dataclass(frozen=True)
class Listing:
    """One line of `vitlab data list`."""

    name: str
    state: Literal["embedded", "cached", "files", "absent"]
    pictures: tuple[int, int]  # for training and for testing
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    size: int = 0  # bytes on disk
    place: Path | None = None  # the file or folder that holds it


def data_folder(given: Path | None = None) -> Path:
    """The data folder: the one given, else $VITLAB_DATA, else ~/.cache/vitlab/data."""
    if given is not None:
        return given.expanduser()
    return Path(os.environ.get("VITLAB_DATA") or "~/.cache/vitlab/data").expanduser()


def get(name: str, folder: Path, report: Report = lambda line: None) -> Path:
    """Put a named set into the cache, from files lying in the folder or from the first origin that answers.

    The embedded sample is always there.
    """
    return SAMPLE if name == Sample.kind else fetch(_published(name), folder, report)


def check(name: str, folder: Path) -> str:
    """Verify what is there of a named set and describe it in one line."""
    if name == Sample.kind:
        Sample().load(folder)
        return describe(_embedded())
    published = _published(name)
    cache = published.cache(folder)
    if cache.exists():
        read_cache(published, cache)
    elif read_files(published, folder) is None:
        raise absent(published, folder)
    return describe(listing(published, folder)) + ", SHA-256 verified"


def available(folder: Path) -> tuple[Listing, ...]:
    """List the embedded sample and every named set, without reading their contents."""
    return (_embedded(), *(listing(published, folder) for published in PUBLISHED.values()))


def listing(published: Published, folder: Path) -> Listing:
    """Where a published set stands in the data folder."""
    facts = (published.counts, published.shape, len(published.classes))
    cache = published.cache(folder)
    if cache.exists():
        return Listing(published.name, "cached", *facts, cache.stat().st_size, cache)
    for layout, place in places(published, folder):
        files = [place] if place.is_file() else [member_file(place, name) for name in layout.members]
        return Listing(published.name, "files", *facts, sum(path.stat().st_size for path in files if path), place)
    return Listing(published.name, "absent", *facts)


def describe(line: Listing) -> str:
    """Say in one line what a listing holds and where."""
    train, test = line.pictures
    shape = "×".join(map(str, line.shape))
    where = "not here" if line.place is None else f"{line.state} in {line.place}, {line.size / 1e6:.1f} MB"
    return f"{line.name}: {train:,} + {test:,} pictures, {shape}, {line.classes} classes, {where}"


def _published(name: str) -> Published:
    return PUBLISHED[choose(name, PUBLISHED, "named data set")]


def _embedded() -> Listing:
    return Listing(Sample.kind, "embedded", SAMPLE_COUNTS, (1, 28, 28), 10, SAMPLE.stat().st_size, SAMPLE)
