"""Chance without state: every draw of a step follows from (seed, step) alone, so that a resumed run draws the same."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Share:
    """The pictures of a batch that one of several processes has."""

    rank: int  # of the process
    whole: int  # pictures of the batch
    places: Tensor  # of its own ones in the batch

    def laid(self, rows: Tensor) -> Tensor:
        """Rows (v, b, …) of these pictures, laid where they are in the batch; 0 for the others."""
        return rows.new_zeros(len(rows), self.whole, *rows.shape[2:]).index_copy(1, self.places, rows)


class SharedOut(torch.Generator):
    """Draws for every picture of a batch, and gives those of a share: each gets what it would get in one process."""

    share: Share


def uniform(generator: torch.Generator, *shape: int, batch: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    """Numbers in 0 … 1; the axis `batch` counts pictures."""

    def draw(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=generator.device, dtype=dtype)

    return shared_out(draw, generator, shape, batch)


def below(end: int, generator: torch.Generator, *shape: int, batch: int = 0) -> Tensor:
    """Whole numbers from 0 up to `end`; the axis `batch` counts pictures."""

    def draw(*size: int) -> Tensor:
        return torch.randint(end, size, generator=generator, device=generator.device)

    return shared_out(draw, generator, shape, batch)


def shared_out(draw: Callable[..., Tensor], generator: torch.Generator, shape: Sequence[int], batch: int) -> Tensor:
    if not isinstance(generator, SharedOut):
        return draw(*shape)
    share = generator.share
    return draw(*shape[:batch], share.whole, *shape[batch + 1 :]).index_select(batch, share.places)


class Chance:
    """Generators for one step: `host` for a few numbers, `device` for tensors; the global one feeds dropout.

    Of several processes that share a batch, each draws its own dropout, and all the rest as one process would.
    """

    def __init__(self, device: torch.device, share: Share | None = None):
        self.device, self.rank = torch.Generator(device=device), 0
        if share is not None:
            self.device, self.rank = SharedOut(device=device), share.rank
            self.device.share = share
        self.host = np.random.default_rng(0)
        # torch.manual_seed seeds these too, but takes a hundred times longer.
        self.shared = [torch.default_generator]
        if device.type == "cuda":
            torch.cuda.init()
            self.shared.append(torch.cuda.default_generators[torch.cuda.current_device()])

    def start(self, *key: int) -> None:
        """Make all draws from here on a function of `key`."""
        first, second, third = np.random.SeedSequence(key).generate_state(3, np.uint64)
        self.host = np.random.default_rng(int(first))
        self.device.manual_seed(int(second) >> 1)
        for generator in self.shared:
            generator.manual_seed((int(third) >> 1) + self.rank)
