"""A block's parts: norms, MLP, layer scale, stochastic depth and where dropout falls."""

import math
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kinds import ATTENTIONS, build, choices, each, shake, small_attention, small_multiscale, small_vit, some_pictures
from numpy.typing import NDArray
from torch import Tensor

from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block, BlockLayer, BranchEnd, Mlp, Shift, Stack
from vitlab.model.layout import Grid, Layout

WIDTH = 12
LAYOUT = Layout(0, (Grid(2, 3),))


def make(settings: Block, depth: float = 1.0, attention=None, seed: int = 0) -> BlockLayer:
    torch.manual_seed(seed)
    block = settings.build(WIDTH, attention or Softmax(heads=3), LAYOUT, depth)
    shake(block)
    return block


def some_tokens(count: int = 2) -> Tensor:
    return torch.randn(count, LAYOUT.tokens, WIDTH, generator=torch.Generator().manual_seed(4))


def array(tensor: Tensor) -> NDArray:
    return tensor.detach().double().numpy()


def gelu(x: NDArray) -> NDArray:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def silu(x: NDArray) -> NDArray:
    return x / (1 + np.exp(-x))


ACTIVATIONS = {"gelu": gelu, "relu": lambda x: np.maximum(x, 0), "swiglu": silu}


def normalised(x: NDArray, norm, kind: str, epsilon: float) -> NDArray:
    if kind == "rms":
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + epsilon) * array(norm.weight)
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt(x.var(axis=-1, keepdims=True) + epsilon) * array(norm.weight) + array(norm.bias)


def perceptron(x: NDArray, mlp: Mlp, activation: str) -> NDArray:
    features = x @ array(mlp.enter.weight).T + array(mlp.enter.bias)
    if activation == "swiglu":
        half = features.shape[-1] // 2
        features = silu(features[..., :half]) * features[..., half:]
    else:
        features = ACTIVATIONS[activation](features)
    return features @ array(mlp.leave.weight).T + array(mlp.leave.bias)


@pytest.mark.parametrize("activation", choices(Block, "activation"))
@pytest.mark.parametrize("norm_kind", choices(Block, "norm_kind"))
@pytest.mark.parametrize("norm", choices(Block, "norm"))
def test_a_block_is_its_equation(norm: str, norm_kind: str, activation: str) -> None:
    """In NumPy float64, the attention taken from torch: it has tests of its own."""
    settings = Block(norm=norm, norm_kind=norm_kind, activation=activation, mlp=2.0, layer_scale=0.4, epsilon=1e-3)
    block, tokens = make(settings), some_tokens()

    def attend(x: NDArray) -> NDArray:
        return array(block.attention(torch.from_numpy(x).float())) * array(block.end_attention.scale)

    def think(x: NDArray) -> NDArray:
        return perceptron(x, block.mlp, activation) * array(block.end_mlp.scale)

    def first(x: NDArray) -> NDArray:
        return normalised(x, block.norm_attention, norm_kind, 1e-3)

    def second(x: NDArray) -> NDArray:
        return normalised(x, block.norm_mlp, norm_kind, 1e-3)

    x = array(tokens)
    if norm == "before":
        x = x + attend(first(x))
        x = x + think(second(x))
    elif norm == "after":
        x = first(x + attend(x))
        x = second(x + think(x))
    elif norm == "between":
        x = second(x + attend(first(x)))
        x = x + think(x)
    else:
        x = x + attend(x)
        x = x + think(x)
    np.testing.assert_allclose(array(block(tokens)), x, atol=1e-5)


@pytest.mark.parametrize("width", [16, 64, 96, 192])
@pytest.mark.parametrize("mlp", [2.0, 4.0])
def test_swiglu_weighs_as_much_as_the_plain_mlp(width: int, mlp: float) -> None:
    def matrices(activation: str) -> int:
        return sum(
            p.numel()
            for p in Mlp(Block(activation=activation, mlp=mlp), width, Layout(0, ())).parameters()
            if p.ndim == 2
        )

    # Its hidden features are a multiple of 8, so three matrices differ from two by at most 3 · 4 · width.
    assert abs(matrices("swiglu") - matrices("gelu")) <= 12 * width
    assert Mlp(Block(activation="swiglu", mlp=mlp), width, Layout(0, ())).leave.in_features % 8 == 0


