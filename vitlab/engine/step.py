"""A whole step as one compiled function: loss, gradient, clipping and optimisers, with no Python between them."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from vitlab.engine import memory
from vitlab.engine.flat import flatten, lay_flat
from vitlab.engine.replay import shapes_of
from vitlab.objectives import Learner


class WholeStep:
    """w ← optimisers(w, clip(∇loss(w))), traced on a batch of each shape and compiled for it.

    The graph is given all that it reads and all that it changes: the weights that learn, as one flat tensor; what the
    optimisers keep of them; the other weights and the buffers, such as a teacher's; and the batch.
    """

    def __init__(self, learner: Learner, optimisers: Sequence[torch.optim.Optimizer], clip: float, bfloat16: bool):
        self.learner, self.clip, self.bfloat16 = learner, clip, bfloat16
        self.optimisers = [flatten(optimiser) for optimiser in optimisers]
        moving = [parameter for optimiser in self.optimisers for parameter in optimiser.parameters]
        names = {parameter: name for name, parameter in learner.named_parameters()}
        self.shapes = {names[parameter]: parameter.shape for parameter in moving}
        self.weights = lay_flat(moving)
        named = chain(learner.named_parameters(), learner.named_buffers())
        self.others = {name: tensor.detach() for name, tensor in named if name not in self.shapes}
        self.compiled: dict[tuple[torch.Size, ...], Callable[..., Any]] = {}

    def compile(self, *batch: Tensor) -> None:
        """Trace and compile; this learns nothing, as it works on copies."""
        memory.keep_freed()
        rates = torch.ones(sum(optimiser.rates for optimiser in self.optimisers))
        given = [tensor.clone() for tensor in (rates, *self.held(), *batch)]
        graph = make_fx(self.learn, {torch.ops.aten.addmm.default: add_after})(*given)
        # A graph of its own never meets other shapes or settings, so nothing need be checked before a call.
        options: dict[str, Any] = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe, "cpp_wrapper": True}
        call = self.compiled[shapes_of(batch)] = torch.compile(graph, dynamic=False, options=options)
        for _ in range(2):
            call(*given)

    def __call__(self, *batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Move the weights by one batch: its loss, its measures, and the norm that its gradient had."""
        call = self.compiled.get(shapes_of(batch), self.learn)
        rates = torch.tensor([rate for optimiser in self.optimisers for rate in optimiser.begin()])
        return call(rates, *self.held(), *batch)

    def held(self) -> list[Tensor]:
        """What a step reads and changes beside its batch, in the order in which `learn` takes it."""
        kept = [tensor for optimiser in self.optimisers for tensor in optimiser.kept]
        return [self.weights, *kept, *self.others.values()]

    def learn(self, rates: Tensor, weights: Tensor, *given: Tensor) -> Any:
        rest = iter(given)
        kept = [[next(rest) for _ in optimiser.kept] for optimiser in self.optimisers]
        others = {name: next(rest) for name in self.others}
        leaf = weights.detach().requires_grad_()
        with torch.autocast(weights.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, measures = functional_call(self.learner, self.named(leaf) | others, tuple(rest))
        (gradient,) = torch.autograd.grad(loss, leaf)
        with torch.no_grad():
            norm = gradient.norm()
            if self.clip:
                gradient = gradient * (self.clip / (norm + 1e-6)).clamp(max=1.0)
            sizes = [sum(optimiser.sizes) for optimiser in self.optimisers]
            numbers = rates.split([optimiser.rates for optimiser in self.optimisers])
            shares = zip(numbers, weights.split(sizes), gradient.split(sizes), kept, strict=True)
            for optimiser, (own, part, slope, states) in zip(self.optimisers, shares, strict=True):
                optimiser.move(own, part, slope, *states)
        return loss.detach(), measures, norm

    def named(self, weights: Tensor) -> dict[str, Tensor]:
        """The learner's weights by their names, of these in flat memory."""
        parts = weights.split([shape.numel() for shape in self.shapes.values()])
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def add_after(bias: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """A product whose bias joins what comes after it in one pass, where addmm would first copy it to every row."""
    product = left @ right
    return (product.float() + bias.float()).to(product.dtype)
