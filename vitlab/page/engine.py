"""From a run and a picture to what the page shows: one look, in a few milliseconds."""

import base64
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.data import Part
from vitlab.data.prepared import Card, Normalise, unit
from vitlab.engine.cost import flops
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.given import tested_on
from vitlab.look.tokens import describe_looking, extra_names
from vitlab.model import Network, Stream
from vitlab.model.layout import Grid, Layout
from vitlab.model.multiscale import LateClassToken, MultiScale, MultiScaleTransformer
from vitlab.model.vit import VisionTransformer
from vitlab.page.pictures import Pictures, pictures_of
from vitlab.page.shown import Shown

MOST = 2_000_000  # numbers in the maps of one picture: what a browser takes in at every stroke


@dataclass(frozen=True, eq=False)
class Engine:
    """A run's model, ready to be asked."""

    name: str
    run: Run
    card: Card
    network: Network
    evaluation: Evaluation  # on the test part, as the run left it
    pictures: Pictures
    data: Path | None = None  # folder of the data sets

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the page must know of the model before any picture."""
        model, result, streams = self.run.experiment.model, self.run.result, list(self.stream.all())
        heads = model.join if isinstance(model, MultiScale) else model.head
        tokens = "conv-patches" if isinstance(model, MultiScale) else model.tokens.kind
        added = added_positions(self.network, model.width)
        late = isinstance(heads, LateClassToken) and model.positions.kind != "none"
        return {
            "name": self.name, "weights": self.weights, "data": self.card.name, "classes": list(self.card.classes),
            "channels": self.card.channels, "height": self.card.height, "width": self.card.width,
            "grids": numbered(self.grids, 0), "streams": [self.describe(stream, streams) for stream in streams],
            "features": model.width, "norm": model.block.norm, "finalNorm": getattr(model, "final_norm", True),
            "kinds": {"tokens": tokens, "positions": "late" if late else model.positions.kind,
                      "attention": model.attention.kind, "head": heads.kind},
            "shift": model.width // model.block.shift if model.block.shift else 0,
            "temperature": self.run.temperature,
            "smoothing": getattr(self.run.experiment.objective, "label_smoothing", 0.0),
            "scale": getattr(model.attention, "scale", ""), "normalised": getattr(model.attention, "qk_norm", False),
            "mean": list(self.card.mean), "deviation": list(self.card.deviation),
            "positions": numbers(added) if bool(added.any()) else None,
            "accuracy": result["test_accuracy"] if result["count"] else None, "low": result["low"],
            "high": result["high"], "tested": result["count"],
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "flops": flops(self.network),
        }  # fmt: skip

    def describe(self, stream: Stream, streams: list[Stream]) -> dict[str, Any]:
        """A stream: its tokens, its blocks, what is read of it, and the streams that feed it, by their places."""
        earlier = [] if stream.before else [other for other in streams[: streams.index(stream)] if not other.before]
        return {
            "extra": extra_names(stream), "layers": len(stream.blocks),
            "grids": numbered(stream.layout.grids, sum(other.layout.patches for other in earlier)),
            "heads": heads_of(stream), "reading": describe_looking(stream, None),
            "before": [streams.index(source) for source in stream.before],
        }  # fmt: skip

    @cached_property
    def stream(self) -> Stream:
        """The way of an empty picture."""
        with torch.no_grad():
            return self.network.trace(self.normalised(self.blank[None]))

    @property
    def grids(self) -> tuple[Grid, ...]:
        return self.stream.layout.grids

    @property
    def blank(self) -> Tensor:
        return torch.zeros(self.card.channels, self.card.height, self.card.width, dtype=torch.uint8)

    def decode(self, coded: str) -> Tensor:
        """Pixels as the page sends them, channel by channel, row by row: base64 → uint8 (c, y, x)."""
        try:
            given = base64.b64decode(coded, validate=True)
        except ValueError:
            raise BadInput("pixels must be bytes written in base64") from None
        wanted = self.blank
        if len(given) != wanted.numel():
            raise BadInput(f"a picture for {self.name} is {wanted.numel():,} bytes, not {len(given):,}")
        return torch.frombuffer(bytearray(given), dtype=torch.uint8).view_as(wanted)

    @property
    def test(self) -> Part | None:
        """The run's test part, where its data are here and have not changed; they may come while the page is open."""
        with suppress(BadInput):  # the page is of use without them
            return self.tested if len(self.tested) == self.evaluation.count else None
        return None

    @cached_property
    def tested(self) -> Part:
        return tested_on(self.run, self.data).test

    @cached_property
    def weights(self) -> str:
        """By which the model is known from another of its name."""
        values = (value.numpy().tobytes() for value in self.network.state_dict().values())
        return hashlib.sha256(b"".join(values)).hexdigest()[:16]

    def normalised(self, pixels: Tensor) -> Tensor:
        """uint8 (b, c, y, x) → as the model takes them."""
        return Normalise(self.card, torch.device("cpu"))(unit(pixels))

    def without(self, picture: Tensor, masked: list[int]) -> Tensor:
        """The picture (1, c, y, x) with the data's mean colour, which is 0, in place of some patches."""
        count = sum(grid.tokens for grid in self.grids)
        if odd := [place for place in masked if not 0 <= place < count]:
            raise BadInput(f"there is no patch {odd[0]}: they are counted from 0 to {count - 1}")
        kept = torch.ones(count)
        kept[masked] = 0
        for part in Layout(0, self.grids).on_grids(kept):
            rows = part.repeat_interleave(self.card.height // part.shape[0], dim=0)
            picture = picture * rows.repeat_interleave(self.card.width // part.shape[1], dim=1)
        return picture

    def look(self, pixels: Tensor, masked: list[int], relevance: bool) -> dict[str, Any]:
        """All that the page shows of one picture (c, y, x) without its masked patches; relevance is slower, so apart.

        Numbers travel as float32 in base64.
        """
        started = time.perf_counter()
        whole = self.normalised(pixels[None])
        picture = self.without(whole, masked)
        with torch.no_grad():
            unmasked = self.network.logits(whole)[0].tolist() if masked else None
        parts = Shown(self.network, relevance)(picture)
        return {
            "logits": parts["lens"][-1].tolist(), "unmasked": unmasked, "relevance": None,
            **{name: numbers(values) for name, values in parts.items()},
            "milliseconds": round(1000 * (time.perf_counter() - started), 2),
        }  # fmt: skip


def open_engine(run: Run, name: str, data: Path | None = None) -> Engine:
    """The engine of a run, or one line that says why the page cannot show it."""
    card, network = run.card, run.model()
    if not card.labelled:
        raise BadInput(f"{run.folder} knows no classes: teach it some by 'vitlab finetune {run.folder}'")
    if isinstance(network, VisionTransformer) and network.across == "batch":
        raise BadInput(f"{run.folder} attends from picture to picture, so no map of it lies on one picture")
    engine = Engine(name, run, card, network, run.evaluation, pictures_of(run, data), data)
    streams = list(engine.stream.all())
    if not any(len(stream.blocks) for stream in streams):
        raise BadInput(f"{run.folder} has no blocks, so there is nothing to watch")
    size = sum(len(stream.blocks) * heads_of(stream) * stream.layout.tokens**2 for stream in streams)
    if size > MOST:
        tokens = streams[-1].layout.tokens
        raise BadInput(f"{run.folder} has {tokens} tokens, too many to show at every stroke: try 'vitlab look'")
    with torch.inference_mode():
        if not bool(network.logits(engine.normalised(engine.blank[None])).isfinite().all()):
            raise BadInput(f"what {run.folder} answers are no numbers, so there is nothing to watch: has it diverged?")
    return engine


def heads_of(stream: Stream) -> int:
    return max((getattr(block.attention, "heads", 1) for block in stream.blocks), default=1)


def numbered(grids: Sequence[Grid], first: int) -> list[dict[str, int]]:
    """Grids with the number of each one's first patch: patches are counted from grid to grid."""
    starts = accumulate((grid.tokens for grid in grids), initial=first)
    return [
        {"rows": grid.rows, "columns": grid.columns, "first": start} for grid, start in zip(grids, starts, strict=False)
    ]


@torch.no_grad()
def added_positions(network: Network, width: int) -> Tensor:
    """(n, d): what is added to each token that enters."""
    parts: list[Any] = [*network.scales] if isinstance(network, MultiScaleTransformer) else [network]
    return torch.cat([part.positions(torch.zeros(1, part.layout.tokens, width))[0] for part in parts])


def numbers(values: Tensor) -> str:
    """float32, little-endian, in base64."""
    return base64.b64encode(values.detach().float().contiguous().numpy().astype("<f4").tobytes()).decode()
