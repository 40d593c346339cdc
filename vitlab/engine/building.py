"""A model is built twice: first on the meta device, where it takes no memory and one that is too large is refused."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from vitlab.errors import BadInput
from vitlab.model import Model, Network, Shape

MOST_TENSORS = 20_000  # of a model; of 1,500 blocks
BYTES = 4  # of a weight


def build(model: Model, shape: Shape, classes: int, weights: Mapping[str, Tensor] | None = None) -> Network:
    """The model with its first weights; one that these weights, or else the memory here, cannot hold is refused."""
    if weights is not None:
        numbers, tensors = sum(each.numel() for each in weights.values()), len(weights)
        where = "the settings describe a larger model than the weights beside them"
    else:
        numbers, tensors = memory() // BYTES, MOST_TENSORS
        where = (
            f"this model cannot be built here: it takes more than {memory() / 2**30:.0f} GiB, or {tensors:,} tensors"
        )
    try:
        with limited(numbers, tensors, where), torch.device("meta"):
            model.build(shape, classes)
        return model.build(shape, classes)
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = (str(error).splitlines() or ["out of memory"])[0]
        raise BadInput(f"this model cannot be built here: {reason[:200]}") from None


def memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def limited(numbers: int, tensors: int, where: str) -> Iterator[None]:
    """Refuse the weight that is one too many, when a module takes it in."""
    left, here = [numbers, tensors], threading.get_ident()

    def count(module: nn.Module, name: str, weight: nn.Parameter | None) -> None:
        if weight is not None and threading.get_ident() == here:  # torch asks for those of all threads
            left[0] -= weight.numel()
            left[1] -= 1
            if min(left) < 0:
                raise BadInput(where)

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()
