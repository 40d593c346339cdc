"""Shapes shared by the parts: the picture, the grid its patches form, and the order of a sequence's tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor

from vitlab.data.dataset import check_sides
from vitlab.errors import BadInput

MOST_TOKENS = 2**17  # eight times as many as were ever measured
LARGEST_PATCH = 4096  # that is proposed


@dataclass(frozen=True)
class Shape:
    """A picture: channels × height × width, in pixels."""

    channels: int
    height: int
    width: int

    def __post_init__(self) -> None:
        check_sides(self.channels, self.height, self.width)

    def __str__(self) -> str:
        return f"{self.channels}×{self.height}×{self.width}"


@dataclass(frozen=True)
class Grid:
    """The rows × columns of patches that one scale cuts a picture into."""

    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class Layout:
    """A token sequence: extra tokens first (class token, then registers), then the patches of each grid, row by row."""

    extra: int
    grids: tuple[Grid, ...]

    @property
    def patches(self) -> int:
        return sum(grid.tokens for grid in self.grids)

    @property
    def tokens(self) -> int:
        return self.extra + self.patches

    def on_grids(self, weights: Tensor) -> list[Tensor]:
        """One weight per token (…, n) laid where the patches lie: (…, rows, columns) for each grid."""
        parts = weights[..., self.extra :].split([grid.tokens for grid in self.grids], dim=-1)
        return [part.unflatten(-1, (g.rows, g.columns)) for part, g in zip(parts, self.grids, strict=True)]

    def neighbours(self) -> tuple[Tensor, Tensor]:
        """(4, n) places of the patches above, below, left and right, and which of them lie inside the grid.

        Beyond the edge a patch's neighbour is that of the other side, so that each direction is a permutation; an extra
        token is its own.
        """
        own = torch.arange(self.tokens)
        extra, grids = own[: self.extra], self.on_grids(own)
        places, inside = [], []
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            within = [torch.ones(grid.shape, dtype=torch.bool) for grid in grids]
            for grid in within:
                grid.select(axis, 0 if step == 1 else -1).fill_(False)
            places.append(torch.cat([extra, *(grid.roll(step, axis).flatten() for grid in grids)]))
            inside.append(torch.cat([extra >= 0, *(grid.flatten() for grid in within)]))
        return torch.stack(places), torch.stack(inside)

    def coordinates(self) -> Tensor:
        """Centre (y, x) of every patch, in patches of the finest grid: one grid gives the row and column numbers."""
        fine = max(self.grids, key=lambda grid: grid.tokens)
        centres = []
        for grid in self.grids:
            y = (torch.arange(grid.rows) + 0.5) / grid.rows * fine.rows - 0.5
            x = (torch.arange(grid.columns) + 0.5) / grid.columns * fine.columns - 0.5
            centres.append(torch.cartesian_prod(y, x))
        return torch.cat(centres)


def divide(shape: Shape, patch: int) -> Grid:
    """Cut a picture into square patches, or refuse with the sides that would fit."""
    if patch >= 1 and shape.height % patch == 0 and shape.width % patch == 0:
        grid = Grid(shape.height // patch, shape.width // patch)
        if grid.tokens > MOST_TOKENS:
            raise BadInput(
                f"pictures of {shape.height}×{shape.width} have {grid.tokens:,} patches of {patch}, which is more than "
                f"{MOST_TOKENS:,}: use larger patches"
            )
        return grid
    sides = range(1, min(shape.height, shape.width, LARGEST_PATCH) + 1)
    fits = [str(p) for p in sides if not (shape.height % p or shape.width % p)]
    raise BadInput(
        f"patches of {patch} do not divide pictures of {shape.height}×{shape.width}: choose from {', '.join(fits)}"
    )
