"""A folder of files on disk: what is visible in it, and whether it has changed."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vitlab.data.pictures import is_picture
from vitlab.data.words import natural, shown
from vitlab.errors import BadInput

ADDED = ("@eaDir", "__MACOSX")  # folders that a network disk or a Mac puts beside what is one's own
MADE = ".pictures"  # what the files end in that are made of pictures, which may lie beside these


@dataclass(frozen=True)
class OnDisk:
    """A folder; its files are named by their paths."""

    path: Path

    def __str__(self) -> str:
        return shown(self.path)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def title(self) -> str:
        return self.path.resolve().name

    def root(self) -> "OnDisk":
        return self

    def folders(self) -> list["OnDisk"]:
        """The visible folders in it, in natural order, without links that lead back up to it."""
        try:
            inside = [path for path in self.path.iterdir() if path.is_dir() and is_visible(path.name)]
        except OSError as error:
            raise BadInput(f"{self} cannot be read: {error.strerror}") from None
        here = self.path.resolve()
        below = [path for path in inside if not here.is_relative_to(path.resolve())]
        return [OnDisk(path) for path in sorted(below, key=lambda path: natural(path.name))]

    def files(self) -> list[str]:
        """Every visible file below it, in natural order."""
        return sorted((os.path.join(here, name) for here, names in self.walk() for name in names), key=natural)

    def walk(self) -> Iterator[tuple[str, list[str]]]:
        """Each visible folder, itself the first, with the visible files in it; links are followed, each folder once."""
        seen = set()
        for here, folders, files in os.walk(self.path, followlinks=True):
            status = os.stat(here)
            if (status.st_dev, status.st_ino) in seen:
                folders.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            folders[:] = sorted(filter(is_visible, folders))
            yield here, [name for name in files if not name.startswith(".")]

    def is_loose(self) -> bool:
        """Whether pictures lie right in it."""
        return any(is_picture(path.name) for path in self.path.iterdir())

    def contents(self, files: Iterable[str]) -> Iterator[tuple[str, Path]]:
        """These files one after the other: a name, and where to read it."""
        return ((file, Path(file)) for file in files)

    def fingerprint(self) -> str:
        """SHA-256 of the names, sizes and times of all that is visible in it."""
        total = hashlib.sha256(os.fsencode(self.path.resolve()))
        for here, names in self.walk():
            total.update(os.fsencode(f"\0{os.path.relpath(here, self.path)}/"))
            for name in sorted(name for name in names if not name.endswith(MADE)):
                total.update(os.fsencode(f"\0{name}\0{_state(os.path.join(here, name))}"))
        return total.hexdigest()


def is_visible(folder: str) -> bool:
    """By its name alone."""
    return not folder.startswith(".") and folder not in ADDED


def _state(file: str) -> str:
    try:
        status = os.stat(file)
    except OSError:  # a link to nowhere, or gone since: it will be found unreadable
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"
