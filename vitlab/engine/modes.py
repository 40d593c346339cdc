"""Training and evaluation modes that are left as they were found, layer by layer."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Afterwards every layer is in the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[None]:
    """Every layer in evaluation mode, and back."""
    with modes_kept(model):
        model.eval()
        yield
