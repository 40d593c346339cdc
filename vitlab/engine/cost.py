"""What a model costs: the arithmetic of one picture."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vitlab.chance import Chance
from vitlab.engine.modes import in_evaluation
from vitlab.model import Network
from vitlab.model.blocks import BlockLayer
from vitlab.objectives import Learner

FUSED_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Counter(TorchDispatchMode):
    """Adds up the operations of whatever passes in this thread.

    torch's own counter hooks every module of the process, so that a model at work in another thread stumbles over it.
    """

    def __init__(self, steps: bool = False) -> None:
        """`steps`: what a gradient will be taken of counts three times, since the way back takes twice as many."""
        from torch.utils.flop_counter import flop_registry  # noqa: PLC0415 (it imports Triton, where there is one)

        super().__init__()
        self.formulas, self.total, self.steps = flop_registry, 0, steps

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        words = kwargs or {}
        formula = self.formulas.get(func._overloadpacket)
        if formula is None:
            with self:
                found = func.decompose(*args, **words)  # where it is made of others, which are counted
            if found is not NotImplemented:
                return found
        found = func(*args, **words)
        times = 3 if self.steps and torch.is_grad_enabled() else 1
        if func._overloadpacket is FUSED_ON_CPU:
            self.total += times * attention_flops(*(tensor.shape for tensor in args[:3]))
        elif formula is not None:
            self.total += times * formula(*args, **words, out_val=found)
        return found


def flops(network: Network) -> int:
    """Floating-point operations of one picture's forward: 2 for each multiply-add of products and convolutions.

    Norms, activations and additions are left out, as is usual: they are a few in a hundred.
    """
    counter = Counter()
    show_blank(network, counter)
    return counter.total


def step_flops(learner: Learner, pictures: Tensor, labels: Tensor) -> int:
    """Operations of a step on each of these pictures, by all views of it, and by a teacher that learns nothing."""
    chance = Chance(pictures.device)
    chance.start(0)
    batch, counter = learner.batch(pictures, labels, lambda changed: changed, chance), Counter(steps=True)
    with counter:
        learner(*batch)
    return counter.total // len(pictures)


def show_blank(network: Network, counter: Counter) -> None:
    shape, device = network.shape, next(network.parameters()).device
    with in_evaluation(network), torch.no_grad(), counter:
        network(torch.zeros(1, shape.channels, shape.height, shape.width, device=device))


def block_share(network: Network) -> float:
    """The share of a picture's operations that is done in blocks of attention and MLP."""
    counter, at = Counter(), [0]
    blocks = [part for part in network.modules() if isinstance(part, BlockLayer)]
    hooks = [block.register_forward_pre_hook(lambda *_: at.append(at[-1] - counter.total)) for block in blocks]
    hooks += [block.register_forward_hook(lambda *_: at.append(at[-1] + counter.total)) for block in blocks]
    show_blank(network, counter)
    for hook in hooks:
        hook.remove()
    return at[-1] / counter.total


def attention_flops(queries: Sequence[int], keys: Sequence[int], values: Sequence[int], *_: Any, **__: Any) -> int:
    """QKᵀ and A·V by the shapes (b, h, n, e), (b, h, m, e), (b, h, m, v): 2·b·h·n·m·(e + v)."""
    *many, tokens, width = queries
    return 2 * math.prod(many) * tokens * keys[-2] * (width + values[-1])
