"""Optimisers and the learning-rate schedule."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from vitlab.engine.muon import Orthogonal
from vitlab.engine.tuning import Pace, alike
from vitlab.errors import BadInput

STEM = re.compile(r"tokens\.(.*\.convolve|see\.[1-9]\d*)\.weight$")  # filters behind the first convolution


@dataclass(frozen=True)
class AdamW:
    """w ← w − η(m̂ / (√v̂ + ε) + λw) (Loshchilov & Hutter, 2019); decay on matrices only. λ = 0 is Adam."""

    kind: ClassVar[str] = "adamw"
    learning_rate: float = 1e-3  # η at its highest
    weight_decay: float = 0.05  # λ, on matrices but not on norms, biases, positions or extra tokens
    beta2: float = 0.999  # memory of the squared gradient

    def __post_init__(self) -> None:
        check(self)

    def build(self, model: nn.Module, paces: Callable[[str], Pace] = alike) -> list[torch.optim.Optimizer]:
        return [adamw(by_pace(trained(model), paces, self.weight_decay), self.learning_rate, self.beta2)]


@dataclass(frozen=True)
class Muon:
    """W ← W − η·orthogonalise(momentum) for the blocks' matrices (Jordan et al., 2024), AdamW for the rest."""

    kind: ClassVar[str] = "muon"
    learning_rate: float = 2e-3  # AdamW's peak rate
    matrix_rate: float = 0.02  # Muon's peak rate
    weight_decay: float = 0.05  # of both, times the rate of each
    beta2: float = 0.999  # AdamW's β₂
    apart: bool = False  # orthogonalise the query, key and value matrices each by itself, not joined
    filters: bool = False  # Muon for the convolutions of halving-stem and conv-pool too, but for the first

    def __post_init__(self) -> None:
        check(self)
        if self.matrix_rate < 0:
            raise BadInput(f"matrix_rate must be 0 or more, not {self.matrix_rate}")

    def build(self, model: nn.Module, paces: Callable[[str], Pace] = alike) -> list[torch.optim.Optimizer]:
        matrices: list[tuple[str, nn.Parameter]] = []
        rest: list[tuple[str, nn.Parameter]] = []
        for name, parameter in trained(model):
            in_block = parameter.ndim == 2 and "blocks." in name and name.endswith("weight")
            in_stem = self.filters and STEM.search(name)
            (matrices if in_block or in_stem else rest).append((name, parameter))
        if not matrices:
            raise BadInput(
                "optimiser muon moves the blocks' matrices, and with this depth and tuning none learns: use adamw"
            )
        groups: dict[tuple[int, Pace], list[nn.Parameter]] = {}
        for name, parameter in matrices:
            parts = 3 if self.apart and name.endswith("qkv.weight") else 1
            groups.setdefault((parts, paces(name)), []).append(parameter)
        held = [moved({"params": some, "parts": parts}, pace) for (parts, pace), some in groups.items()]
        muon = Orthogonal(at_rate(held, self.matrix_rate), self.matrix_rate, self.weight_decay)
        return [muon, adamw(by_pace(rest, paces, self.weight_decay), self.learning_rate, self.beta2)]


Optimiser = AdamW | Muon


def check(settings: Optimiser) -> None:
    for name in ("learning_rate", "weight_decay"):
        if getattr(settings, name) < 0:
            raise BadInput(f"{name} must be 0 or more, not {getattr(settings, name)}")
    if not 0 <= settings.beta2 < 1:
        raise BadInput(f"beta2 is a share from 0 up to 1, not {settings.beta2}")


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def by_pace(named: list[tuple[str, nn.Parameter]], paces: Callable[[str], Pace], decay: float) -> list[dict[str, Any]]:
    """Groups of weights that move alike, the fastest first, each split by what decays."""
    groups: dict[Pace, list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in named:
        groups.setdefault(paces(name), []).append((name, parameter))
    ordered = sorted(groups, key=lambda pace: (-pace.share, pace.waits))
    return [moved(group, pace) for pace in ordered for group in split_decay(groups[pace], decay)]


def moved(group: dict[str, Any], pace: Pace) -> dict[str, Any]:
    return group | {"share": pace.share, "waits": pace.waits}


def at_rate(groups: list[dict[str, Any]], rate: float) -> list[dict[str, Any]]:
    """Each group at its share of the rate."""
    return [group | {"lr": rate * group["share"]} for group in groups]


def split_decay(named: list[tuple[str, nn.Parameter]], decay: float) -> list[dict]:
    """Two groups: matrices and filters, which decay; norms, biases, positions and extra tokens, which do not."""
    free = [p for name, p in named if p.ndim < 2 or name.endswith(("positions.table", "extra"))]
    kept = {id(p) for p in free}
    decayed = [p for _, p in named if id(p) not in kept]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def adamw(groups: list[dict], learning_rate: float, beta2: float) -> torch.optim.Optimizer:
    return torch.optim.AdamW(at_rate(groups, learning_rate), lr=learning_rate, betas=(0.9, beta2), fused=True)


def remembered(optimiser: torch.optim.Optimizer) -> set[str]:
    """What an optimiser keeps of each weight from step to step."""
    return {"momentum_buffer"} if isinstance(optimiser, Orthogonal) else {"step", "exp_avg", "exp_avg_sq"}


@dataclass(frozen=True)
class Schedule:
    """η(t) = η · t/warm-up, then η · (1 + cos πu)/2 or η · (1 − u), u the share of the rest that is done."""

    warmup: float = 1.0  # epochs over which the learning rate rises from 0; half of the training at most
    decay: Literal["cosine", "linear", "none"] = "cosine"  # how it then falls to 0

    def __post_init__(self) -> None:
        if self.warmup < 0:
            raise BadInput(f"warmup must be 0 epochs or more, not {self.warmup}")

    def factor(self, step: int, steps: int, steps_per_epoch: int) -> float:
        """The share of the highest learning rate to use at `step` of `steps`."""
        warm = min(self.warmup * steps_per_epoch, steps / 2)
        if step + 1 <= warm:
            return (step + 1) / warm
        done = max(step - warm, 0) / max(steps - warm, 1)
        return {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done, "none": 1.0}[self.decay]
