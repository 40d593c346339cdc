"""An archive of pictures, .zip or .tar: read from front to back, one file at a time, and never unpacked."""

import hashlib
import os
import stat
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, BinaryIO

from vitlab.data.pictures import is_picture
from vitlab.data.unpacking import Unpacked, check_unpacked
from vitlab.data.words import natural, one_line, shown
from vitlab.errors import BadInput

PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
LARGEST = 2**28  # bytes of a file in it that is taken for a picture
Parts = tuple[str, ...]  # cat/1.png as (cat, 1.png); the entry of a folder ends in an empty part


@dataclass(frozen=True)
class Archive:
    """Every question about its files is one pass over them; a file is named by the archive's path and its own."""

    path: Path

    def __str__(self) -> str:
        return shown(self.path)

    @property
    def title(self) -> str:
        return self.path.name.partition(".")[0] or self.path.name

    def root(self) -> "Packed":
        """What lies in it."""
        found: set[Parts] = set()
        for parts, _ in self._entries():
            if parts in found and parts[-1]:
                raise BadInput(f"{self} holds {shown('/'.join(parts))} twice")
            found.add(parts)
        return Packed(str(self.path), tuple(found))

    def contents(self, files: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """These files one after the other, as they lie in it: a name, and what it holds."""
        wanted = set(files)
        for parts, file in self._entries(read=True):
            name = "/".join((str(self.path), *parts))
            if file is None or name not in wanted:
                continue
            with file, self._reading():
                content = file.read(LARGEST + 1)
            if len(content) > LARGEST:
                raise BadInput(f"{shown(name)} is too large for a picture: more than {LARGEST / 1e6:.0f} MB")
            yield name, content

    def fingerprint(self) -> str:
        """SHA-256 of its name, size and time."""
        status = self.path.stat()
        return hashlib.sha256(os.fsencode(f"{self.path.resolve()}\0{status.st_size} {status.st_mtime_ns}")).hexdigest()

    def _entries(self, read: bool = False) -> Iterator[tuple[Parts, IO[bytes] | None]]:
        with self._reading():
            entries = self._zipped(read) if self.path.name.casefold().endswith(".zip") else self._taped(read)
            yield from ((self._parts(name), file) for name, file in entries)

    def _zipped(self, read: bool) -> Iterator[tuple[str, IO[bytes] | None]]:
        with zipfile.ZipFile(self.path) as archive:
            check_unpacked(self.path.stat().st_size, sum(entry.file_size for entry in archive.infolist()))
            for entry in archive.infolist():
                if stat.S_ISLNK(entry.external_attr >> 16):
                    raise self._no_file(entry.filename)
                if entry.compress_type not in PACKED:  # LZMA takes as much memory as a file says
                    raise BadInput(f"{self} is packed in a way that is not read: pack it anew as a plain .zip")
                yield entry.filename, archive.open(entry) if read and not entry.is_dir() else None

    def _taped(self, read: bool) -> Iterator[tuple[str, IO[bytes] | None]]:
        with open(self.path, "rb") as file, tarfile.open(fileobj=self._tape(file), mode="r:") as archive:
            while (entry := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # or it would remember them all
                if not (entry.isfile() or entry.isdir()):
                    raise self._no_file(entry.name)
                yield entry.name + "/" * entry.isdir(), archive.extractfile(entry) if read else None

    def _tape(self, file: BinaryIO) -> IO[bytes] | Unpacked:
        """A tar as it is, or what is gzipped in it."""
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return Unpacked(file) if gzipped else file

    def _parts(self, name: str) -> Parts:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or PureWindowsPath(name).drive:
            raise BadInput(f"{self} holds a path that may lead out of it: {shown(name)}")
        return (*path.parts, "") if name.endswith("/") or not path.parts else path.parts

    def _no_file(self, name: str) -> BadInput:
        return BadInput(f"{self} holds something that is neither file nor folder: {shown(name)}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except BadInput:
            raise
        except Exception as error:  # a broken archive raises almost anything; so does one with a password
            raise BadInput(f"{self} cannot be read as an archive: {one_line(error)}") from None


@dataclass(frozen=True)
class Packed:
    """A folder in an archive."""

    path: str
    entries: tuple[Parts, ...]  # all that lies below it

    def __str__(self) -> str:
        return shown(self.path)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def folders(self) -> list["Packed"]:
        """The visible folders in it, in natural order; not what a Mac adds to a .zip."""
        inside: dict[str, list[Parts]] = {}
        for first, *rest in self.entries:
            if rest and not first.startswith(".") and first != "__MACOSX":
                inside.setdefault(first, []).append(tuple(rest))
        return [Packed(f"{self.path}/{name}", tuple(inside[name])) for name in sorted(inside, key=natural)]

    def files(self) -> list[str]:
        """Every visible file below it, in natural order."""
        visible = (parts for parts in self.entries if parts[-1] and not any(part.startswith(".") for part in parts))
        return sorted(("/".join((self.path, *parts)) for parts in visible), key=natural)

    def is_loose(self) -> bool:
        """Whether pictures lie right in it."""
        return any(len(parts) == 1 and is_picture(parts[0]) for parts in self.entries)
