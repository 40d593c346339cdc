"""Heads: how the last tokens are read, and the logits made of what was read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vitlab.model.layout import Layout


@dataclass(frozen=True)
class ClassToken:
    """logits = W·z₀ + b, z₀ a learned token put before the patches (Dosovitskiy et al., 2021)."""

    kind: ClassVar[str] = "class-token"
    own_tokens: ClassVar[int] = 1

    def build(self, width: int, classes: int, layout: Layout) -> "Reader":
        return Reader(width, classes, first=0, last=1)


@dataclass(frozen=True)
class FirstToken:
    """logits = W·z₁ + b, z₁ the first patch: what report R1 read in place of a class token."""

    kind: ClassVar[str] = "first-token"
    own_tokens: ClassVar[int] = 0

    def build(self, width: int, classes: int, layout: Layout) -> "Reader":
        return Reader(width, classes, first=layout.extra, last=layout.extra + 1)


@dataclass(frozen=True)
class Mean:
    """logits = W·mean(z₁ … zₙ) + b, over the patches and not the registers."""

    kind: ClassVar[str] = "mean"
    own_tokens: ClassVar[int] = 0

    def build(self, width: int, classes: int, layout: Layout) -> "Reader":
        return Reader(width, classes, first=layout.extra, last=None)


@dataclass(frozen=True)
class SequencePool:
    """logits = W·Σ αᵢzᵢ + b, α = softmax(w·z₁ … w·zₙ): patches weigh as much as they ask for (Hassani et al., 2021)."""

    kind: ClassVar[str] = "sequence-pool"
    own_tokens: ClassVar[int] = 0

    def build(self, width: int, classes: int, layout: Layout) -> "Reader":
        return PoolReader(width, classes, first=layout.extra, last=None)


@dataclass(frozen=True)
class Distilled:
    """logits = W·[z₀; z₁] + b, z₀ a class and z₁ a distillation token (DeiT; Touvron et al., 2021).

    The mean of two heads is one: ½(W₀z₀ + b₀ + W₁z₁ + b₁) = ½[W₀, W₁]·[z₀; z₁] + ½(b₀ + b₁).
    """

    kind: ClassVar[str] = "distilled"
    own_tokens: ClassVar[int] = 2

    def build(self, width: int, classes: int, layout: Layout) -> "Reader":
        return PairReader(2 * width, classes, first=0, last=2)


class Reader(nn.Module):
    """Reads the tokens from `first` up to `last`, or all from there on: their mean, then a Linear."""

    def __init__(self, features: int, classes: int, first: int, last: int | None):
        super().__init__()
        self.read = slice(first, last)  # the tokens it looks at
        self.logits = nn.Linear(features, classes)

    def forward(self, read: Tensor) -> Tensor:
        """The tokens in `read` (b, m, d) → logits (b, classes)."""
        return self.logits(self.pool(read))

    def pool(self, read: Tensor) -> Tensor:
        """The tokens in `read` (b, m, d) → the picture's features (b, d)."""
        return read[:, 0] if read.shape[1] == 1 else read.mean(dim=1)


class PairReader(Reader):
    """Reads two tokens, side by side."""

    def pool(self, read: Tensor) -> Tensor:
        return read.flatten(1)


class PoolReader(Reader):
    """Reads all patches, each as much as a learned direction asks for; at first, all alike."""

    def __init__(self, features: int, classes: int, first: int, last: int | None):
        super().__init__(features, classes, first, last)
        self.ask = nn.Parameter(torch.zeros(1, features))  # a bias would be taken away by the softmax

    def pool(self, read: Tensor) -> Tensor:
        return (self.shares(read).unsqueeze(1).to(read.dtype) @ read)[:, 0]

    def shares(self, read: Tensor) -> Tensor:
        """The tokens in `read` (b, m, d) → how much each counts (b, m), in all 1."""
        return (read @ self.ask.mT.to(read.dtype)).squeeze(-1).softmax(dim=-1)


Output = Literal["logits", "log-softmax", "softmax"]
# Cross-entropy takes the log-softmax itself: of log-probabilities it makes the same, of probabilities it makes
# log-softmax(p), whose loss cannot fall below log(e + classes − 1) − 1 (report R1).
OUTPUTS: dict[Output, Callable[[Tensor], Tensor]] = {
    "logits": lambda logits: logits,
    "log-softmax": lambda logits: logits.log_softmax(dim=-1),
    "softmax": lambda logits: logits.softmax(dim=-1),
}

Head = ClassToken | FirstToken | Mean | SequencePool | Distilled
