"""What a model costs: the arithmetic of one picture."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from vitlab.engine.modes import in_evaluation
from vitlab.model import Network
from vitlab.model.blocks import BlockLayer

FUSED_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def flops(network: Network) -> int:
    """Floating-point operations of one picture's forward: 2 for each multiply-add of products and convolutions.

    Norms, activations and additions are left out, as is usual: they are a few in a hundred.
    """
    return counted(network).get_total_flops()


def counted(network: Network) -> FlopCounterMode:
    """A counter that has watched one picture pass."""
    shape, device = network.shape, next(network.parameters()).device
    counter = FlopCounterMode(display=False, custom_mapping={FUSED_ON_CPU: attention_flops})
    with in_evaluation(network), torch.no_grad(), counter:
        network(torch.zeros(1, shape.channels, shape.height, shape.width, device=device))
    return counter


def block_share(network: Network) -> float:
    """The share of a picture's operations that is done in blocks of attention and MLP."""
    blocks = [name for name, part in network.named_modules() if isinstance(part, BlockLayer)]
    found = {name: sum(counts.values()) for name, counts in counted(network).get_flop_counts().items()}
    return sum(found[f"{type(network).__name__}.{name}"] for name in blocks) / found["Global"]


def attention_flops(queries: Sequence[int], keys: Sequence[int], values: Sequence[int], *_: Any, **__: Any) -> int:
    """QKᵀ and A·V by the shapes (b, h, n, e), (b, h, m, e), (b, h, m, v): 2·b·h·n·m·(e + v)."""
    *many, tokens, width = queries
    return 2 * math.prod(many) * tokens * keys[-2] * (width + values[-1])
