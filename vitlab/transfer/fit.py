"""A model for other pictures than it learned on: another size, patch or number of channels.

Two roads (report R2): `resize` the pictures to what the model knows, or `adapt` the model to the pictures.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from vitlab.data.words import counted
from vitlab.errors import BadInput
from vitlab.model import Shape, ViT
from vitlab.model.layout import Grid, divide
from vitlab.model.positions import Learned, Rotary
from vitlab.model.tokens import ConvPatches, ConvPool, ConvStem, HalvingStem, LinearPatches, ResizedPatches, resizing
from vitlab.transfer.found import Found
from vitlab.transfer.mapping import Tensors

Road = Literal["resize", "adapt"]
STEMS = ConvPool | ConvStem | HalvingStem
FILTERS, POSITIONS = "tokens.embed.weight", "positions.table"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model for certain pictures, its weights but for the logits, and what was done to them."""

    model: ViT
    tensors: Tensors
    notes: list[str]


def fit(found: Found, shape: Shape, road: Road, patch: int | None = None) -> Fitted:
    """The found model for pictures of another shape, with patches of that side, or of one that keeps its grid."""
    model, tensors = found.model, dict(found.tensors)
    assert isinstance(model, ViT)
    if found.shape == shape and patch is None:
        return Fitted(model, tensors, [])
    if isinstance(model.tokens, STEMS):
        return fit_stem(found, shape, road, patch)
    known, old = plain_patches(model, found.shape)
    filters = tensors[FILTERS].view(-1, found.shape.channels, known.patch, known.patch)
    filters, notes = for_channels(filters, shape.channels)
    if road == "resize" and patch is None:
        tokens = known if same_size(old, shape) else ResizedPatches(known.patch, (old.height, old.width))
        notes += [f"pictures are resized to {old.height}×{old.width}"] * isinstance(tokens, ResizedPatches)
        grid = divide(old, known.patch)
    elif road == "resize":
        raise BadInput("a resized picture has the patches that the model knows: choose another patch with --road adapt")
    else:
        tokens = ConvPatches(patch or nearest(divide(old, known.patch), shape))
        grid = divide(shape, tokens.patch)
        if tokens.patch != known.patch:
            filters = resized_filters(filters, tokens.patch)
            notes.append(f"filters of {known.patch}×{known.patch} pixels resized to {tokens.patch}×{tokens.patch}")
    tensors[FILTERS] = filters
    notes += carry_positions(tensors, model, divide(old, known.patch), grid)
    return checked(Fitted(replace(model, tokens=tokens), tensors, notes), shape)


def fit_stem(found: Found, shape: Shape, road: Road, patch: int | None) -> Fitted:
    """Convolutions see pictures of any size as they are: the channels of the first and the positions alone change."""
    model, tensors = found.model, dict(found.tensors)
    assert isinstance(model, ViT)
    assert isinstance(model.tokens, STEMS)
    kind, side = model.tokens.kind, model.tokens.patch
    if patch not in (None, side) or (road == "resize" and not same_size(found.shape, shape)):
        raise BadInput(
            f"tokens {kind} see pictures of any size by patches of {side}: leave out patch, and use --road adapt"
        )
    if shape.height % side or shape.width % side:
        sizes = [f"{y}×{x}" for y, x in dict.fromkeys(near(shape, side))]
        raise BadInput(
            f"tokens {kind} cut pictures by patches of {side}, which do not divide {shape.height}×{shape.width}: "
            f"pictures of {' or '.join(sizes)} fit"
        )
    first = min(name for name in tensors if name.startswith("tokens.see.") and name.endswith("weight"))
    tensors[first], notes = for_channels(tensors[first], shape.channels)
    notes += carry_positions(tensors, model, divide(found.shape, side), divide(shape, side))
    return checked(Fitted(model, tensors, notes), shape)


