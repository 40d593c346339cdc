"""Everything a reader can choose on the page: picture, layer, head and token, as numbers that the script draws."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitlab.look.colours import is_signed, palette
from vitlab.look.inside import in_evaluation, inside
from vitlab.look.shown import Look
from vitlab.look.tokens import extra_names
from vitlab.look.words import name_of
from vitlab.model import Network, Stream
from vitlab.report import pictures

BUDGET = 3_000_000  # bytes of maps in one page, before they are written as text
ROOM = 336  # pixels that a picture may take on the page
LENS = 3  # classes that the head would name after each block


@dataclass(frozen=True)
class Explorer:
    """What the script is given, and what the page says beside it."""

    data: dict[str, Any]
    count: int  # pictures that can be chosen
    left_out: int  # that would have made the page too large
    whole: bool  # whether every token's look is there, or only that of the tokens the head reads


def gather(network: Network, look: Look) -> Explorer:
    """The maps of as many pictures as the budget allows, at least of one."""
    with in_evaluation(network), torch.no_grad():
        sizes = sizes_of(network.trace(look.pictures[:1].to(device_of(network))))
    whole = sizes[0] <= BUDGET
    count = max(min(len(look.shown), BUDGET // sizes[not whole]), 1)
    seconds = look.logits[:count].topk(min(2, look.logits.shape[1])).indices[:, -1]
    other = inside(network, look.pictures[:count], target=seconds)
    shown = [picture(network, look, place, whole) for place in range(count)]
    for place, drawn in enumerate(shown):
        for number, stream in enumerate(drawn["streams"]):
            seen, second = look.streams[number], other.streams[number]
            rows = [(look.target[place], seen.relevance[place]), (seconds[place], second.relevance[place])]
            named = {int(label): numbers(row.float()) for label, row in rows}
            stream["relevance"] = [{"label": label, "row": row} for label, row in named.items()]
    first = shown[0].pop("layouts")
    for drawn in shown[1:]:
        drawn.pop("layouts")
    for number, layout in enumerate(first):
        layout["name"] = name_of(look, look.streams[number])
        layout["most"], layout["signed"] = scale_of(look, number)
    data = {
        "pictures": shown, "streams": first, "classes": list(look.classes), "looking": look.looking, "whole": whole,
        "palettes": [coded(palette(signed)) for signed in (False, True)],
    }  # fmt: skip
    return Explorer(data, count, len(look.shown) - count, whole)


def picture(network: Network, look: Look, place: int, whole: bool) -> dict[str, Any]:
    """One picture with the maps of all its streams, run on the CPU's or GPU's own kernels."""
    shown = look.shown[place]
    guess = look.guesses[place]
    with in_evaluation(network), torch.no_grad():
        streams = list(network.trace(look.pictures[place : place + 1].to(device_of(network))).all())
        drawn = [maps_of(stream, whole) for stream in streams]
    lens = look.lens[place].softmax(dim=-1).topk(min(LENS, look.lens.shape[-1]))
    width, height = pictures.display_size(shown.pixels, ROOM)
    return {
        "name": shown.name, "note": shown.note, "truth": shown.truth, "guess": guess,
        "sure": float(look.probabilities[place, guess]),
        "uri": pictures.picture_uri(shown.pixels, largest=ROOM),
        "backdrop": pictures.picture_uri(shown.pixels, gray=True, largest=ROOM),
        "size": [width, height],
        "lens": [
            [[int(label), round(float(share), 4)] for label, share in zip(labels, shares, strict=True)]
            for labels, shares in zip(lens.indices, lens.values, strict=True)
        ],
        "streams": drawn,
        "layouts": [layout_of(stream) for stream in streams],
    }  # fmt: skip


def layout_of(stream: Stream) -> dict[str, Any]:
    layout = stream.layout
    read = range(layout.tokens)[stream.read]
    maps = stream.maps().layers if len(stream.blocks) else []
    return {
        "extra": extra_names(stream),
        "grids": [[grid.rows, grid.columns] for grid in layout.grids],
        "tokens": layout.tokens, "layers": len(maps), "heads": maps[0].shape[1] if maps else 0,
        "read": [read.start, read.stop],
    }  # fmt: skip


def maps_of(stream: Stream, whole: bool) -> dict[str, Any]:
    """Attention (layers, heads, rows, n), likeness (layers + 1, rows, n) and rollout (rows, n), quantised row by row.

    There is a row for each token that looks, or a single one for the tokens that are read.
    """
    tokens = [one[0] for one in stream.tokens]
    directions = [torch.nn.functional.normalize(one, dim=-1) for one in tokens]
    likeness = torch.stack([one @ one.T for one in directions])
    rolled = torch.eye(stream.layout.tokens, device=tokens[0].device)
    layers = []
    for weights in stream.maps().layers:
        layers.append(weights[0])
        rolled = (weights[0].mean(dim=0) + torch.eye(len(rolled), device=rolled.device)) / 2 @ rolled
    attention = torch.stack(layers) if layers else likeness.new_zeros(0, 0, *likeness.shape[1:])
    if not whole:
        attention, likeness, rolled = (
            maps[..., stream.read, :].mean(dim=-2, keepdim=True) for maps in (attention, likeness, rolled)
        )
    return {
        "attention": quantised(attention), "rollout": quantised(rolled),
        "likeness": coded((likeness.clamp(-1, 1) * 127 + 127).round().to(torch.uint8).cpu().numpy()),
    }  # fmt: skip


def quantised(maps: Tensor) -> dict[str, str]:
    """Each row (…, n) in 255 steps, −127 … 127, of its own largest weight: exact to 0.4 % of that."""
    peaks = maps.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    steps = (maps / peaks * 127 + 127).round().to(torch.uint8)
    return {"steps": coded(steps.cpu().numpy()), "peaks": numbers(peaks.float().flatten())}


def scale_of(look: Look, number: int) -> tuple[float, bool]:
    """The weight at the top of the scale that all maps of a stream share, and whether some are negative."""
    rows = look.streams[number].attention[..., look.streams[number].layout.extra :].numpy()
    return (float(np.quantile(np.abs(rows), 0.998)), is_signed(rows)) if rows.size else (1.0, False)


def sizes_of(stream: Stream) -> tuple[int, int]:
    """Bytes of one picture's maps: with a row for each token, and with a single row."""

    def count() -> Iterator[tuple[int, int]]:
        for one in stream.all():
            maps = 1 + len(one.tokens) + sum(getattr(block.attention, "heads", 1) for block in one.blocks)
            yield maps * one.layout.tokens**2, maps * one.layout.tokens

    found = list(count())
    return sum(whole for whole, _ in found), sum(single for _, single in found)


def device_of(network: Network) -> torch.device:
    return next(network.parameters()).device


def numbers(values: Tensor) -> str:
    """float32, little-endian, as text."""
    return coded(values.cpu().numpy().astype("<f4"))


def coded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
