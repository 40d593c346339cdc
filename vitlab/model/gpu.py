"""Our own kernels: where they run, and how they are found."""

import os
import shutil
import sysconfig
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def builds() -> bool:
    """Whether Triton is here with what it needs: it has a C compiler build what starts a kernel, by Python's headers.

    It comes with torch where there may be a GPU; a small container often has neither of the two.
    """
    scheme = sysconfig.get_default_scheme()
    folders = sysconfig.get_paths("posix_prefix" if scheme == "posix_local" else scheme)  # where Debian keeps headers
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return bool(find_spec("triton") and compiler) and Path(folders["include"], "Python.h").exists()


TRITON = builds()


HALVES = (torch.bfloat16, torch.float16)


def takes(x: Tensor) -> bool:
    """Whether our kernels are for this: 16 bits, on a GPU; everything else goes torch's way."""
    return x.is_cuda and x.dtype in HALVES and TRITON


def multiplies(x: Tensor) -> bool:
    """Whether they are for a product of this by a matrix, which autocast makes one of 16 bits."""
    cast = x.is_cuda and torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") in HALVES
    return takes(x) or (cast and TRITON)


def kernel(module: str, name: str) -> Any:
    return getattr(import_module(f"vitlab.model.{module}"), name)  # only now: it needs Triton
