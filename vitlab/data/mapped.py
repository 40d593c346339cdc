"""Pictures in one file, mapped into memory: written once, whole or not at all, and opened without reading them.

The file is the pictures, uint8 (n, c, y, x); then what is known of them, as safetensors; then the SHA-256 and the
length of that.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from vitlab.data.rows import Rows, Stored
from vitlab.data.words import shown
from vitlab.errors import BadInput
from vitlab.settings import from_json, parse_json

TAIL = 32 + 8  # bytes of the digest and the length
Shape = tuple[int, int, int, int]  # pictures, channels, height, width


@dataclass(frozen=True, eq=False)
class Index:
    """What pictures there are, and of what."""

    places: Tensor  # int64 (n,): in the file, where pictures that turned out unreadable left a gap
    labels: Tensor  # int64 (n,)
    tests: Tensor  # bool (n,): whether it is for testing
    classes: tuple[str, ...]
    notes: tuple[str, ...]  # for the user


def size_of(shape: Shape) -> int:
    """Bytes of the pictures, in whole numbers, which do not overflow."""
    count, channels, height, width = shape
    return count * channels * height * width


@dataclass(frozen=True, eq=False)
class Noted:
    """A picture, and what is noted of it so that it need not be read again for that."""

    pixels: np.ndarray  # uint8 (c, y, x)
    moments: np.ndarray
    digest: np.ndarray

    @classmethod
    def of(cls, pixels: np.ndarray) -> "Noted":
        flat = pixels.reshape(len(pixels), -1)
        squares = np.einsum("cp,cp->c", flat, flat, dtype=np.float64, casting="unsafe")
        sums = np.stack([flat.sum(axis=1, dtype=np.float64), squares])
        return cls(pixels, sums, np.frombuffer(hashlib.sha256(pixels.data).digest(), np.uint8))


class Writer:
    """Takes pictures in any order."""

    def __init__(self, file: BinaryIO, shape: Shape):
        self.file, self.shape, self.each = file, shape, size_of((1, *shape[1:]))
        self.moments = np.zeros((shape[0], 2, shape[1]))
        self.digests = np.zeros((shape[0], 32), np.uint8)
        if hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(file.fileno(), 0, size_of(shape))  # a disk that is too small says so now

    def put(self, place: int, picture: Noted) -> None:
        self.file.seek(place * self.each)
        self.file.write(picture.pixels.data)
        self.moments[place], self.digests[place] = picture.moments, picture.digest

    def end(self, index: Index) -> None:
        """Write what lies in the file, and what was noted of each picture."""
        tensors = {"places": index.places, "labels": index.labels, "tests": index.tests}
        tensors |= {"moments": torch.from_numpy(self.moments), "digests": torch.from_numpy(self.digests)}
        facts = {"shape": self.shape, "classes": index.classes, "notes": index.notes}
        content = save(tensors, {"vitlab": json.dumps(facts)})
        self.file.seek(size_of(self.shape))
        self.file.write(content + hashlib.sha256(content).digest() + len(content).to_bytes(8, "big"))


@dataclass(frozen=True, eq=False)
class Mapped:
    """What `Writer` wrote."""

    stored: Stored
    index: Index

    @property
    def size(self) -> int:
        return self.stored.pixels.size

    @property
    def rows(self) -> Rows:
        return Rows(self.stored, self.index.places.numpy())


def open_mapped(path: Path) -> Mapped | None:
    """The pictures of a file; None where there is no file, or a damaged one."""
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END) - TAIL
            file.seek(max(end, 0))
            digest, length = file.read(32), int.from_bytes(file.read(8), "big")
            file.seek(max(end - length, 0))
            content = file.read(length) if length < end else b""
    except OSError:
        return None
    if not content or hashlib.sha256(content).digest() != digest:
        return None
    try:
        return understood(path, content, end - length)
    except (SafetensorError, ValueError, TypeError, KeyError):  # of another make, though whole
        return None


def understood(path: Path, content: bytes, size: int) -> Mapped:
    """What is known of the pictures in the first bytes of a file; an error where it does not fit them."""
    header = parse_json(content[8 : 8 + int.from_bytes(content[:8], "little")])
    facts = parse_json(header["__metadata__"]["vitlab"])
    shape: Shape = from_json(tuple[int, ...], facts["shape"])
    classes, notes = (from_json(tuple[str, ...], facts[name]) for name in ("classes", "notes"))
    tensors, count = load(content), len(facts["shape"]) and shape[0]
    index = Index(tensors["places"], tensors["labels"], tensors["tests"], classes, notes)
    wanted = [
        (index.places, torch.int64, index.places.shape[:1]), (index.labels, torch.int64, index.places.shape[:1]),
        (index.tests, torch.bool, index.places.shape[:1]),
        (tensors["moments"], torch.float64, (count, 2, *shape[1:2])), (tensors["digests"], torch.uint8, (count, 32)),
    ]  # fmt: skip
    if size_of(shape) != size or any((each.dtype, each.shape) != (kind, sides) for each, kind, sides in wanted):
        raise ValueError
    for numbers, most in ((index.places, count), (index.labels, len(classes))):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < most:
            raise ValueError
    # Read-only and shared: the system then asks for no memory to stand in for what is not read.
    pixels = np.asarray(np.memmap(path, np.uint8, "r", shape=shape))
    return Mapped(Stored(pixels, tensors["moments"], tensors["digests"]), index)


def map_once(path: Path, shape: Shape, fill: Callable[[Writer], None]) -> Mapped:
    """The pictures of a file, which `fill` writes where there is none; of several processes that want it, one does."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(f".{path.name}.lock")):
            found = open_mapped(path)
            if found is None:
                write(temporary, shape, fill)
                os.replace(temporary, path)
                found = open_mapped(path)
    except OSError as error:
        raise BadInput(
            f"{shown(path)}, which takes {size_of(shape) / 1e9:.2f} GB, cannot be written: {error.strerror or error}"
        ) from error
    assert found is not None
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the system lets go by itself of one that dies, so no lock is ever stale."""
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write(path: Path, shape: Shape, fill: Callable[[Writer], None]) -> None:
    """All of it, on the disk; what a process left that was killed is overwritten."""
    try:
        with open(path, "wb") as file:
            fill(Writer(file, shape))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
