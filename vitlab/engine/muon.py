"""Muon: momentum made orthogonal, for all matrices of one shape at once."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
# p(x) = ax + bx³ + cx⁵ pulls every singular value towards 1, fastest near 0 (Jordan et al., 2024).
COEFFICIENTS = (3.4445, -4.775, 2.0315)
STEPS = 5


class Orthogonal(torch.optim.Optimizer):
    """W ← (1 − ηλ)W − η·√max(1, rows/columns)·orthogonal(g + μ(m − g)), m ← m + (1 − μ)(g − m).

    What torch.optim.Muon does, but in one batched product for all matrices of a shape rather than fifteen small ones
    for each, and with a learning rate that may lie on the device, so that a CUDA graph can record the step. A group's
    `parts` says how many matrices lie below one another in each of its parameters.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter] | list[dict[str, Any]], learning_rate: float, weight_decay: float
    ):
        super().__init__(parameters, {"lr": learning_rate, "weight_decay": weight_decay, "parts": 1})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Move every matrix that has a gradient; there is nothing to evaluate anew, so a closure is not taken."""
        assert closure is None
        for group in self.param_groups:
            matrices = [p for p in group["params"] if p.grad is not None]
            if not matrices:
                continue
            gradients = [p.grad for p in matrices]
            memories = [self.memory(p) for p in matrices]
            torch._foreach_lerp_(memories, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, memories, MOMENTUM)
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(matrices, moves(ahead, group["lr"], group["parts"]))

    def memory(self, matrix: Tensor) -> Tensor:
        state = self.state[matrix]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        found: Tensor = state["momentum_buffer"]
        return found


def moves(ahead: Sequence[Tensor], rate: float | Tensor, parts: int) -> list[Tensor]:
    """−η·√max(1, rows/columns)·orthogonal(m) of each matrix m, or of the `parts` below one another in it."""
    found = list(ahead)
    for shape in dict.fromkeys(matrix.shape for matrix in ahead):
        places = [i for i, matrix in enumerate(ahead) if matrix.shape == shape]
        rows, columns = shape[0] // parts, shape[1:].numel()
        stacked = torch.stack([ahead[i] for i in places]).bfloat16()
        turned = orthogonal(stacked.view(-1, rows, columns)).float()
        turned = turned * (-rate * max(1, rows / columns) ** 0.5)
        for i, move in zip(places, turned.view(-1, *shape).unbind(), strict=True):
            found[i] = move
    return found


def orthogonal(matrices: Tensor) -> Tensor:
    """(m, r, c) → U·p(…p(S))·Vᵀ of each matrix U·S·Vᵀ: the same directions, every singular value near 1."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x
