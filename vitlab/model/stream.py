"""A stream: one sequence of tokens on its way through a stack of blocks, kept so that it can be looked at."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from vitlab.model.blocks import BlockLayer, Stack
from vitlab.model.layout import Layout
from vitlab.model.positions import Rotation


def evenly(read: Tensor) -> Tensor:
    """Tokens (b, m, d) → 1 / m for each."""
    return read.new_full(read.shape[:2], 1 / read.shape[1])


@dataclass(frozen=True, eq=False)
class Maps:
    """What one stream did: the attention (b, h, n, n) of each block; token i looks with row i."""

    layout: Layout
    layers: list[Tensor]


@dataclass(frozen=True, eq=False)
class Stream:
    """The tokens (b, n, d) that enter a stack and those that leave each block; a stream may be fed by others."""

    layout: Layout
    blocks: Stack
    rotation: Rotation | None
    tokens: list[Tensor]  # before the first block, and after each
    read: slice  # the tokens that what comes next looks at
    before: tuple["Stream", ...] = ()  # whose last tokens, one after another, are this one's patches
    weigh: Callable[[Tensor], Tensor] = evenly  # the last tokens in `read` (b, m, d) → how much each counts (b, m)
    attention: list[Tensor] | None = None  # of each block, where it was followed by way of its maps

    def all(self) -> Iterator["Stream"]:
        """The streams that feed this one, then itself."""
        for stream in self.before:
            yield from stream.all()
        yield self

    def steps(self) -> Iterator[tuple[BlockLayer, Tensor, Tensor]]:
        """Each block, with the tokens that entered and left it."""
        for block, entered, left in zip(self.blocks, self.tokens[:-1], self.tokens[1:], strict=True):
            assert isinstance(block, BlockLayer)
            yield block, entered, left

    @property
    def evenly(self) -> bool:
        """Whether all tokens that are read count the same."""
        return self.weigh is evenly

    @torch.no_grad()
    def shares(self) -> Tensor:
        """(b, n): how much each token counts for what comes next, in all 1."""
        last = self.tokens[-1]
        rows = last.new_zeros(last.shape[:2])
        rows[:, self.read] = self.weigh(last[:, self.read])
        return rows

    def maps(self) -> Maps:
        found = self.attention or [block.map(tokens, self.rotation) for block, tokens, _ in self.steps()]
        return Maps(self.layout, found)


def follow(
    layout: Layout,
    blocks: Stack,
    rotation: Rotation | None,
    tokens: Tensor,
    *,
    read: slice,
    before: tuple[Stream, ...] = (),
    weigh: Callable[[Tensor], Tensor] = evenly,
    by_map: bool = False,
) -> Stream:
    """Send tokens through a stack, keeping them between its blocks; `by_map` mixes by the maps, and keeps them too."""
    kept, maps = [tokens], []
    for block in blocks:
        assert isinstance(block, BlockLayer)
        if by_map:
            weights = block.map(kept[-1], rotation)
            if torch.is_grad_enabled() and not weights.requires_grad:
                weights.requires_grad_()  # uniform weights follow from no token, yet the answer follows from them
            maps.append(weights)
        kept.append(block.through(kept[-1], maps[-1]) if by_map else block(kept[-1], rotation))
    return Stream(layout, blocks, rotation, kept, read, before, weigh, maps if by_map else None)