def near(shape: Shape, side: int) -> list[tuple[int, int]]:
    """The sizes just below and above that a side divides."""
    less = (shape.height // side * side, shape.width // side * side)
    more = (-(-shape.height // side) * side, -(-shape.width // side) * side)
    return [size for size in (less, more) if min(size)]


def plain_patches(model: ViT, shape: Shape) -> tuple[ConvPatches, Shape]:
    """A tokenizer of one filter per feature, and the pictures that it cuts up."""
    tokens = model.tokens
    if isinstance(tokens, ConvPatches) or (isinstance(tokens, LinearPatches) and not tokens.twice):
        return ConvPatches(tokens.patch), shape
    if isinstance(tokens, ResizedPatches):
        return ConvPatches(tokens.patch), Shape(shape.channels, *tokens.size)
    raise BadInput(
        f"tokens {tokens.kind} cannot be carried over to pictures of another shape: only conv-patches, linear-patches, "
        "resized-patches and stems of convolutions can"
    )


def same_size(one: Shape, other: Shape) -> bool:
    return (one.height, one.width) == (other.height, other.width)


def nearest(grid: Grid, shape: Shape) -> int:
    """The side of patches that cut a picture into about as many as before; of two as near, the larger."""
    sides = [
        side for side in range(min(shape.height, shape.width), 0, -1) if not (shape.height % side or shape.width % side)
    ]
    return min(sides, key=lambda side: abs(math.log(divide(shape, side).tokens / grid.tokens)))


def for_channels(filters: Tensor, wanted: int) -> tuple[Tensor, list[str]]:
    """Filters for another number of channels, with a note of it."""
    given = filters.shape[1]
    if given == wanted:
        return filters, []
    return of_channels(filters, wanted), [
        f"filters for {counted(given, 'channel')} made ones for {counted(wanted, 'channel')}"
    ]


def of_channels(filters: Tensor, wanted: int) -> Tensor:
    """(d, c, p, p) → (d, wanted, p, p): the same answer where all channels of a picture are equal.

    By turns: more channels share the filters out among them, fewer take several each, whose sum is then theirs.
    """
    given = filters.shape[1]
    many = max(given, wanted)
    shares = torch.zeros(wanted, given)
    shares[torch.arange(many) % wanted, torch.arange(many) % given] = 1
    return torch.einsum("dcyx, wc -> dwyx", filters, (shares / shares.sum(dim=0)).to(filters.dtype))


def resized_filters(filters: Tensor, patch: int) -> Tensor:
    """(d, c, p, p) → (d, c, patch, patch): w′ = (Rᵀ)⁺·w·R⁺ for each, R the resize (FlexiViT; Beyer et al., 2023).

    Of all filters its answer on a resized patch R·x·Rᵀ is nearest to w's on x; where the patch grows, it is the same.
    """
    inverse = torch.linalg.pinv(resizing(filters.shape[-1], patch).double().mT)
    return (inverse @ filters.double() @ inverse.mT).to(filters.dtype)


def resized_positions(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """(old tokens, d) → (new tokens, d): bicubic and antialiased; tokens before the patches keep their rows."""
    extra = len(table) - old.tokens
    laid = rearrange(table[extra:], "(y x) d -> 1 d y x", y=old.rows)
    moved = F.interpolate(laid.float(), size=(new.rows, new.columns), mode="bicubic", antialias=True).to(table.dtype)
    return torch.cat([table[:extra], rearrange(moved, "1 d y x -> (y x) d")])


def carry_positions(tensors: Tensors, model: ViT, old: Grid, new: Grid) -> list[str]:
    """Resample a learned table; what follows from the grid alone is left to the new model."""
    learned = isinstance(model.positions, Learned) or (isinstance(model.positions, Rotary) and model.positions.table)
    for name in [name for name in tensors if name.startswith("positions.") and not (learned and name == POSITIONS)]:
        del tensors[name]
    if old == new or not learned:
        return []
    tensors[POSITIONS] = resized_positions(tensors[POSITIONS], old, new)
    return [f"positions resampled from {old.rows}×{old.columns} to {new.rows}×{new.columns}"]


def checked(fitted: Fitted, shape: Shape) -> Fitted:
    """With what follows from the grid alone; weights that are made for a number of tokens are refused."""
    own = fitted.model.build(shape, 1).state_dict()
    tensors = {name: fitted.tensors.get(name, own[name]) for name in own if not name.startswith("head.logits.")}
    odd = [name for name, tensor in tensors.items() if tensor.shape != own[name].shape]
    if odd:
        raise BadInput(
            f"{odd[0]} is made for other pictures ({tuple(tensors[odd[0]].shape)}, not {tuple(own[odd[0]].shape)}) "
            "and cannot be carried over"
        )
    return replace(fitted, tensors=tensors)
