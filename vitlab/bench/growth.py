"""Growth: one epoch of vitlab's own loop, while one of pictures, tokens, width and depth is doubled again and again."""

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from vitlab.bench.loops import Trained, epoch_call
from vitlab.bench.measure import Call, take_turns
from vitlab.bench.points import Point
from vitlab.bench.settings import growth_setting
from vitlab.data.dataset import DataSet, Part
from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.heads import Mean
from vitlab.model.tokens import ConvPatches

Axis = Literal["pictures", "tokens", "width", "depth"]
AXES: tuple[Axis, ...] = ("pictures", "tokens", "width", "depth")
CLASSES, PATCH = 10, 4


@dataclass(frozen=True)
class Size:
    """An epoch's work: grey pictures of `tokens` patches of 4×4, a ViT with 4 heads that reads the mean."""

    pictures: int
    tokens: int
    width: int
    depth: int
    batch: int

    @property
    def picture(self) -> Shape:
        """Rows × columns of patches that are as square as a power of two allows."""
        rows = 2 ** ((self.tokens.bit_length() - 1) // 2)
        return Shape(1, rows * PATCH, self.tokens // rows * PATCH)

    def trained(self) -> Trained:
        """The model and random pictures for it."""
        shape = (self.pictures, 1, self.picture.height, self.picture.width)
        generator = torch.Generator().manual_seed(0)
        pictures = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
        part = Part(pictures, torch.arange(self.pictures) % CLASSES)
        model = ViT(self.width, self.depth, tokens=ConvPatches(PATCH), attention=Softmax(heads=4), head=Mean())
        few = Part(part.pictures[:CLASSES], part.labels[:CLASSES])
        return Trained(model, DataSet("noise", tuple(map(str, range(CLASSES))), part, few), self.batch)

    def __str__(self) -> str:
        return (
            f"{self.pictures:,} pictures of {self.picture}, patch {PATCH}, {self.tokens} tokens, width {self.width}, "
            f"depth {self.depth}, 4 heads, batch {self.batch}"
        )


BASES = {
    "cpu": Size(pictures=1024, tokens=16, width=32, depth=2, batch=64),
    "cuda": Size(pictures=16384, tokens=64, width=128, depth=4, batch=512),
}


def measure_growth(base: Size, doublings: int, rounds: int, device: torch.device) -> list[Point]:
    """The epochs of all sizes by turns, the base once for every axis."""
    sizes = [base] + [doubled(base, axis, power) for axis in AXES for power in range(1, doublings + 1)]
    with tempfile.TemporaryDirectory() as folder:
        calls: dict[str, Call] = {}
        for size in sizes:
            calls[str(size)] = epoch_call(size.trained().loop(growth_setting(device), Path(folder), device))
        timings = take_turns(calls, rounds, 1, device)
    points = []
    for axis in AXES:
        for size in [doubled(base, axis, power) for power in range(doublings + 1)]:
            timing = timings[str(size)]
            taken = round(timing.median * 1e3, 3), round(timing.fastest * 1e3, 3)
            points.append(Point(axis, getattr(size, axis), *taken))
    return points


def doubled(base: Size, axis: Axis, power: int) -> Size:
    return replace(base, **{axis: getattr(base, axis) * 2**power})
