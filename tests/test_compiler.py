"""Compiling a model by its parts."""

from functools import partial

import pytest
import torch
from kinds import build, small_vit, some_pictures
from torch._dynamo.testing import CompileCounter

from vitlab.engine.compiler import in_compiled_parts

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # the compiler's own question


def test_the_ninth_model_of_a_process_is_compiled_like_the_first(monkeypatch):
    """torch gives up on a function that it has compiled for eight shapes, and calls it plain from there on."""
    counted = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counted))
    for width in range(8, 80, 8):
        network = build(small_vit(width=width, depth=1))
        pictures = some_pictures(2)
        assert torch.equal(in_compiled_parts(network)(pictures), network(pictures))
    assert counted.frame_count == 9 * 2  # a tokenizer and a block each