def test_layer_scale_starts_at_its_setting_and_is_learned_for_each_feature() -> None:
    block = Block(layer_scale=0.01).build(WIDTH, Softmax(heads=3), LAYOUT, 1.0)
    for end in (block.end_attention, block.end_mlp):
        assert end.scale.tolist() == pytest.approx([0.01] * WIDTH)
        assert end.scale.requires_grad
    assert Block().build(WIDTH, Softmax(heads=3), LAYOUT, 1.0).end_mlp.scale is None


def test_stochastic_depth_skips_whole_pictures_and_keeps_the_expectation() -> None:
    torch.manual_seed(5)
    end, count, skip = BranchEnd(Block(stochastic_depth=0.3), WIDTH, 0.3), 4000, 0.3
    passed = end.train()(torch.ones(count, 2, WIDTH))
    assert (passed == passed[:, :1, :1]).all(), "a picture passes whole or not at all"
    values = passed[:, 0, 0]
    kept = values != 0
    torch.testing.assert_close(values[kept], torch.full_like(values[kept], 1 / (1 - skip)))
    spread = (skip * (1 - skip) / count) ** 0.5
    assert abs(kept.double().mean() - (1 - skip)) < 4.5 * spread
    assert abs(values.double().mean() - 1) < 4.5 * spread / (1 - skip)
    assert torch.equal(end.eval()(torch.ones(3, 2, WIDTH)), torch.ones(3, 2, WIDTH))


def test_each_branch_of_a_block_is_skipped_on_its_own() -> None:
    block = make(Block(stochastic_depth=0.5)).train()
    tokens = some_tokens(1).expand(64, -1, -1)
    torch.manual_seed(6)
    output = block(tokens)
    x = tokens[:1]
    outcomes = []
    for attend in (0, 2):  # 1 / (1 − 0.5) where it is kept
        for think in (0, 2):
            y = x + attend * block.attention(block.norm_attention(x))
            outcomes.append(y + think * block.mlp(block.norm_mlp(y)))
    matches = torch.stack([(output - outcome).abs().amax(dim=(1, 2)) < 1e-5 for outcome in outcomes])
    assert (matches.sum(dim=0) == 1).all(), "each picture has one of the four outcomes"
    assert (matches.sum(dim=1) > 4).all(), "and each outcome happens"


def test_stochastic_depth_grows_from_nothing_at_the_first_block_to_its_setting_at_the_last() -> None:
    torch.manual_seed(7)
    stack = Stack(Block(stochastic_depth=0.6), 4, WIDTH, Softmax(heads=3), LAYOUT).train()
    for block, expected in zip(stack, (0.0, 0.2, 0.4, 0.6), strict=True):
        for end in (block.end_attention, block.end_mlp):
            skipped = (end(torch.ones(4000, 1, WIDTH))[:, 0, 0] == 0).double().mean()
            assert abs(skipped - expected) <= 4.5 * (expected * (1 - expected) / 4000) ** 0.5
    (alone,) = Stack(Block(stochastic_depth=0.6), 1, WIDTH, Softmax(heads=3), LAYOUT)
    assert float(alone.end_mlp.skip) == pytest.approx(0.6), "a single block is the last one"


@pytest.mark.parametrize(("end", "hidden"), [(0.4, 0.0), (0.0, 0.3), (0.4, 0.3)])
def test_dropout_falls_at_the_end_of_each_branch_and_hidden_dropout_inside_the_mlp(end: float, hidden: float) -> None:
    """The same draws in the same order, written out."""
    block, tokens = make(Block(dropout=end, hidden_dropout=hidden)).train(), some_tokens()
    torch.manual_seed(8)
    output = block(tokens)
    torch.manual_seed(8)
    x = tokens + F.dropout(block.attention(block.norm_attention(tokens)), end)
    features = F.dropout(F.gelu(block.mlp.enter(block.norm_mlp(x))), hidden)
    expected = x + F.dropout(block.mlp.leave(features), end)
    torch.testing.assert_close(output, expected)
    assert not torch.allclose(output, block(tokens))


@each(ATTENTIONS)
def test_the_blocks_dropout_leaves_queries_keys_and_values_alone(kind) -> None:
    settings = Block(dropout=0.4, hidden_dropout=0.4)
    block, tokens = make(settings, attention=small_attention(kind)).train(), some_tokens()
    assert torch.equal(block.attention(tokens), block.attention(tokens))


