"""One weight for each place of the picture, whatever grids the weights came on."""

import torch
from torch import Tensor

from vitlab.look.inside import Inside, Seen
from vitlab.look.tokens import finest
from vitlab.model.layout import Grid

NAMES = {"attention": "last layer's attention", "rollout": "rollout", "relevance": "relevance"}
KINDS = tuple(NAMES)


def heat(seen: Inside, kind: str) -> Tensor:
    """(b, rows, columns) on the finest grid: the last layer's attention (heads' mean), rollout or relevance."""
    grid = finest(stream.layout for stream in seen.sources)
    if kind != "attention":
        return laid(seen.sources, [getattr(stream, kind) for stream in seen.sources], grid)
    last = seen.streams[-1]  # what is read last; where it has no block of its own, what feeds it
    streams = [last] if last.attention.shape[1] else seen.sources
    return laid(streams, [last_attention(stream) for stream in streams], grid)


def shares(maps: Tensor) -> Tensor:
    """(b, rows, columns), each divided by the sum of its strengths: one unit for maps of every kind."""
    return maps / maps.abs().sum(dim=(1, 2), keepdim=True).clamp(min=1e-30)


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
