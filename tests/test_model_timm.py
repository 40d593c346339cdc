"""The same numbers as timm's VisionTransformer, logits and gradients, once the weights are copied across."""

from dataclasses import replace

import pytest
import torch
from kinds import CLASSES, SHAPE, build, small_vit, some_pictures
from test_model_parity import BATCH, compare, run_backward
from timm_reference import gradient, timm_twin

from vitlab.model import Shape
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, Mean
from vitlab.model.tokens import ConvPatches

TIMM_CASES = {
    "class-token": (small_vit(), SHAPE),
    "mean": (small_vit(head=Mean()), SHAPE),
    "class-token-registers": (small_vit(registers=3), SHAPE),
    "mean-registers": (small_vit(head=Mean(), registers=2), SHAPE),
    "layer-scale": (small_vit(block=Block(layer_scale=0.3)), SHAPE),
    "relu": (small_vit(block=Block(activation="relu", mlp=2.0)), SHAPE),
    "rms-qk-norm": (small_vit(block=Block(norm_kind="rms"), attention=Softmax(heads=2, qk_norm=True)), SHAPE),
    "no-bias": (small_vit(attention=Softmax(heads=4, bias=False)), SHAPE),
    "no-final-norm": (small_vit(head=ClassToken(), final_norm=False), SHAPE),
    "patch-7": (small_vit(tokens=ConvPatches(7), width=24, attention=Softmax(heads=3)), Shape(1, 28, 28)),
    "tall": (small_vit(), Shape(5, 20, 8)),
}


@pytest.mark.parametrize("case", TIMM_CASES)
def test_the_model_is_timms(case: str) -> None:
    settings, shape = TIMM_CASES[case]
    settings = replace(settings, depth=3)
    ours = build(settings, shape)
    theirs, pairs = timm_twin(settings, shape, CLASSES, ours)
    pictures = some_pictures(BATCH, shape)
    direction = torch.randn(BATCH, CLASSES)
    ours_out, ours_in = run_backward(ours, pictures, direction)
    their_out, their_in = run_backward(theirs, pictures, direction)
    compare(ours_out, their_out, "logits")
    compare(ours_in, their_in, "gradient at the pictures")
    for name, parameter in ours.named_parameters():
        compare(parameter.grad, gradient(pairs[name]).view_as(parameter), f"gradient of {name}")
    with torch.inference_mode():
        compare(ours.eval()(pictures), theirs.eval()(pictures), "evaluation")
