"""What cannot be built is refused in one line that names the settings that clash."""

from dataclasses import replace

import pytest
import torch
from kinds import (
    ATTENTIONS,
    CLASSES,
    TOKENS,
    each,
    kind_id,
    names_of,
    refusal,
    small_attention,
    small_multiscale,
    small_tokens,
    small_vit,
)
from kinds import some_pictures as pictures_of

from vitlab.errors import BadInput
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Locality, Softmax, Uniform
from vitlab.model.blocks import Block
from vitlab.model.multiscale import LateClassToken, MeanJoin
from vitlab.model.positions import Rotary, Sinusoidal1d, Sinusoidal2d
from vitlab.model.tokens import ConvPatches, ConvStem, HalvingStem, SeveralScales

SHAPE = Shape(1, 12, 18)


REFUSED = {
    "patch does not divide": (small_vit(tokens=ConvPatches(5)), ["patches of 5", "12×18", "1, 2, 3, 6"]),
    "patch divides one side only": (small_vit(tokens=ConvPatches(4)), ["patches of 4", "12×18"]),
    "patch of zero": (small_vit(tokens=ConvPatches(0)), ["patches of 0", "1, 2, 3, 6"]),
    "patch below zero": (small_vit(tokens=ConvPatches(-2)), ["patches of -2"]),
    "patch larger than the picture": (small_vit(tokens=ConvPatches(36)), ["patches of 36"]),
    "no scales": (small_vit(tokens=SeveralScales(())), ["several-scales", "patch"]),
    "a scale does not divide": (small_vit(tokens=SeveralScales((6, 9))), ["patches of 9"]),
    "stem without channels": (small_vit(tokens=ConvStem(6, 0)), ["conv stem", "channel", "0"]),
    "heads do not divide": (small_vit(tokens=ConvPatches(6), attention=Softmax(heads=5)), ["5 heads", "width of 16"]),
    "no heads": (small_vit(tokens=ConvPatches(6), attention=Softmax(heads=0)), ["0 heads", "width of 16"]),
    "heads below zero": (small_vit(tokens=ConvPatches(6), attention=Softmax(heads=-2)), ["-2 heads"]),
    "rotary and uniform": (
        small_vit(tokens=ConvPatches(6), attention=Uniform(), positions=Rotary()),
        ["positions rotary", "attention uniform"],
    ),
    "rotary and narrow heads": (
        small_vit(tokens=ConvPatches(6), attention=Softmax(heads=8), positions=Rotary()),
        ["positions rotary", "width / heads", "4 divides", "not 2"],
    ),
    "rotary base": (small_vit(tokens=ConvPatches(6), positions=Rotary(base=0)), ["base", "rotary", "above 0"]),
    "sinusoidal-2d width": (
        small_vit(width=18, tokens=ConvPatches(6), positions=Sinusoidal2d()),
        ["positions sinusoidal-2d", "4 divides", "not 18"],
    ),
    "linformer squeezed to nothing": (
        small_vit(tokens=ConvPatches(6), attention=Linformer(heads=2, k=0)),
        ["linformer", "k", "at least 1", "0"],
    ),
    "no mlp": (small_vit(tokens=ConvPatches(6), block=Block(mlp=0.0)), ["MLP", "0.0 widths", "width 16"]),
    "mlp below zero": (small_vit(tokens=ConvPatches(6), block=Block(mlp=-1.0)), ["MLP", "-1.0"]),
    "no width": (small_vit(width=0, tokens=ConvPatches(6)), ["width", "1 or more", "0"]),
    "depth below zero": (small_vit(depth=-1, tokens=ConvPatches(6)), ["depth", "0 or more", "-1"]),
    "registers below zero": (small_vit(registers=-1, tokens=ConvPatches(6)), ["registers", "0 or more", "-1"]),
    "across the batch and linformer": (
        small_vit(across="batch", tokens=ConvPatches(6), attention=Linformer(heads=2)),
        ["across batch", "attention linformer"],
    ),
    "across the batch and locality": (
        small_vit(across="batch", tokens=ConvPatches(6), attention=Locality(heads=2)),
        ["across batch", "attention locality"],
    ),
    "across the batch and rotary": (
        small_vit(across="batch", tokens=ConvPatches(6), positions=Rotary()),
        ["across batch", "positions rotary"],
    ),
    "across the batch and shift": (
        small_vit(across="batch", tokens=ConvPatches(6), block=Block(shift=4)),
        ["across batch", "shift"],
    ),
    "copies of zero": (small_vit(tokens=ConvPatches(6), copies=True, start="zero"), ["copies", "start"]),
    "shift of no equal groups": (
        small_vit(tokens=ConvPatches(6), block=Block(shift=5)),
        ["shift", "4 equal groups", "5", "16"],
    ),
    "shift of three groups": (small_vit(width=12, tokens=ConvPatches(6), block=Block(shift=3)), ["shift", "3"]),
    "halving to three": (small_vit(tokens=HalvingStem(3)), ["halves", "2, 4, 8", "not 3"]),
    "halving to one": (small_vit(tokens=HalvingStem(1)), ["halves", "2, 4, 8", "not 1"]),
    "halving without a channel": (small_vit(tokens=HalvingStem(2, channels=0)), ["halves", "channel", "0 and 1"]),
    "halving again and again": (small_vit(tokens=HalvingStem(2, again=-1)), ["halves", "32 and -1"]),
    "multi-scale without scales": (small_multiscale(patches=()), ["multi-scale", "patch"]),
    "multi-scale that does not divide": (small_multiscale(patches=(6, 4)), ["patches of 4", "12×18"]),
    "scales and heads": (
        small_multiscale(patches=(3, 6), attention=Softmax(heads=3)),
        ["3 heads", "2 scales"],
    ),
    "multi-scale without heads": (small_multiscale(patches=(3, 6), attention=Softmax(heads=0)), ["0 heads"]),
    "multi-scale heads and width": (
        small_multiscale(patches=(3, 6), attention=Softmax(heads=6)),
        ["3 heads", "width of 16"],
    ),
    "multi-scale width": (small_multiscale(width=-4, patches=(3, 6)), ["width", "1 or more"]),
    "multi-scale rotary and uniform": (
        small_multiscale(patches=(3, 6), attention=Uniform(), positions=Rotary(), join=MeanJoin()),
        ["positions rotary", "attention uniform"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_clashes_is_refused_by_name(name: str) -> None:
    model, words = REFUSED[name]
    text = refusal(lambda: model.build(SHAPE, CLASSES))
    assert all(word in text for word in words), text


@pytest.mark.parametrize("model", [small_vit(), small_multiscale()], ids=["vit", "multi-scale"])
@pytest.mark.parametrize("classes", [0, -3])
def test_a_model_needs_a_class(model, classes: int) -> None:
    assert "classes" in refusal(lambda: model.build(Shape(1, 8, 8), classes))


def test_locality_needs_a_second_token() -> None:
    one_patch = small_vit(tokens=ConvPatches(8), attention=Locality(heads=2), positions=Sinusoidal1d())
    assert (
        one_patch.build(Shape(1, 8, 8), CLASSES)(pictures_of(1, Shape(1, 8, 8))).isfinite().all()
    )  # and a class token
    text = refusal(lambda: small_multiscale(patches=(4, 8), attention=Locality(heads=2)).build(Shape(1, 8, 8), CLASSES))
    assert "locality" in text
    assert "2 tokens" in text


@each(TOKENS)
def test_every_tokenizer_refuses_patches_that_do_not_divide(kind) -> None:
    for side in (5, 0, -1):
        text = refusal(lambda side=side: small_tokens(kind, side).build(SHAPE, 16))
        assert f"patches of {side}" in text


@each([kind for kind in ATTENTIONS if "heads" in names_of(kind)])
def test_every_attention_with_heads_refuses_those_that_do_not_divide(kind) -> None:
    for heads in (3, 0, -4, 32):
        model = small_vit(tokens=ConvPatches(6), attention=small_attention(kind, heads=heads))
        assert f"{heads} heads" in refusal(lambda model=model: model.build(SHAPE, CLASSES))


def test_rotary_and_a_late_class_token_are_refused_by_name() -> None:
    model = small_multiscale(patches=(3, 6), positions=Rotary(), join=LateClassToken())
    text = refusal(lambda: model.build(SHAPE, CLASSES))
    assert "rotary" in text
    assert "late-class-token" in text
    assert "uniform" not in text


@pytest.mark.parametrize(
    ("block", "name"),
    [
        (Block, {"dropout": 1.5}),
        (Block, {"dropout": -0.1}),
        (Block, {"hidden_dropout": 1.0}),
        (Block, {"hidden_dropout": -0.1}),
        (Block, {"stochastic_depth": 1.0}),
        (Block, {"stochastic_depth": -0.5}),
        (Block, {"epsilon": -1.0}),
        (Softmax, {"dropout": 1.5}),
        (Softmax, {"dropout": -0.5}),
    ],
    ids=str,
)
def test_shares_out_of_range_are_refused(block, name: dict[str, float]) -> None:
    def build() -> None:
        settings = block(**name)
        part = {"block": settings} if block is Block else {"attention": settings}
        torch.manual_seed(0)
        network = small_vit(tokens=ConvPatches(6), **part).build(SHAPE, CLASSES).train()
        network(pictures_of(8, SHAPE))

    text = refusal(build)
    assert next(iter(name)) in text


@pytest.mark.parametrize("model", [small_vit(tokens=ConvPatches(6)), small_multiscale(patches=(3, 6))], ids=kind_id)
def test_a_model_without_blocks_shows_no_maps(model) -> None:
    network = replace(model, depth=0).build(SHAPE, CLASSES)
    for stream in network.maps(pictures_of(2, SHAPE)):
        assert stream.layers == []


@pytest.mark.parametrize("sides", [(0, 4, 4), (1, -4, -4), (1, 10**30, 8)])
def test_no_pictures_have_such_sides(sides: tuple[int, int, int]) -> None:
    with pytest.raises(BadInput, match=r"no pictures are .{5,40}: each has 1 to 67,108,864 numbers"):
        Shape(*sides)


def test_a_width_beyond_a_machines_numbers_is_refused() -> None:
    with pytest.raises(BadInput, match="width must be 1 or more, and below 2³¹, not 1000"):
        small_vit(width=10**40).build(Shape(1, 8, 8), 3)
