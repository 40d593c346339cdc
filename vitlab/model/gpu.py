"""Our own kernels: where they run, and how they are found."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None  # it comes with torch where there may be a GPU


def takes(x: Tensor) -> bool:
    """Whether our kernels are for this: 16 bits, on a GPU; everything else goes torch's way."""
    return x.is_cuda and x.dtype in (torch.bfloat16, torch.float16) and TRITON


def kernel(module: str, name: str) -> Any:
    return getattr(import_module(f"vitlab.model.{module}"), name)  # only now: it needs Triton
