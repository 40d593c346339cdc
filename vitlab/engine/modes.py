"""Modes that are left as they were found: training and evaluation, layer by layer, and how products are rounded."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
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


@contextmanager
def float32_products(tf32: bool = False) -> Iterator[None]:
    """Let a GPU round the factors of float32 products and convolutions to 10 bits (TF32) or not; then as it was."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
