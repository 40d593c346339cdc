"""Positions: each kind tells a token where it lies, by adding a table to the tokens or by turning queries and keys."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.model.layout import Layout


class Turning(Protocol):
    """Queries or keys (b, h, n, e) → the same, turned by where each token lies."""

    @property
    def cosine(self) -> Tensor: ...

    @property
    def sine(self) -> Tensor: ...

    def __call__(self, vectors: Tensor) -> Tensor: ...


class Position(nn.Module):
    """Adds positions to tokens (b, n, d) in `forward`; a kind that turns queries and keys instead has a `rotation`."""

    def __init__(self, rotation: "Rotation | None" = None):
        super().__init__()
        self.rotation = rotation

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        """All tokens, or those at `places` (b, m)."""
        return tokens


@dataclass(frozen=True)
class Learned:
    """z = x + P, with P a free (n, d) table (Dosovitskiy et al., 2021)."""

    kind: ClassVar[str] = "learned"

    def build(self, layout: Layout, width: int, head_width: int | None) -> Position:
        return Table(learned_table(layout, width))


@dataclass(frozen=True)
class Sinusoidal1d:
    """z = x + S, S[t, 2i] = sin(t / 10000^(2i/d)), S[t, 2i+1] = cos(same), t the place (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "sinusoidal-1d"

    def build(self, layout: Layout, width: int, head_width: int | None) -> Position:
        return Table(sinusoids(torch.arange(layout.tokens), width))


@dataclass(frozen=True)
class Sinusoidal2d:
    """z = x + [S(row); S(column)], half the width for each; extra tokens get none (after He et al., 2022)."""

    kind: ClassVar[str] = "sinusoidal-2d"

    def build(self, layout: Layout, width: int, head_width: int | None) -> Position:
        return Table(sinusoids_on(layout, width))


@dataclass(frozen=True)
class Rotary:
    """q, k ← R(row, column) q, R(row, column) k: qᵀk then depends on the offset alone (Su et al., 2021)."""

    kind: ClassVar[str] = "rotary"
    base: float = 100.0  # b: the longest wavelength is 2π·b^(1 − 4/e) patches, e the features of a head
    table: bool = False  # add a learned table to the tokens as well, which tells where a token lies in the picture

    def build(self, layout: Layout, width: int, head_width: int | None) -> Position:
        if head_width is None:
            raise BadInput(
                "positions rotary turn queries and keys, and attention uniform has none: choose other positions"
            )
        if head_width % 4:
            raise BadInput(f"positions rotary need a head width (width / heads) that 4 divides, not {head_width}")
        if self.base <= 0:
            raise BadInput(f"the base of rotary positions must be above 0, not {self.base}")
        rotation = Rotation(layout, head_width, self.base)
        return Table(learned_table(layout, width), rotation) if self.table else Position(rotation)


@dataclass(frozen=True)
class NoPositions:
    """z = x: the model sees a bag of patches (reports R1 and R3)."""

    kind: ClassVar[str] = "none"

    def build(self, layout: Layout, width: int, head_width: int | None) -> Position:
        return Position()


class Table(Position):
    def __init__(self, table: Tensor, rotation: "Rotation | None" = None):
        super().__init__(rotation)
        if isinstance(table, nn.Parameter):
            self.table: Tensor = table
        else:
            self.register_buffer("table", table)

    def forward(self, tokens: Tensor, places: Tensor | None = None) -> Tensor:
        return tokens + (self.table if places is None else self.table[places]).to(tokens.dtype)


class Rotation(nn.Module):
    """Turns the pairs (i, i + half) of queries and keys (b, h, n, e) by angles that grow with row and column."""

    cosine: Tensor
    sine: Tensor

    def __init__(self, layout: Layout, head_width: int, base: float):
        super().__init__()
        quarter = head_width // 4
        frequencies = base ** (-torch.arange(quarter) / quarter)
        # (patches, 2 axes, quarter) → half the head's pairs turn with the row, half with the column.
        angles = (layout.coordinates()[:, :, None] * frequencies).flatten(1)
        angles = torch.cat([angles.new_zeros(layout.extra, 2 * quarter), angles])
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, vectors: Tensor) -> Tensor:
        return Turn(self.cosine, self.sine)(vectors)

    def at(self, places: Tensor) -> "Turn":
        """The rotation of the tokens at `places` (b, m), which differ from picture to picture."""
        return Turn(self.cosine[places].unsqueeze(1), self.sine[places].unsqueeze(1))


@dataclass(frozen=True, eq=False)
class Turn:
    """Cosines and sines (n, e / 2), or (b, 1, n, e / 2), of the angles by which pairs are turned."""

    cosine: Tensor
    sine: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        # [a; b] → [a; b]·cos + [b; a]·[−sin; sin]: compiled, a swap is an index, where joining halves is two kernels.
        pairs = vectors.unflatten(-1, (2, -1))
        sine = torch.stack([-self.sine, self.sine], dim=-2)
        turned = pairs * self.cosine.unsqueeze(-2) + pairs.flip(-2) * sine
        return turned.flatten(-2).to(vectors.dtype)


def learned_table(layout: Layout, width: int) -> nn.Parameter:
    return nn.Parameter(nn.init.trunc_normal_(torch.empty(layout.tokens, width), std=0.02))


def sinusoids_on(layout: Layout, width: int) -> Tensor:
    """(n, width): half of it by the row and half by the column; nothing for extra tokens."""
    if width % 4:
        raise BadInput(f"positions sinusoidal-2d need a width that 4 divides, not {width}")
    y, x = layout.coordinates().unbind(-1)
    table = torch.cat([sinusoids(y, width // 2), sinusoids(x, width // 2)], dim=-1)
    return torch.cat([table.new_zeros(layout.extra, width), table])


def sinusoids(places: Tensor, width: int) -> Tensor:
    """(n,) places → (n, width) table of interleaved sines and cosines."""
    angles = places[:, None].double() / 10000 ** (torch.arange(0, width, 2).double() / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width].float()


Positions = Learned | Sinusoidal1d | Sinusoidal2d | Rotary | NoPositions
