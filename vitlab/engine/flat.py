"""Optimisers over flat memory: all weights of one are one tensor, so that a whole step can be one graph."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from vitlab.engine.muon import MOMENTUM, Orthogonal, moves


class Flat:
    """An optimiser whose weights lie in one flat tensor, and what it keeps of them in as many as there are kinds.

    They stay where the model and the optimiser keep them, so a checkpoint is the same as without this.
    """

    rates: ClassVar[int]  # numbers that a step is given, as they differ from one to the next

    def __init__(self, optimiser: torch.optim.Optimizer, kept: Sequence[Iterable[Tensor]]):
        self.groups = optimiser.param_groups
        self.parameters: list[nn.Parameter] = parameters_of(optimiser)
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.kept = [lay_flat(tensors) for tensors in kept]

    def begin(self) -> tuple[float, ...]:
        """Count a step, and give its numbers."""
        raise NotImplementedError

    def move(self, rates: Tensor, weights: Tensor, gradient: Tensor, *kept: Tensor) -> None:
        """Move the weights, and what is kept of them, in place."""
        raise NotImplementedError


class FlatAdamW(Flat):
    """w ← w − η(m̂ / (√v̂ + ε) + λw), in torch's order."""

    rates = 3

    def __init__(self, optimiser: torch.optim.AdamW):
        states = [state_of(optimiser, parameter) for parameter in parameters_of(optimiser)]
        super().__init__(optimiser, [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq")])
        self.steps = lay_flat(state["step"] for state in states)
        decays = [group["weight_decay"] for group in self.groups for _ in group["params"]]
        self.decay = torch.tensor(decays).repeat_interleave(torch.tensor(self.sizes))

    def begin(self) -> tuple[float, ...]:
        """η, η / (1 − β₁ᵗ) and √(1 − β₂ᵗ): made here, as a compiled loop would make them anew for every weight."""
        self.steps += 1
        step, rate, (beta1, beta2) = float(self.steps[0]), self.groups[0]["lr"], self.groups[0]["betas"]
        return rate, rate / (1 - beta1**step), (1 - beta2**step) ** 0.5

    def move(self, rates: Tensor, weights: Tensor, gradient: Tensor, *kept: Tensor) -> None:
        (beta1, beta2), epsilon = self.groups[0]["betas"], self.groups[0]["eps"]
        (rate, length, spread), (first, second) = rates.unbind(), kept
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        weights.mul_(1 - rate * self.decay).sub_(length * first / (second.sqrt() / spread + epsilon))


class FlatMuon(Flat):
    """W ← (1 − ηλ)W − η·√max(1, rows/columns)·orthogonal(g + μ(m − g)), as `Orthogonal` does it."""

    rates = 1

    def __init__(self, optimiser: Orthogonal):
        super().__init__(optimiser, [[optimiser.memory(matrix) for matrix in parameters_of(optimiser)]])

    def begin(self) -> tuple[float, ...]:
        return (self.groups[0]["lr"],)

    def move(self, rates: Tensor, weights: Tensor, gradient: Tensor, *kept: Tensor) -> None:
        (rate,), (momentum,) = rates.unbind(), kept
        momentum.lerp_(gradient, 1 - MOMENTUM)
        ahead = iter(gradient.lerp(momentum, MOMENTUM).split(self.sizes))
        turned = list[Tensor]()
        for group in self.groups:
            turned += moves([next(ahead).view(matrix.shape) for matrix in group["params"]], rate, group["parts"])
        weights.mul_(1 - rate * self.groups[0]["weight_decay"]).add_(torch.cat([move.flatten() for move in turned]))


def flatten(optimiser: torch.optim.Optimizer) -> Flat:
    """The same optimiser over flat memory."""
    if isinstance(optimiser, Orthogonal):
        return FlatMuon(optimiser)
    assert isinstance(optimiser, torch.optim.AdamW)
    return FlatAdamW(optimiser)


def parameters_of(optimiser: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimiser.param_groups for parameter in group["params"]]


def state_of(optimiser: torch.optim.AdamW, parameter: nn.Parameter) -> dict[str, Tensor]:
    """The optimiser's memory of a parameter, begun as torch begins it where there is none yet."""
    state = optimiser.state[parameter]
    if not state:
        moments = {name: torch.zeros_like(parameter, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
        state |= {"step": torch.zeros(()), **moments}
    return state


def lay_flat(tensors: Iterable[Tensor]) -> Tensor:
    """One flat tensor of what these hold; each becomes a view into it."""
    found = list(tensors)
    flat = torch.cat([tensor.detach().flatten() for tensor in found])
    for tensor, part in zip(found, flat.split([tensor.numel() for tensor in found]), strict=True):
        tensor.data = part.view(tensor.shape)
    return flat
