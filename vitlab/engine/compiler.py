"""torch.compile: whether it works here, and a model whose parts are compiled."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn

from vitlab.data.words import one_line
from vitlab.model.blocks import BlockLayer
from vitlab.model.tokens import Tokenizer

SHAPES = 256  # of one kind of part that a process may compile: a study has many, and torch would give up at 8


@contextmanager
def hushed() -> Iterator[None]:
    """Keep off the terminal what the compiler says of its own parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
@hushed()
def compiler_trouble(device: str) -> str | None:
    """Why torch.compile does not work here, in one line; None where it does."""
    try:
        torch.compile(double)(torch.ones(3, device=device))
    except Exception as problem:  # whatever a tool chain may raise
        return one_line(problem)
    return None


def double(numbers: torch.Tensor) -> torch.Tensor:
    return numbers * 2


def in_compiled_parts(module: nn.Module) -> nn.Module:
    """The same weights, with each block and tokenizer compiled: blocks alike are compiled once, not once for each."""
    if isinstance(module, BlockLayer | Tokenizer):
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, SHAPES)
        return torch.compile(module, dynamic=False)  # type: ignore[return-value]
    twin = copy.copy(module)
    twin._modules = {name: part if part is None else in_compiled_parts(part) for name, part in module._modules.items()}
    return twin
