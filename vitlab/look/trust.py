"""Does a map mean anything? Delete patches in its order, and at random, and see which the model misses more.

Deletion takes patches from the picture, highest ranked first: a true map makes the class's probability fall soon.
Insertion puts them back into an empty picture in the same order: a true map makes it rise soon (Petsiuk et al., 2018).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.engine.modes import in_evaluation
from vitlab.look.heat import KINDS, heat
from vitlab.look.inside import Inside
from vitlab.model import Network
from vitlab.sample import Sample

RANDOM = "random order"
BETTER = "better than random"
Fill = Literal["mean", "blur"]


@dataclass(frozen=True, eq=False)
class Curves:
    """The class's probability (b, steps) as patches go, and as they come."""

    deletion: Tensor
    insertion: Tensor


@dataclass(frozen=True, eq=False)
class Trust:
    """Curves for each kind of map and for random order; `shares` (steps,) of the patches that are gone, or there."""

    shares: Tensor
    curves: Mapping[str, Curves]

    @property
    def count(self) -> int:
        """Pictures that the maps were put to the test on."""
        return len(self.curves[RANDOM].deletion)

    def areas(self, kind: str) -> tuple[Tensor, Tensor]:
        """(b,) each: the area under the curve by the trapezoid rule; low is good for deletion, high for insertion."""
        curves = self.curves[kind]
        return torch.trapezoid(curves.deletion, self.shares), torch.trapezoid(curves.insertion, self.shares)

    def leads(self, kind: str) -> dict[str, tuple[float, float]]:
        """By how much a map beats random order in each test, on average over pictures, ± half a 95 % interval."""
        deletion, insertion = self.areas(kind)
        by_chance = self.areas(RANDOM)
        return {"deletion": mean_of(by_chance[0] - deletion), "insertion": mean_of(insertion - by_chance[1])}

    def verdict(self, kind: str) -> str:
        """Better or worse where both tests agree beyond their intervals; else what can be said."""
        leads = self.leads(kind).values()
        if all(mean - half > 0 for mean, half in leads):
            return BETTER
        if all(mean + half < 0 for mean, half in leads):
            return "worse than random"
        return "not clearly better than random"


def trust(
    network: Network,
    pictures: Tensor,
    seen: Inside,
    *,
    fill: Fill = "mean",
    steps: int = 16,
    orders: int = 3,
    seed: int = 0,
    at_once: int = 512,
) -> Trust:
    """Put every kind of map of `seen` to the test on the pictures (b, c, y, x) it was made of."""
    maps = {kind: heat(seen, kind) for kind in KINDS}
    rows, columns = maps[KINDS[0]].shape[1:]
    cells = rows * columns
    counts = torch.linspace(0, cells, min(steps, cells) + 1).round().long()
    device = next(network.parameters()).device
    pictures, target = pictures.to(device), seen.target.to(device)
    empty = filled(pictures, fill, rows, columns)
    ask = Asking(network, target, at_once)
    chance = torch.Generator().manual_seed(seed)

    def curves(rank: Tensor) -> Curves:
        """Rank (b, cells) of each patch, 0 the first to go."""
        rank = rank.to(device)
        gone = [(rank < count).view(-1, 1, rows, columns) for count in counts]
        sides = [enlarged(mask, pictures) for mask in gone]
        deletion = [ask(torch.where(side, empty, pictures)) for side in sides]
        insertion = [ask(torch.where(side, pictures, empty)) for side in sides]
        return Curves(torch.stack(deletion, dim=1), torch.stack(insertion, dim=1))

    with in_evaluation(network), torch.inference_mode():
        found: dict[str, Curves] = {kind: curves(ranks(weights.flatten(1), chance)) for kind, weights in maps.items()}
        drawn = [curves(ranks(torch.zeros(len(pictures), cells), chance)) for _ in range(orders)]
    found[RANDOM] = Curves(
        torch.stack([one.deletion for one in drawn]).mean(0), torch.stack([one.insertion for one in drawn]).mean(0)
    )
    return Trust(counts / cells, found)


@dataclass(frozen=True, eq=False)
class Asking:
    """How sure the network is of each picture's class, some pictures at a time."""

    network: Network
    target: Tensor
    at_once: int

    def __call__(self, pictures: Tensor) -> Tensor:
        logits = torch.cat([self.network.logits(part) for part in pictures.split(self.at_once)])
        return logits.float().softmax(dim=-1).gather(1, self.target[:, None])[:, 0].cpu()


def ranks(weights: Tensor, chance: torch.Generator) -> Tensor:
    """(b, cells) → the place of each when the strongest goes first, of either sign; ties, to a millionth, are drawn."""
    strength = (weights.abs() / weights.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) * 1e6).round()
    shuffle = torch.rand(weights.shape, generator=chance).argsort(dim=1)
    order = shuffle.gather(1, strength.gather(1, shuffle).argsort(dim=1, descending=True, stable=True))
    return order.argsort(dim=1)


def filled(pictures: Tensor, fill: Fill, rows: int, columns: int) -> Tensor:
    """What is there when a patch is not: the data's mean colour (0 once normalised), or a blur over two patches."""
    if fill == "mean":
        return torch.zeros_like(pictures)
    height, width = pictures.shape[2:]
    side = 2 * max(height // rows, width // columns) + 1
    padded = F.pad(pictures, (side // 2,) * 4, mode="replicate")
    return F.avg_pool2d(F.avg_pool2d(padded, (side, 1), stride=1), (1, side), stride=1)


def enlarged(mask: Tensor, pictures: Tensor) -> Tensor:
    """(b, 1, rows, columns) → (b, 1, y, x), each cell over its pixels."""
    return F.interpolate(mask.float(), size=pictures.shape[2:], mode="nearest-exact") > 0.5


def mean_of(values: Tensor) -> tuple[float, float]:
    """The mean over pictures, and half its 95 % interval by Student; one picture has none."""
    sample = Sample(tuple(values.tolist()))
    return sample.mean, math.nan if sample.margin is None else sample.margin
