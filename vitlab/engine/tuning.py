"""Fine-tuning: which weights move from where a run starts, and how fast; all, the logits alone, or low-rank changes."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.objectives import Learner

LOGITS = "head.logits."
AFTER = re.compile(r"(network\.)?(norm|head|join)\.")  # what comes after the last block
Matrix = Literal["qkv", "out", "enter", "leave"]


@dataclass(frozen=True)
class Pace:
    """How a weight moves: its share of the learning rate, and whether it waits until the logits have learned."""

    share: float = 1.0
    waits: bool = False


@dataclass(frozen=True)
class Everything:
    """All weights: ηᵢ = η·decay^(depth + 1 − i) for block i; tokens and positions are block 0 (Clark et al., 2020)."""

    kind: ClassVar[str] = "all"
    layer_decay: float = 1.0  # the learning rate of each block as a share of the next one's; the head's is whole
    head_first: float = 0.0  # epochs in which the logits alone learn, before all do (Kumar et al., 2022)

    def __post_init__(self) -> None:
        if not 0 <= self.layer_decay <= 1:
            raise BadInput(f"layer_decay is a share from 0 to 1, not {self.layer_decay}")
        if self.head_first < 0:
            raise BadInput(f"head_first must be 0 epochs or more, not {self.head_first}")

    def prepare(self, learner: Learner) -> None:
        """Nothing is frozen or added."""
        if self != Everything():
            check_labelled(learner)

    def paces(self, learner: nn.Module) -> Callable[[str], Pace]:
        """For each weight's name, how it moves."""
        last = 1 + max((block_of(name) for name, _ in learner.named_parameters()), default=0)

        def pace(name: str) -> Pace:
            place = last if AFTER.match(name) else block_of(name)
            return Pace(self.layer_decay ** (last - place), bool(self.head_first) and LOGITS not in name)

        return pace


@dataclass(frozen=True)
class HeadOnly:
    """The logits alone: every other weight stays, to the last bit, as it was at the start."""

    kind: ClassVar[str] = "head"
    head_first: ClassVar[float] = 0.0

    def prepare(self, learner: Learner) -> None:
        freeze(learner)

    def paces(self, learner: nn.Module) -> Callable[[str], Pace]:
        return alike


@dataclass(frozen=True)
class LowRank:
    """W + (α/r)·B·A, A of r rows and B of r columns; W stays, and at the end takes B·A in (LoRA; Hu et al., 2022)."""

    kind: ClassVar[str] = "lora"
    head_first: ClassVar[float] = 0.0
    rank: int = 8  # r: rows of A and columns of B
    alpha: float = 16.0  # α: how much of B·A is added, in 1/r
    matrices: tuple[Matrix, ...] = ("qkv", "out")  # which of each block's: qkv and out of attention, enter and leave

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise BadInput(f"rank must be 1 or more, not {self.rank}")
        if not self.matrices:
            raise BadInput(f"matrices names none for tuning lora to change: choose from {', '.join(get_args(Matrix))}")

    def prepare(self, learner: Learner) -> None:
        """Freeze all but the logits, and give each matrix a change that is 0 at first."""
        freeze(learner)
        chosen = [
            name
            for name, module in learner.named_modules()
            if isinstance(module, nn.Linear) and "blocks." in name and name.rpartition(".")[2] in self.matrices
        ]
        if not chosen:
            names = ", ".join(self.matrices)
            raise BadInput(f"tuning lora changes the blocks' {names}, which this attention and depth have not")
        for name in chosen:
            learner.set_submodule(name, Changed(learner.get_submodule(name), self.rank, self.alpha / self.rank))

    def paces(self, learner: nn.Module) -> Callable[[str], Pace]:
        return alike


class Changed(nn.Module):
    """y = (W + scale·B·A)·x + bias: a Linear whose own weights stay."""

    def __init__(self, linear: nn.Module, rank: int, scale: float):
        super().__init__()
        assert isinstance(linear, nn.Linear)
        self.weight, self.bias, self.scale = linear.weight, linear.bias, scale
        rows, columns = self.weight.shape
        self.a = nn.Parameter(torch.randn(rank, columns) * columns**-0.5)
        self.b = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(tokens, self.changed(), self.bias)

    def changed(self) -> Tensor:
        return self.weight + self.scale * (self.b @ self.a)

    def merged(self) -> nn.Linear:
        rows, columns = self.weight.shape
        linear = nn.Linear(columns, rows, bias=self.bias is not None, device=self.weight.device)
        linear.weight, linear.bias = nn.Parameter(self.changed().detach()), self.bias
        return linear


Tuning = Everything | HeadOnly | LowRank


def alike(name: str) -> Pace:
    return Pace()


def check_labelled(learner: Learner) -> None:
    if not learner.labelled:
        raise BadInput("layer_decay, head_first and tuning are for fine-tuning with labels: use objective=supervised")


def freeze(learner: Learner) -> None:
    """Let nothing but the logits learn."""
    check_labelled(learner)
    for name, parameter in learner.named_parameters():
        parameter.requires_grad_(LOGITS in name)


def merge(learner: nn.Module) -> None:
    """Put every change into its matrix, which is then an ordinary one again."""
    for name, module in list(learner.named_modules()):
        if isinstance(module, Changed):
            learner.set_submodule(name, module.merged())


def block_of(name: str) -> int:
    """The number of the block that a weight belongs to, from 1; 0 for what comes before them."""
    found = re.search(r"(^|\.)blocks\.(\d+)\.", name)
    return int(found[2]) + 1 if found else 0
