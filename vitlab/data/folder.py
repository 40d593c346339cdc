"""The user's own pictures: a folder with one folder per class, with or without a split into training and test."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch

from vitlab.data.dataset import DataSet, Part, split_test
from vitlab.data.pictures import SUFFIXES, Header, Unreadable, decode, read_header, silent_pillow
from vitlab.data.words import counted, shown
from vitlab.errors import BadInput

TRAIN_NAMES = ("train", "training")
TEST_NAMES = ("test", "testing", "val", "valid", "validation")  # the first that is there is the test part
LARGEST_SIDE = 1024
THREADS = 8
UNLABELLED = "unlabelled"  # the one class of pictures that have none
Result = TypeVar("Result")


@dataclass(frozen=True)
class Folder:
    """Your own pictures: one folder per class, or train/ and test/ with these in each; or pictures without labels."""

    kind: ClassVar[str] = "folder"
    path: str = ""  # folder with one folder per class, or with train/ and test/ (or val/) of these, or with pictures
    size: str = ""  # "32" or, height first, "32x48"; empty: the pictures' own size, or up to 64 where they differ
    channels: int = 0  # 1 grey, 3 colour; 0: grey if every picture is
    unreadable: Literal["refuse", "skip"] = "refuse"  # what to do about a picture that cannot be read
    test: float = 0.2  # share of each class held out for testing where there is no test folder

    def load(self, folder: Path) -> DataSet:
        """Read the pictures, scaled to cover one size and cropped at the centre; the data folder is not looked at."""
        size = parse_size(self.size)
        if self.channels not in (0, 1, 3):
            raise BadInput(f"{self.channels} channels were asked for: choose 1 (grey), 3 (colour) or 0 (as found)")
        root = _existing(self.path)
        train_root, test_root, notes = _find_split(root)
        if _is_loose(train_root):
            return self.unlabelled(root, _pictures_in(train_root), size)
        found = _scan(train_root)
        classes = tuple(found)
        if len(classes) < 2:
            raise BadInput(
                f"{shown(train_root)} has {counted(len(classes), 'class folder')}: at least 2 are needed to learn from"
            )
        files = [_File(path, label, False) for label, name in enumerate(classes) for path in found[name].pictures]
        ignored = sum(each.ignored for each in found.values())
        if test_root is not None:
            found = _scan(test_root, allowed=classes)
            files += [_File(path, classes.index(name), True) for name in found for path in found[name].pictures]
            ignored += sum(each.ignored for each in found.values())
        with silent_pillow():
            pictures, files, decided = _read(files, size, self.channels, self.unreadable)
        if ignored:
            notes.append(f"{counted(ignored, 'other file')} ignored")
        labels = torch.tensor([file.label for file in files])
        tests = torch.tensor([file.test for file in files])
        _require_all(classes, labels[~tests], train_root)
        if test_root is not None and not tests.any():
            raise BadInput(f"{shown(test_root)}: no picture can be read")
        names = tuple(shown(name) for name in classes)
        train, test = Part(pictures[~tests], labels[~tests]), Part(pictures[tests], labels[tests])
        if test_root is None:
            train, test, held = split_test(train, self.test, names)
            notes += held
        return DataSet(shown(root.resolve().name), names, train, test, (*notes, *decided))

    def unlabelled(self, root: Path, found: "_Found", size: tuple[int, int] | None) -> DataSet:
        """Pictures that lie side by side, with no folder to name their class: all to learn from, none to test."""
        with silent_pillow():
            files = [_File(path, 0, False) for path in found.pictures]
            pictures, files, decided = _read(files, size, self.channels, self.unreadable)
        notes = [f"{counted(found.ignored, 'other file')} ignored"] if found.ignored else []
        labels = torch.zeros(len(files), dtype=torch.int64)
        train, test = Part(pictures, labels), Part(pictures[:0], labels[:0])
        return DataSet(shown(root.resolve().name), (UNLABELLED,), train, test, ("no labels", *notes, *decided))


@dataclass(frozen=True)
class _File:
    path: Path
    label: int
    test: bool


@dataclass(frozen=True)
class _Found:
    """What lies in a class folder."""

    pictures: list[Path]
    ignored: int  # files that are no pictures, hidden ones left out of the count


def parse_size(text: str) -> tuple[int, int] | None:
    """Read "32" or "32x48" as (height, width); None where the text is empty."""
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,4})(?:[x×]([0-9]{1,4}))?", text.strip())
    sides = [int(side) for side in match.groups() if side] if match else []
    if not sides or not all(1 <= side <= LARGEST_SIDE for side in sides):
        raise BadInput(f"no picture size '{shown(text)}': give '32' or, height first, '32x48', up to {LARGEST_SIDE}")
    return sides[0], sides[-1]


def natural(name: str) -> tuple[list[str | int], str]:
    """Sort key that puts "2" before "10" and "a" beside "A"."""
    pieces = re.split(r"([0-9]+)", name)
    return [int(piece) if place % 2 else piece.casefold() for place, piece in enumerate(pieces)], name


def _existing(given: str) -> Path:
    if not given:
        raise BadInput("no folder was given: name one with a folder of pictures per class")
    root = Path(given).expanduser()
    if not root.is_dir():
        raise BadInput(f"{shown(root)} {'is no folder' if root.exists() else 'does not exist'}")
    return root


def _folders(root: Path) -> list[Path]:
    """The visible folders in `root`, in natural order, without links that lead back up to it."""
    try:
        inside = [path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")]
    except OSError as error:
        raise BadInput(f"{shown(root)} cannot be read: {error.strerror}") from None
    here = root.resolve()
    return sorted(
        (path for path in inside if not here.is_relative_to(path.resolve())), key=lambda path: natural(path.name)
    )


def _find_split(root: Path) -> tuple[Path, Path | None, list[str]]:
    """The training folder, the test folder where there is one, and the notes about what is left out."""
    inside = {path.name.casefold(): path for path in _folders(root)}
    train = next((inside[name] for name in TRAIN_NAMES if name in inside), None)
    # A class may itself be called "train": only a folder of folders is a part.
    if train is None or not _folders(train) or any(map(_is_picture, train.iterdir())):
        return root, None, []
    test = next((inside[name] for name in TEST_NAMES if name in inside), None)
    unused = [path.name for path in inside.values() if path not in (train, test)]
    notes = [f"left out beside {train.name}/: {', '.join(map(shown, unused))}"] if unused else []
    return train, test, notes


def _scan(root: Path, allowed: Sequence[str] | None = None) -> dict[str, _Found]:
    """The pictures of each class folder in `root`."""
    folders = _folders(root)
    if not folders:
        raise BadInput(
            f"{shown(root)} is empty of class folders: put the pictures of each class in a folder of its own"
        )
    foreign = [path.name for path in folders if allowed is not None and path.name not in allowed]
    if foreign:
        raise BadInput(f"{shown(root)} has classes that the training part lacks: {', '.join(map(shown, foreign))}")
    found = {}
    for folder in folders:
        found[folder.name] = _pictures_in(folder)
        if not found[folder.name].pictures:
            raise BadInput(f"{shown(folder)} holds no pictures: add some or remove the folder")
    return found


def _is_loose(root: Path) -> bool:
    """Whether pictures lie here side by side, in no folder that could name their class."""
    return not _folders(root) and any(map(_is_picture, root.iterdir()))


def _pictures_in(folder: Path) -> _Found:
    files = sorted(_walk(folder), key=lambda path: natural(str(path)))
    pictures = [path for path in files if _is_picture(path)]
    return _Found(pictures, len(files) - len(pictures))


def _walk(folder: Path) -> Iterator[Path]:
    """Every visible file below `folder`; links are followed, each folder once."""
    seen = set()
    for here, folders, files in os.walk(folder, followlinks=True):
        status = os.stat(here)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(here, name) for name in files if not name.startswith("."))


def _is_picture(path: Path) -> bool:
    return path.suffix.casefold() in SUFFIXES


def _read(
    files: list[_File], size: tuple[int, int] | None, channels: int, unreadable: str
) -> tuple[torch.Tensor, list[_File], list[str]]:
    """Decode the files to one uint8 (n, c, y, x) tensor; give back those that were read and what was decided."""
    headers, failed = _in_threads(read_header, files)
    _refuse(failed, unreadable)
    files = [file for file in files if file.path not in failed]
    if not files:
        raise BadInput(f"no picture can be read: {_named(failed)}")
    (height, width), notes = _choose_size(headers, size)
    channels, more = _choose_channels(headers, channels)
    decoded, broken = _in_threads(partial(decode, channels=channels, height=height, width=width), files)
    _refuse(broken, unreadable)
    failed |= broken
    files = [file for file in files if file.path not in broken]
    if not files:
        raise BadInput(f"no picture can be read: {_named(failed)}")
    if failed:
        more.append(f"{counted(len(failed), 'picture')} skipped: {_named(failed)}")
    return torch.from_numpy(np.stack(decoded)), files, [*notes, *more]


def _in_threads(action: Callable[[Path], Result], files: Sequence[_File]) -> tuple[list[Result], dict[Path, str]]:
    """Apply the action to each file; give the results in order and the reasons of those that failed."""
    failed: dict[Path, str] = {}

    def attempt(file: _File) -> Result | None:
        try:
            return action(file.path)
        except Unreadable as error:
            failed[file.path] = str(error)
            return None

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        results = list(pool.map(attempt, files))
    return [result for result in results if result is not None], failed


def _refuse(failed: dict[Path, str], unreadable: str) -> None:
    if failed and unreadable == "refuse":
        raise BadInput(
            f"{counted(len(failed), 'picture')} cannot be read (unreadable 'skip' leaves them out): {_named(failed)}"
        )


def _named(failed: dict[Path, str]) -> str:
    listed = [f"{shown(path)} ({reason})" for path, reason in sorted(failed.items())[:3]]
    return ", ".join(listed) + (", …" if len(failed) > 3 else "")


def _choose_size(headers: Sequence[Header], size: tuple[int, int] | None) -> tuple[tuple[int, int], list[str]]:
    sizes = {(header.height, header.width) for header in headers}
    if size is None and len(sizes) == 1:
        return sizes.pop(), []
    if size is None:
        side = median(side for header in headers for side in (header.height, header.width))
        size = (min(64, max(4, round(side / 4) * 4)),) * 2
    if sizes == {size}:
        return size, []
    origin = "pictures" if len(sizes) == 1 else f"pictures of {len(sizes)} sizes"
    return size, [f"{origin} scaled to cover {size[0]}×{size[1]} and cropped at the centre"]


def _choose_channels(headers: Sequence[Header], channels: int) -> tuple[int, list[str]]:
    grey = sum(header.grey for header in headers)
    transparent = sum(header.transparent for header in headers)
    notes = []
    if channels == 0:
        channels = 1 if grey == len(headers) else 3
    if channels == 3 and grey:
        notes.append(f"{counted(grey, 'grey picture')} read as colour")
    if channels == 1 and grey < len(headers):
        notes.append(f"{counted(len(headers) - grey, 'colour picture')} read as grey")
    if transparent:
        notes.append(f"{counted(transparent, 'transparent picture')} laid over white")
    return channels, notes


def _require_all(classes: Sequence[str], labels: torch.Tensor, root: Path) -> None:
    present = set(labels.tolist())
    empty = [shown(name) for label, name in enumerate(classes) if label not in present]
    if empty:
        raise BadInput(f"{shown(root)}: no picture can be read in {', '.join(empty)}")
