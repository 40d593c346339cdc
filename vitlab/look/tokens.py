"""Which token looks: what the head reads, or one that the user names."""

import re
from collections.abc import Iterable

import torch
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.model import Stream
from vitlab.model.layout import Grid, Layout


def looking(final: Stream, token: str | None) -> dict[Stream, Tensor]:
    """For each stream (b, n): each token's share in the look; a single 1, or as much as each of those read counts."""
    streams = list(final.all())
    named = None if token is None else token.strip().lower()
    patch = named and re.fullmatch(r"(\d+)\s*,\s*(\d+)", named)
    if patch:
        grid = finest(stream.layout for stream in streams)
        row, column = int(patch[1]) - 1, int(patch[2]) - 1
        if not (0 <= row < grid.rows and 0 <= column < grid.columns):
            raise BadInput(f"no patch '{token}': there are {grid.rows} rows and {grid.columns} columns, from 1,1")
        y, x = (row + 0.5) / grid.rows, (column + 0.5) / grid.columns
        return {stream: only(patch_at(stream.layout, y, x), stream) for stream in streams}
    if named is not None and not any(named in extra_names(stream) for stream in streams):
        known = [f"'{name}'" for name in extra_names(final)]
        raise BadInput(f"no token '{token}': name {' or '.join([*known, 'a patch by its row,column'])}")
    return {stream: of_name(stream, named) for stream in streams}


def of_name(stream: Stream, name: str | None) -> Tensor:
    """The class token or a register where the stream has it; else all that is read of the stream."""
    names = extra_names(stream)
    if name in names:
        return only(names.index(name), stream)
    return stream.shares()


def only(place: int, stream: Stream) -> Tensor:
    row = torch.zeros_like(stream.tokens[0][..., 0])
    row[:, place] = 1
    return row


def extra_names(stream: Stream) -> list[str]:
    """The names of the tokens before the patches."""
    extra, read = stream.layout.extra, stream.read
    own = ["class", "distillation"][: read.stop] if read.start == 0 and 0 < (read.stop or 0) <= extra else []
    return own + [f"register {i + 1}" for i in range(extra - len(own))]


def patch_at(layout: Layout, y: float, x: float) -> int:
    """The place of the patch, of the finest grid, that holds a point; (0, 0) to (1, 1) is the whole picture."""
    grid = finest([layout])
    before = sum(other.tokens for other in layout.grids[: layout.grids.index(grid)])
    return layout.extra + before + int(y * grid.rows) * grid.columns + int(x * grid.columns)


def finest(layouts: Iterable[Layout]) -> Grid:
    """The grid with the most patches."""
    return max((grid for layout in layouts for grid in layout.grids), key=lambda grid: grid.tokens)


def describe_looking(stream: Stream, token: str | None) -> str:
    """Which token of a stream looks, in words; where it has not the one asked for, all that is read of it."""
    names, named = extra_names(stream), (token or "").strip().lower()
    if "," in named:
        row, column = (int(number) for number in named.split(","))
        return f"from the patch in row {row}, column {column}"
    if named in names:
        return f"from {named}" if named.startswith("register") else f"from the {named} token"
    read = range(stream.layout.tokens)[stream.read]
    if "distillation" in names:
        return "averaged over the class and the distillation token"
    if len(read) > 1:
        return "averaged over all patches" + ("" if stream.evenly else ", as the head weighs them")
    return "from the class token" if "class" in names else "from the first patch"
