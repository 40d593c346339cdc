"""The user's own pictures: a folder or an archive with one folder per class, with or without a test part."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch

from vitlab.data.archives import SUFFIXES as ARCHIVES
from vitlab.data.archives import Archive, Packed
from vitlab.data.dataset import DataSet, Part, split_test
from vitlab.data.mapped import Index, Noted, Writer, map_once, open_mapped, size_of
from vitlab.data.pictures import SUFFIXES, brightest, is_picture, silent_pillow
from vitlab.data.places import MADE, OnDisk
from vitlab.data.reading import Reading, begin, choose_channels, named, read_headers
from vitlab.data.rows import Pictures, Rows
from vitlab.data.survey import Survey
from vitlab.data.words import counted, shown
from vitlab.errors import BadInput, shorten

TRAIN_NAMES = ("train", "training")
# The first that is there is the test part.
TEST_NAMES = ("test", "testing", "val", "valid", "validation", "eval", "dev", "holdout")
PART = re.compile(rf"(?:(.+)[-_ ])?({'|'.join(TRAIN_NAMES + TEST_NAMES)})(?:[-_ ]?set)?")
LAYOUT = "lay it out as train/CLASS/ and test/CLASS/"
LARGEST_SIDE = 1024
DEEP = "16-bit pictures"
UNLABELLED = "unlabelled"  # the one class of pictures that have none
Place = OnDisk | Packed
Made = TypeVar("Made")
MAKE = 2  # of the files of pictures; another number makes all of them anew


@dataclass(frozen=True)
class Folder:
    """Your own pictures: one folder per class, or train/ and test/ with these in each; or pictures without labels."""

    kind: ClassVar[str] = "folder"
    path: str = ""  # folder, .zip or .tar with a folder per class, or with train/ and test/ of these, or with pictures
    size: str = ""  # "32" or, height first, "32x48"; empty: the pictures' own size, or up to 64 where they differ
    channels: int = 0  # 1 grey, 3 colour; 0: grey if every picture is
    unreadable: Literal["refuse", "skip"] = "refuse"  # what to do about a picture that cannot be read
    test: float = 0.2  # share of each class held out for testing where there is no test folder
    memory: float = 4.0  # GB of pictures that are held in memory; more stay on disk, in a file in the data folder

    def load(self, folder: Path) -> DataSet:
        """Read the pictures, scaled to cover one size and cropped at the centre; what stays on disk, only once."""
        parse_size(self.size)
        if self.channels not in (0, 1, 3):
            raise BadInput(f"{self.channels} channels were asked for: choose 1 (grey), 3 (colour) or 0 (as found)")
        if not self.memory >= 0:
            raise BadInput(f"{self.memory:g} GB of memory were asked for: it must be 0 or more")
        source = existing(self.path)
        key = self.key(source)
        file = folder / f"{re.sub('[^0-9A-Za-z]+', '-', source.title)[:40]}-{key[:16]}{MADE}"
        mapped = open_mapped(file)
        if mapped is None or self.fits(mapped.size):
            pictures, index = self.read(source, file, key)
        else:
            pictures, index = mapped.rows, mapped.index
        train, test, notes = Part(pictures, index.labels), Part(pictures[:0], index.labels[:0]), [*index.notes]
        if index.tests.any():
            train, test = train.pick(~index.tests), train.pick(index.tests)
        elif len(index.classes) > 1:
            try:
                train, test, held = split_test(train, self.test, index.classes)
            except BadInput as error:
                dark = [f" ({note})" for note in notes if note.startswith(DEEP)]  # it may be why all are alike
                raise BadInput("".join((str(error), *dark))) from None
            notes += held
        if isinstance(pictures, Rows):
            notes.append(f"{counted(len(pictures), 'picture')} on disk, not in memory: {shown(file)}")
        return DataSet(shown(source.title), index.classes, train, test, tuple(notes))

    def survey(self) -> Survey:
        """Count the pictures and read their headers alone."""
        source = existing(self.path)
        listed = list_pictures(source.root())
        with silent_pillow():
            headers, failed = read_headers(source, listed.files, self.unreadable)
        counts = Counter(label for file, label in listed.labels.items() if file not in failed)
        sizes: Counter[tuple[int, int]] = Counter()
        for header, count in headers.items():
            sizes[header.height, header.width] += count
        return Survey(
            tuple(counts[label] for label in range(len(listed.classes))),
            sum(file not in failed for file in listed.tests), sizes, choose_channels(headers, self.channels)[0], True,
        )  # fmt: skip

    def fits(self, size: int) -> bool:
        return size <= self.memory * 1e9

    def key(self, source: OnDisk | Archive) -> str:
        """Another one for other files, and for other ways to read them."""
        ways = f"{source.fingerprint()} {parse_size(self.size)} {self.channels} {self.unreadable} {MAKE}"
        return hashlib.sha256(ways.encode()).hexdigest()

    def read(self, source: OnDisk | Archive, file: Path, key: str) -> tuple[Pictures, Index]:
        """Decode every picture: to memory, or to the file."""
        listed, deep = list_pictures(source.root()), set[int]()

        def noting(made: Callable[[np.ndarray], Made]) -> Callable[[np.ndarray], Made]:
            """The same, in whichever thread, and what has 16 bits is noted."""

            def make(pixels: np.ndarray) -> Made:
                deep.add(brightest())
                return made(pixels)

            return make

        with silent_pillow():
            reading = begin(source, listed.files, parse_size(self.size), self.channels, self.unreadable)
            if self.fits(size_of(reading.shape)):
                pixels = np.empty(reading.shape, np.uint8)
                index = listed.index(reading, reading.decode(noting(np.asarray), pixels.__setitem__), deep)
                pictures = torch.from_numpy(pixels)
                return pictures if len(index.places) == len(pictures) else pictures[index.places], index

            def fill(writer: Writer) -> None:
                writer.end(listed.index(reading, reading.decode(noting(Noted.of), writer.put), deep))
                if self.key(source) != key:
                    raise BadInput(f"{source} changed while it was read: try again")

            mapped = map_once(file, reading.shape, fill)
        return mapped.rows, mapped.index


@dataclass(frozen=True)
class Listed:
    """The picture files that there are."""

    classes: tuple[str, ...]
    labels: dict[str, int]  # of each file that is learned from
    tests: dict[str, int]  # and of each that is for testing
    train: str  # where they lie
    test: str
    notes: tuple[str, ...]

    @property
    def files(self) -> list[str]:
        return [*self.labels, *self.tests]

    def index(self, reading: Reading, failed: dict[str, str], deep: set[int]) -> Index:
        """What was read of them; refused where nothing is left of a class, or of the test part."""
        kept = [(place, file) for place, file in enumerate(reading.files) if file not in failed]
        learned = {self.labels[file] for _, file in kept if file in self.labels}
        if empty := [name for label, name in enumerate(self.classes) if label not in learned]:
            raise BadInput(f"{self.train}: no picture can be read in {', '.join(empty)}")
        tests = torch.tensor([file in self.tests for _, file in kept])
        if self.tests and not tests.any():
            raise BadInput(f"{self.test}: no picture can be read")
        skipped = [f"{counted(len(failed), 'picture')} skipped: {named(failed)}"] if failed else []
        both = self.labels | self.tests
        return Index(
            torch.tensor([place for place, _ in kept]), torch.tensor([both[file] for _, file in kept]), tests,
            self.classes, (*self.notes, *reading.notes, *_darkened(max(deep)), *skipped),
        )  # fmt: skip


def parse_size(text: str) -> tuple[int, int] | None:
    """Read "32" or "32x48" as (height, width); None where the text is empty."""
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,4})(?:[x×]([0-9]{1,4}))?", text.strip())
    sides = [int(side) for side in match.groups() if side] if match else []
    if not sides or not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise BadInput(f"no picture size '{shown(text)}': give '32' or, height first, '32x48', up to {LARGEST_SIDE}")
    return sides[0], sides[-1]


def existing(given: str) -> OnDisk | Archive:
    """The folder or the archive that was named."""
    if not given:
        raise BadInput("no folder was given: name one with a folder of pictures per class, or an archive of them")
    path = Path(given).expanduser()
    if path.is_file() and path.name.casefold().endswith(ARCHIVES):
        return Archive(path)
    if not path.is_dir():
        if path.exists():
            raise BadInput(f"{shown(path)} is no folder and no archive ({', '.join(ARCHIVES)})")
        seen = "" if path.is_absolute() else f", as seen from {shown(Path.cwd())}"
        raise BadInput(f"{shown(path)} does not exist{seen}")
    return OnDisk(path)


def list_pictures(root: Place) -> Listed:
    """Find the classes and the pictures of each; pictures that lie side by side have none."""
    train, test, notes = _find_split(_enter(root))
    if train.is_loose() and not train.folders():
        pictures, ignored = _pictures_in(train)
        return Listed((UNLABELLED,), dict.fromkeys(pictures, 0), {}, str(train), "", ("no labels", *_ignoring(ignored)))
    found, ignored = _scan(train)
    classes = tuple(found)
    if len(classes) < 2:
        raise BadInput(f"{train} has {counted(len(classes), 'class folder')}: at least 2 are needed to learn from")
    labels = {file: label for label, name in enumerate(classes) for file in found[name]}
    tests: dict[str, int] = {}
    if test is not None:
        found, more = _scan(test, allowed=classes)
        tests, ignored = {file: classes.index(name) for name in found for file in found[name]}, ignored + more
        if lacking := [shown(name) for name in classes if name not in found]:
            notes.append(f"not tested, as {shown(test.name)}/ holds none: {', '.join(lacking)}")
    names = tuple(shown(name) for name in classes)
    return Listed(names, labels, tests, str(train), str(test), (*notes, *_ignoring(ignored)))


def _ignoring(kinds: Counter[str]) -> list[str]:
    if not kinds:
        return []
    named = [f"{count} {shown(shorten(kind, 20)) or 'without suffix'}" for kind, count in kinds.most_common(4)]
    more = ", …" if len(kinds) > 4 else ""
    return [f"{counted(kinds.total(), 'other file')} ignored: {', '.join(named)}{more}"]


def _darkened(most: int) -> list[str]:
    """A word of warning where 16 bits are kept for fewer, as of a scan; cut to 8 bits, few levels of grey are left."""
    told = f"{DEEP} whose brightest pixel is {most:,} of 65,535 are read nearly black: stretch them first"
    return [told] if 0 < most < 65535 / 4 else []


def _enter(root: Place) -> Place:
    """The one folder in it, where that is all there is and holds folders itself: what is unpacked often lies so."""
    inside = root.folders()
    return inside[0] if len(inside) == 1 and not root.is_loose() and inside[0].folders() else root


def _find_split(root: Place) -> tuple[Place, Place | None, list[str]]:
    """The training folder, the test folder where there is one, and the notes about what is left out."""
    inside = root.folders()
    train, test = _parts_in(inside)
    if train is None:
        _refuse_parts(root, inside)
        return root, None, ["pictures beside the class folders left out"] if inside and root.is_loose() else []
    unused = [place.name for place in inside if place not in (train, test)]
    notes = [f"left out beside {shown(train.name)}/: {', '.join(map(shown, unused))}"] if unused else []
    if test is not None and (part := _part(test)) and not part[1].startswith("test"):
        notes.append(f"{shown(test.name)}/ is the test part, as there is no test/")
    return train, test, notes


def _part(place: Place) -> tuple[str, str] | None:
    """What a folder is a part of, and which: ("", "train") of train, ("my", "test") of My-Test-Set."""
    found = PART.fullmatch(place.name.casefold())
    return (found[1] or "", found[2]) if found else None


def _parts_in(inside: Sequence[Place]) -> tuple[Place | None, Place | None]:
    """The folders for training and for testing; of names with something before, the only two that belong together."""
    sets: dict[str, dict[str, Place]] = {}
    for place in inside:
        if part := _part(place):
            sets.setdefault(part[0], {}).setdefault(part[1], place)
    pairs = []
    for name, parts in sets.items():
        train, test = (
            next((parts[kind] for kind in kinds if kind in parts), None) for kinds in (TRAIN_NAMES, TEST_NAMES)
        )
        # A class may itself be called "train": only a folder of folders is a part.
        if train is not None and _holds_classes(train):
            if not name:
                return train, test
            if test is not None and _holds_classes(test):
                pairs.append((train, test))
    return pairs[0] if len(pairs) == 1 else (None, None)


def _holds_classes(place: Place) -> bool:
    return bool(place.folders()) and not place.is_loose()


def _refuse_parts(root: Place, inside: Sequence[Place]) -> None:
    """Parts that are not laid out as such would be taken for classes."""
    sets = Counter(part and part[0] for part in map(_part, inside))
    if sets and None not in sets and min(sets.values()) > 1:
        names = ", ".join(shown(place.name) for place in inside)
        raise BadInput(f"{root} holds parts and no classes ({names}), and no training part of class folders: {LAYOUT}")
    if len(inside) > 1 and all(_is_split(place) for place in inside):
        raise BadInput(f"each class folder of {root} holds a training and a test part: {LAYOUT}")


def _is_split(place: Place) -> bool:
    kinds = {kind for name, kind in filter(None, map(_part, place.folders())) if not name}
    return not kinds.isdisjoint(TRAIN_NAMES) and not kinds.isdisjoint(TEST_NAMES)


def _scan(root: Place, allowed: Sequence[str] | None = None) -> tuple[dict[str, list[str]], Counter[str]]:
    """The pictures of each class folder in `root`, and the suffixes of other files."""
    folders = root.folders()
    if not folders:
        raise BadInput(f"{root} is empty of class folders: put the pictures of each class in a folder of its own")
    foreign = [place.name for place in folders if allowed is not None and place.name not in allowed]
    if foreign:
        names = ", ".join(map(shown, foreign))
        raise BadInput(f"{root} has classes that the training part lacks: {names}{_meant(foreign, allowed or ())}")
    found, others = {}, Counter[str]()
    for place in folders:
        found[place.name], ignored = _pictures_in(place)
        others += ignored
        if not found[place.name]:
            kinds = ", ".join(SUFFIXES)
            raise BadInput(f"{place} holds no pictures: add some ({kinds}) or remove the folder")
    return found, others


def _meant(foreign: Sequence[str], allowed: Sequence[str]) -> str:
    known = {name.casefold(): name for name in allowed}
    near = [known[key] for name in foreign for key in get_close_matches(name.casefold(), known, n=1)]
    return f"; did you mean {' or '.join(repr(name) for name in dict.fromkeys(near))}?" if near else ""


def _pictures_in(place: Place) -> tuple[list[str], Counter[str]]:
    """The pictures below, and the suffixes of other files, hidden ones not counted."""
    files = place.files()
    pictures = [file for file in files if is_picture(file)]
    return pictures, Counter(Path(file).suffix.casefold() for file in files if not is_picture(file))
