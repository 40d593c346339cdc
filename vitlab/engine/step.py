"""A whole step as one compiled function: loss, gradient, clipping and AdamW, with no Python between them."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from vitlab.engine import memory
from vitlab.engine.replay import shapes_of
from vitlab.objectives import Learner


class WholeStep:
    """w, m, v ← AdamW(w, m, v, clip(∇loss(w))), traced on a batch of each shape and compiled for it.

    Weights and moments become views into one flat tensor each, so that clipping and AdamW are one pass over memory.
    They stay where the learner and its optimiser keep them, so a checkpoint is the same as without this.
    """

    def __init__(self, learner: Learner, optimiser: torch.optim.AdamW, clip: float, bfloat16: bool):
        self.learner, self.clip, self.bfloat16 = learner, clip, bfloat16
        self.groups = optimiser.param_groups
        parameters = [parameter for group in self.groups for parameter in group["params"]]
        names = {parameter: name for name, parameter in learner.named_parameters()}
        self.names = [names[parameter] for parameter in parameters]
        self.shapes = [parameter.shape for parameter in parameters]
        states = [state_of(optimiser, parameter) for parameter in parameters]
        self.flat = [lay_flat(parameters)]
        self.flat += [lay_flat(state[name] for state in states) for name in ("exp_avg", "exp_avg_sq")]
        self.steps = lay_flat(state["step"] for state in states)
        decay = [torch.full((p.numel(),), group["weight_decay"]) for group in self.groups for p in group["params"]]
        self.decay = torch.cat(decay)
        self.compiled: dict[tuple[torch.Size, ...], Callable[..., Any]] = {}

    def compile(self, *batch: Tensor) -> None:
        """Trace and compile; this learns nothing, as it works on copies."""
        memory.keep_freed()
        given = [tensor.clone() for tensor in (torch.ones(3), *self.flat, *batch)]
        graph = make_fx(self.learn, {torch.ops.aten.addmm.default: add_after})(*given)
        # A graph of its own never meets other shapes or settings, so nothing need be checked before a call.
        options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe, "cpp_wrapper": True}
        call = self.compiled[shapes_of(batch)] = torch.compile(graph, dynamic=False, options=options)
        for _ in range(2):
            call(*given)

    def __call__(self, *batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Move the weights by one batch: its loss, its measures, and the norm that its gradient had."""
        self.steps += 1
        call = self.compiled.get(shapes_of(batch), self.learn)
        return call(torch.tensor(self.rates(float(self.steps[0]))), *self.flat, *batch)

    def rates(self, step: float) -> tuple[float, float, float]:
        """η, η / (1 − β₁ᵗ) and √(1 − β₂ᵗ): made here, as a compiled loop would make them anew for every weight."""
        rate, (beta1, beta2) = self.groups[0]["lr"], self.groups[0]["betas"]
        return rate, rate / (1 - beta1**step), (1 - beta2**step) ** 0.5

    def learn(self, rates: Tensor, weights: Tensor, first: Tensor, second: Tensor, *batch: Tensor) -> Any:
        leaf = weights.detach().requires_grad_()
        with torch.autocast(weights.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, measures = functional_call(self.learner, self.named(leaf), batch)
        (gradient,) = torch.autograd.grad(loss, leaf)
        with torch.no_grad():
            norm = gradient.norm()
            if self.clip:
                gradient = gradient * (self.clip / (norm + 1e-6)).clamp(max=1.0)
            self.move(rates, weights, gradient, first, second)
        return loss.detach(), measures, norm

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """The learner's weights by their names, of these in flat memory."""
        parts = weights.split([shape.numel() for shape in self.shapes])
        return {name: part.view(shape) for name, part, shape in zip(self.names, parts, self.shapes, strict=True)}

    def move(self, rates: Tensor, weights: Tensor, gradient: Tensor, first: Tensor, second: Tensor) -> None:
        """w ← w − η(m̂ / (√v̂ + ε) + λw), in torch's order."""
        (beta1, beta2), epsilon = self.groups[0]["betas"], self.groups[0]["eps"]
        rate, length, spread = rates.unbind()
        first.lerp_(gradient, 1 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        weights.mul_(1 - rate * self.decay).sub_(length * first / (second.sqrt() / spread + epsilon))


def add_after(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """A product whose bias joins what comes after it in one pass, where addmm would first copy it to every row."""
    product = left @ right
    return (product.float() + bias.float()).to(product.dtype)


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
