"""Other people's libraries, loaded only where they are asked for: timm, transformers, torchvision."""

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch


def foreign(name: str) -> Any:
    """Import a module of an optional library, with its warnings about its own optional parts left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if find_spec("torchvision") is not None:
            mend_torchvision()
        return import_module(name)


@cache
def mend_torchvision() -> torch.library.Library | None:
    """Declare the two operators without which torchvision's CUDA build does not import beside a CPU torch."""
    try:
        import_module("torchvision")
    except (RuntimeError, OSError):
        operators = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        for name in [module for module in sys.modules if module.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        return operators
    return None
