"""From a run and a picture to what the page shows: one look, in a few milliseconds."""

import base64
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab import lab
from vitlab.data import Part
from vitlab.data.prepared import Card, Normalise, unit
from vitlab.engine.cost import flops
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.look.tokens import describe_looking, extra_names
from vitlab.model import VisionTransformer
from vitlab.model.layout import Grid
from vitlab.model.stream import evenly
from vitlab.page.pictures import Pictures, pictures_of
from vitlab.page.shown import Shown

MOST = 2_000_000  # numbers in the maps of one picture: what a browser takes in at every stroke


@dataclass(frozen=True, eq=False)
class Engine:
    """A run's model, ready to be asked."""

    name: str
    run: Run
    card: Card
    network: VisionTransformer
    evaluation: Evaluation  # on the test part, as the run left it
    pictures: Pictures
    data: Path | None = None  # folder of the data sets

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the page must know of the model before any picture."""
        model, result, layout = self.run.experiment.model, self.run.result, self.network.layout
        with torch.no_grad():
            added = self.network.positions(torch.zeros(1, layout.tokens, model.width))[0]
            stream = self.network.trace(self.normalised(self.blank[None]))
        stream = replace(stream, weigh=evenly)  # the page averages what is read, whatever the head makes of it
        heads = getattr(self.network.blocks[0].attention, "heads", 1)
        read = range(layout.tokens)[stream.read]
        return {
            "name": self.name, "data": self.card.name, "classes": list(self.card.classes),
            "channels": self.card.channels, "height": self.card.height, "width": self.card.width,
            "rows": self.grid.rows, "columns": self.grid.columns, "extra": extra_names(stream),
            "layers": len(self.network.blocks), "heads": heads,
            "features": model.width, "read": [read.start, read.stop], "reading": describe_looking(stream, None),
            "kinds": {part: getattr(model, part).kind for part in ("tokens", "positions", "attention", "head")},
            "norm": model.block.norm, "shift": model.width // model.block.shift if model.block.shift else 0,
            "smoothing": getattr(self.run.experiment.objective, "label_smoothing", 0.0),
            "scale": getattr(model.attention, "scale", ""), "normalised": getattr(model.attention, "qk_norm", False),
            "mean": list(self.card.mean), "deviation": list(self.card.deviation),
            "positions": numbers(added) if bool(added.any()) else None,
            "accuracy": result["test_accuracy"] if result["count"] else None, "low": result["low"],
            "high": result["high"], "tested": result["count"],
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "flops": flops(self.network),
        }  # fmt: skip

    @property
    def grid(self) -> Grid:
        return self.network.layout.grids[0]

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

    @cached_property
    def test(self) -> Part | None:
        """The run's test part, where its data are here and have not changed."""
        try:
            prepared = lab.load_data(self.run.experiment, self.data)
        except BadInput:  # the page is of use without them
            return None
        same = prepared.card.fingerprint == self.card.fingerprint
        return prepared.test if same and len(prepared.test) == self.evaluation.count else None

    def normalised(self, pixels: Tensor) -> Tensor:
        """uint8 (b, c, y, x) → as the model takes them."""
        return Normalise(self.card, torch.device("cpu"))(unit(pixels))

    def without(self, picture: Tensor, masked: list[int]) -> Tensor:
        """The picture (1, c, y, x) with the data's mean colour, which is 0, in place of some patches."""
        if odd := [place for place in masked if not 0 <= place < self.grid.tokens]:
            raise BadInput(f"there is no patch {odd[0]}: they are counted from 0 to {self.grid.tokens - 1}")
        kept = torch.ones(self.grid.tokens)
        kept[masked] = 0
        kept = kept.view(self.grid.rows, self.grid.columns)
        kept = kept.repeat_interleave(self.card.height // self.grid.rows, dim=0)
        return picture * kept.repeat_interleave(self.card.width // self.grid.columns, dim=1)

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
    if not isinstance(network, VisionTransformer) or len(network.layout.grids) > 1 or network.across == "batch":
        raise BadInput(f"{run.folder} has no single grid of patches for the page to show: try 'vitlab look'")
    if not len(network.blocks):
        raise BadInput(f"{run.folder} has no blocks, so there is nothing to watch")
    heads = max(getattr(block.attention, "heads", 1) for block in network.blocks)
    size = len(network.blocks) * heads * network.layout.tokens**2
    if size > MOST:
        raise BadInput(
            f"{run.folder} has {network.layout.tokens} tokens, too many to show at every stroke: try 'vitlab look'"
        )
    engine = Engine(name, run, card, network, run.evaluation, pictures_of(run, data), data)
    with torch.inference_mode():
        if not bool(network.logits(engine.normalised(engine.blank[None])).isfinite().all()):
            raise BadInput(f"what {run.folder} answers are no numbers, so there is nothing to watch: has it diverged?")
    return engine


def numbers(values: Tensor) -> str:
    """float32, little-endian, in base64."""
    return base64.b64encode(values.detach().float().contiguous().numpy().astype("<f4").tobytes()).decode()
