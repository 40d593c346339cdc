"""Pictures that stay in a file: those that are asked for are read, and no others."""

import hashlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Stored:
    """The pictures of a file, mapped into memory, and what was noted of each when it was written."""

    pixels: np.ndarray  # uint8 (n, c, y, x)
    moments: Tensor  # float64 (n, 2, c): the sums of the pixels, and of their squares
    digests: Tensor  # uint8 (n, 32): SHA-256


class Rows:
    """Some pictures of a file: as a tensor (n, c, y, x) to those who read from it, a list of places to itself.

    `rows[places]` reads, and gives a tensor on the device; `rows.pick(places)` does not, and gives other rows.
    """

    dtype = torch.uint8

    def __init__(self, stored: Stored, places: np.ndarray, device: torch.device | None = None):
        self.stored, self.places, self.device = stored, places, device or torch.device("cpu")

    def __len__(self) -> int:
        return len(self.places)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self), *self.stored.pixels.shape[1:]))

    def numel(self) -> int:
        return self.shape.numel()

    def to(self, device: torch.device) -> "Rows":
        """The same pictures; those that are read go to the device."""
        return Rows(self.stored, self.places, device)

    def pick(self, places: Tensor | slice) -> "Rows":
        return Rows(self.stored, self.places[_on_host(places)], self.device)

    def split(self, count: int) -> Iterator[Tensor]:
        """All of them, `count` at a time."""
        return (self[start : start + count] for start in range(0, max(len(self), 1), count))

    def __getitem__(self, chosen: int | slice | Sequence[int] | Tensor) -> Tensor:
        if isinstance(chosen, int):
            return self[[chosen]][0]
        places = self.places[_on_host(chosen)]
        forward = np.argsort(places)  # a disk is read in one direction
        read = torch.empty((len(places), *self.shape[1:]), dtype=self.dtype, pin_memory=self.device.type == "cuda")
        read.numpy()[forward] = self.stored.pixels[places[forward]]
        return read.to(self.device, non_blocking=True)

    def moments(self) -> Tensor:
        return self.stored.moments[self.places]

    def digests(self) -> Tensor:
        return self.stored.digests[self.places]


Pictures = Tensor | Rows


def digests(pictures: Pictures) -> Tensor:
    """The first eight bytes of each picture's SHA-256, int64 (n,): pictures of the same pixels have the same."""
    if isinstance(pictures, Rows):
        return pictures.digests()[:, :8].contiguous().view(torch.int64).flatten()
    whole = pictures.cpu().contiguous().flatten(1).numpy()
    return torch.tensor(
        [int.from_bytes(hashlib.sha256(row.data).digest()[:8], sys.byteorder, signed=True) for row in whole],
        dtype=torch.int64,
    )


def _on_host(places: slice | Sequence[int] | Tensor) -> slice | np.ndarray:
    if isinstance(places, slice):
        return places
    return places.cpu().numpy() if isinstance(places, Tensor) else np.asarray(places, dtype=np.int64)
