"""Everything a reader can choose on the page: picture, layer, head and token, as numbers that the script draws."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.engine.modes import in_evaluation
from vitlab.look.colours import Scale, palette
from vitlab.look.inside import Inside, inside
from vitlab.look.shown import Look
from vitlab.look.tokens import describe_looking, extra_names, looking
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
    first = traced(network, look, 0)
    sizes = sizes_of(first)
    whole = sizes[0] <= BUDGET
    count = max(min(len(look.shown), BUDGET // sizes[not whole]), 1)
    runners_up = look.logits[:count].topk(min(2, len(look.classes))).indices[:, -1]
    second = inside(network, look.pictures[:count], target=runners_up)
    asked = looking(first, look.token) if look.token else {}
    streams = [
        {"name": name_of(look, look.streams[number])} | layout_of(stream, asked.get(stream)) | scale_of(look, number)
        for number, stream in enumerate(first.all())
    ]
    data = {
        "pictures": [picture(traced(network, look, place), look, second, place, whole) for place in range(count)],
        "streams": streams, "classes": list(look.classes), "whole": whole,
        "palettes": [coded(palette(signed)) for signed in (False, True)],
    }  # fmt: skip
    return Explorer(data, count, len(look.shown) - count, whole)


def traced(network: Network, look: Look, place: int) -> Stream:
    like = next(network.parameters())
    with in_evaluation(network), torch.no_grad():
        return network.trace(look.pictures[place : place + 1].to(like))


@torch.no_grad()
def picture(final: Stream, look: Look, second: Inside, place: int, whole: bool) -> dict[str, Any]:
    """One picture with the maps of all its streams; `second` is a look from the head at its second class."""
    shown, guess = look.shown[place], look.guesses[place]
    lens = look.lens[place].softmax(dim=-1).topk(min(LENS, look.lens.shape[-1]))
    width, height = pictures.display_size(shown.pixels, ROOM)
    streams = []
    for number, stream in enumerate(final.all()):
        read = second.streams[number]
        relevance = {
            int(look.target[place]): look.streams[number].relevance[place],
            int(second.target[place]): read.relevance[place],
        }
        streams.append(
            maps_of(stream, whole)
            | {"rolloutRead": numbers(read.rollout[place]), "likenessRead": numbers(read.similarity[place])}
            | {"relevance": [{"label": label, "row": numbers(row)} for label, row in relevance.items()]}
        )
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
        "streams": streams,
    }  # fmt: skip


def layout_of(stream: Stream, asked: Tensor | None) -> dict[str, Any]:
    """What the script must know of a stream; `asked` is the row of the token that looks first, if any."""
    layout = stream.layout
    read = range(layout.tokens)[stream.read]
    maps = stream.maps().layers if len(stream.blocks) else []
    return {
        "extra": extra_names(stream),
        "grids": [[grid.rows, grid.columns] for grid in layout.grids],
        "tokens": layout.tokens, "layers": len(maps), "heads": maps[0].shape[1] if maps else 0,
        "read": [read.start, read.stop], "reading": describe_looking(stream, None),
        "start": None if asked is None or asked.max() < 1 else int(asked.argmax()),
    }  # fmt: skip


def maps_of(stream: Stream, whole: bool) -> dict[str, Any]:
    """Attention (layers, heads, rows, n) with a row for each token that looks, or a single one for those that are read.

    Where every token can look: rollout (n, n) within the stream, likeness (layers + 1, n, n), and shares (n,) of those
    that are read.
    """
    layers = [weights[0] for weights in stream.maps().layers]
    tokens = stream.layout.tokens
    attention = torch.stack(layers) if layers else torch.zeros(0, 0, tokens, tokens)
    if not whole:
        return {"attention": quantised(stream.shares() @ attention)}
    rolled = own = torch.eye(tokens).to(attention)
    for weights in layers:
        rolled = (weights.mean(dim=0) + own) / 2 @ rolled
    directions = [F.normalize(one[0], dim=-1) for one in stream.tokens]
    likeness = torch.stack([one @ one.T for one in directions]).clamp(-1, 1)
    return {
        "attention": quantised(attention), "rollout": quantised(rolled),
        "shares": numbers(stream.shares()[0]),
        "likeness": coded((likeness * 127 + 127).round().to(torch.uint8).cpu().numpy()),
    }  # fmt: skip


def quantised(maps: Tensor) -> dict[str, str]:
    """Each row (…, n) in 255 steps, −127 … 127, of its own largest weight: exact to 0.4 % of that."""
    peaks = maps.abs().amax(dim=-1, keepdim=True).clamp(min=1e-30)
    steps = (maps / peaks * 127 + 127).round().to(torch.uint8)
    return {"steps": coded(steps.cpu().numpy()), "peaks": numbers(peaks.float().flatten())}


def scale_of(look: Look, number: int) -> dict[str, Any]:
    """The scale that a stream's maps share: its top, whether some weights are stronger, whether some are negative."""
    rows = look.streams[number].attention[..., look.streams[number].layout.extra :].numpy()
    scale = Scale.of(rows)
    return {"most": scale.most, "clipped": scale.clipped, "signed": scale.signed}


def sizes_of(stream: Stream) -> tuple[int, int]:
    """Bytes of one picture's maps: with a row for each token, and with a single row."""

    def count() -> Iterator[tuple[int, int]]:
        for one in stream.all():
            maps = 1 + len(one.tokens) + sum(getattr(block.attention, "heads", 1) for block in one.blocks)
            yield maps * one.layout.tokens**2, maps * one.layout.tokens

    found = list(count())
    return sum(whole for whole, _ in found), sum(single for _, single in found)


def numbers(values: Tensor) -> str:
    """float32, little-endian, as text."""
    return coded(values.float().cpu().numpy().astype("<f4"))


def coded(array: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
