"""One weight for each place of the picture, whatever grids the weights came on."""

from typing import Literal, get_args

import torch
from torch import Tensor

from vitlab.look.inside import Inside, Seen
from vitlab.look.tokens import finest
from vitlab.model.layout import Grid

Kind = Literal["attention", "rollout", "relevance"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NAMES: dict[Kind, str] = {"attention": "last layer's attention", "rollout": "rollout", "relevance": "relevance"}


def heat(seen: Inside, kind: Kind) -> Tensor:
    """(b, rows, columns) on the finest grid: the last layer's attention (heads' mean), rollout or relevance."""
    grid = finest(stream.layout for stream in seen.sources)
    if kind != "attention":
        return laid(seen.sources, [getattr(stream, kind) for stream in seen.sources], grid)
    last = seen.streams[-1]  # what is read last; where it has no block of its own, what feeds it
    streams = [last] if last.attention.shape[1] else seen.sources
    return laid(streams, [last_attention(stream) for stream in streams], grid)


def last_attention(stream: Seen) -> Tensor:
    """(b, n): the mean over the heads of the last layer; nothing where there is no layer."""
    rows = stream.attention
    return rows[:, -1].mean(dim=1) if rows.shape[1] else rows.new_zeros(len(rows), stream.layout.tokens)


def laid(streams: list[Seen], rows: list[Tensor], grid: Grid) -> Tensor:
    """Rows over the tokens of several streams, added up where their patches lie."""
    total = torch.zeros(len(rows[0]), grid.rows, grid.columns)
    for stream, row in zip(streams, rows, strict=True):
        for weights in stream.layout.on_grids(row):
            total += overlap(weights.shape[-2], grid.rows).T @ weights @ overlap(weights.shape[-1], grid.columns)
    return total


def overlap(given: int, wanted: int) -> Tensor:
    """(given, wanted): the share of each of `given` equal pieces of a line that lies in each of `wanted` ones."""
    start = torch.arange(given)[:, None] / given
    end = torch.arange(1, given + 1)[:, None] / given
    left, right = torch.arange(wanted) / wanted, torch.arange(1, wanted + 1) / wanted
    return (torch.minimum(end, right) - torch.maximum(start, left)).clamp(min=0) * given