def test_nothing_is_dropped_before_the_first_block() -> None:
    settings, pictures = Block(dropout=0.5, hidden_dropout=0.5), some_pictures()
    network = build(small_vit(block=settings)).train()
    whole = torch.cat([network.extra.expand(len(pictures), -1, -1), network.tokens(pictures)], dim=1)
    torch.testing.assert_close(network.embed(pictures), whole + network.positions.table)
    assert not torch.allclose(network(pictures), network(pictures)), "the blocks do drop"
    for scale in build(small_multiscale(block=settings)).train().scales:
        torch.testing.assert_close(scale.embed(pictures), scale.tokens(pictures) + scale.positions.table)


@pytest.mark.parametrize("name", ["dropout", "hidden_dropout", "stochastic_depth"])
def test_evaluation_is_the_same_with_or_without_regularisation(name: str) -> None:
    pictures = some_pictures()
    expected = build(small_vit()).eval()(pictures)
    network = build(small_vit(block=Block(**{name: 0.5})))
    assert torch.equal(network.eval()(pictures), expected)
    assert not torch.allclose(network.train()(pictures), expected)


@pytest.mark.parametrize("norm", choices(Block, "norm"))
@each(ATTENTIONS)
def test_a_blocks_map_is_the_one_its_forward_used(kind, norm: str) -> None:
    block, tokens = make(Block(norm=norm), attention=small_attention(kind)), some_tokens()
    weights = block.map(tokens)
    seen = tokens if norm == "after" else block.norm_attention(tokens)
    mixed = block.attention.join(weights @ block.attention.values(seen))
    if norm == "after":
        middle = block.norm_attention(tokens + mixed)
        expected = block.norm_mlp(middle + block.mlp(middle))
    elif norm == "between":
        middle = block.norm_mlp(tokens + mixed)
        expected = middle + block.mlp(middle)
    else:
        middle = tokens + mixed
        expected = middle + block.mlp(block.norm_mlp(middle))
    torch.testing.assert_close(block(tokens), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [4, 8])
@pytest.mark.parametrize("layout", [Layout(0, (Grid(3, 4),)), Layout(2, (Grid(2, 3), Grid(1, 4)))], ids=["one", "two"])
def test_shift_brings_the_features_of_each_neighbour(layout: Layout, groups: int) -> None:
    """Place by place: the first four groups come from above, below, left and right, and are 0 beyond the edge."""
    tokens = torch.randn(2, layout.tokens, 16, generator=torch.Generator().manual_seed(0))
    expected, size = tokens.clone(), 16 // groups
    start = layout.extra
    for grid in layout.grids:
        for row, column in product(range(grid.rows), range(grid.columns)):
            for group, (y, x) in enumerate(((-1, 0), (1, 0), (0, -1), (0, 1))):
                features = slice(group * size, (group + 1) * size)
                beyond = not (0 <= row + y < grid.rows and 0 <= column + x < grid.columns)
                there = start + (row + y) * grid.columns + column + x
                seen = torch.zeros(2, size) if beyond else tokens[:, there, features]
                expected[:, start + row * grid.columns + column, features] = seen
        start += grid.tokens
    shift = Shift(groups, layout)
    assert torch.equal(shift(tokens), expected)
    assert torch.equal(shift.by_slices(tokens), expected), "as a GPU does it"


def test_the_gradient_of_a_shift_is_that_of_its_differences() -> None:
    shift = Shift(4, Layout(1, (Grid(2, 3),)))
    tokens = torch.randn(1, 7, 8, dtype=torch.double, requires_grad=True, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(shift, tokens)
    assert torch.autograd.gradgradcheck(shift, tokens)


@pytest.mark.parametrize("name", ["above", "class token"])
def test_a_block_that_shifts_reads_the_same_of_some_tokens_as_of_all(name: str) -> None:
    block = make(Block(shift=4)).eval()
    tokens = some_tokens(2)
    read = slice(1, None) if name == "above" else slice(0, 1)
    torch.testing.assert_close(block(tokens, None, read), block(tokens)[:, read])


@pytest.mark.parametrize("norm_kind", choices(Block, "norm_kind"))
def test_norms_with_weights_say_nothing_of_bfloat16(norm_kind: str) -> None:
    """Warnings are failures here: torch has one for an RMSNorm whose weights are of another type than its input."""
    block, tokens = make(Block(norm_kind=norm_kind)), some_tokens().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert block(tokens).isfinite().all()
