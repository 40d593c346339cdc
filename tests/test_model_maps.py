"""What `maps` shows is what `forward` used, laid where it belongs."""

import pytest
import torch
from kinds import (
    EVERY_MODEL,
    SHAPE,
    TOKENS,
    build,
    each,
    small_multiscale,
    small_tokens,
    small_vit,
    some_pictures,
)
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.model import Maps, Network, VisionTransformer
from vitlab.model.blocks import BlockLayer
from vitlab.model.layout import Grid, Layout
from vitlab.model.multiscale import ClassAttention, MeanJoin
from vitlab.model.tokens import ConvPatches, LinearPatches, SeveralScales

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def block_by_map(block: BlockLayer, tokens: Tensor, weights: Tensor) -> Tensor:
    """A block whose attention is replaced by the matrix product with its map."""
    after = block.place == "after"
    seen = tokens if after else block.norm_attention(tokens)
    tokens = tokens + block.end_attention(block.attention.join(weights @ block.attention.values(seen)))
    if after:
        tokens = block.norm_attention(tokens)
        return block.norm_mlp(tokens + block.end_mlp(block.mlp(tokens)))
    if block.place == "between":
        tokens = block.norm_mlp(tokens)
        return tokens + block.end_mlp(block.mlp(tokens))
    return tokens + block.end_mlp(block.mlp(block.norm_mlp(tokens)))


def logits_by_maps(network: Network, pictures: Tensor, streams: list[Maps]) -> Tensor:
    if isinstance(network, VisionTransformer):
        tokens = network.embed(pictures)
        for block, weights in zip(network.blocks, streams[0].layers, strict=True):
            tokens = block_by_map(block, tokens, weights)
        return network.head(network.norm(tokens)[:, network.head.read])
    scales = []
    for scale, stream in zip(network.scales, streams[:2], strict=True):
        tokens = scale.positions(scale.tokens(pictures))
        for block, weights in zip(scale.blocks, stream.layers, strict=True):
            tokens = block_by_map(block, tokens, weights)
        scales.append(tokens)
    if len(streams) == 2:
        return network.join(scales)
    tokens = torch.cat([network.join.extra.expand(len(pictures), -1, -1), *scales], dim=1)
    tokens = block_by_map(network.join.blocks[0], tokens, streams[2].layers[0])
    return network.join.head(network.join.norm(tokens)[:, network.join.head.read])


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_logits_made_from_the_maps_are_the_models(model) -> None:
    network, pictures = build(model).eval(), some_pictures(2)
    streams = network.maps(pictures)
    if getattr(model, "across", "tokens") == "batch":
        assert streams == [], "pictures attend to pictures: no map lies on one"
        return
    torch.testing.assert_close(logits_by_maps(network, pictures, streams), network.logits(pictures), **CLOSE)


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_maps_have_the_shapes_of_their_layout(model) -> None:
    network = build(model).eval()
    for stream in network.maps(some_pictures(2)):
        count = stream.layout.tokens
        assert len(stream.layers) in (1, 2)
        for layer in stream.layers:
            assert layer.shape == (2, layer.shape[1], count, count)
            for grid, laid in zip(stream.layout.grids, stream.layout.on_grids(layer), strict=True):
                assert laid.shape == (2, layer.shape[1], count, grid.rows, grid.columns)


def test_the_joins_maps_cover_every_scale() -> None:
    pictures = some_pictures(2)
    streams = build(small_multiscale(join=MeanJoin())).eval().maps(pictures)
    assert [stream.layout for stream in streams] == [Layout(0, (Grid(2, 4),)), Layout(0, (Grid(1, 2),))]
    *scales, joined = build(small_multiscale(join=ClassAttention())).eval().maps(pictures)
    assert len(scales) == 2
    assert joined.layout == Layout(1, (Grid(2, 4), Grid(1, 2)))


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_trace_ends_in_the_models_answer(model) -> None:
    network, pictures = build(model).eval(), some_pictures(2)
    if getattr(model, "across", "tokens") == "batch":
        with pytest.raises(BadInput, match="across the batch"):
            network.trace(pictures)
        return
    stream = network.trace(pictures)
    assert [len(part.tokens) for part in stream.all()] == [len(part.blocks) + 1 for part in stream.all()]
    torch.testing.assert_close(network.finish(stream.tokens[-1]), network.logits(pictures), **CLOSE)
    torch.testing.assert_close(network.lens(stream)[-1], network.logits(pictures), **CLOSE)
    for part in stream.all():
        for block, entered, left in part.steps():
            by_map = block.through(entered, block.map(entered, part.rotation))
            torch.testing.assert_close(by_map, left, **CLOSE)


def test_on_grids_lays_each_patch_in_its_row_and_column() -> None:
    layout = Layout(2, (Grid(2, 3), Grid(1, 2)))
    for token in range(layout.tokens):
        read = torch.zeros(1, 1, layout.tokens)
        read[..., token] = 1
        lit = [laid[0, 0].nonzero().tolist() for laid in layout.on_grids(read)]
        expected: list[list[list[int]]] = [[], []]
        if 2 <= token < 8:
            expected[0] = [[(token - 2) // 3, (token - 2) % 3]]
        elif token >= 8:
            expected[1] = [[0, token - 8]]
        assert lit == expected


@each([kind for kind in TOKENS if kind in (ConvPatches, LinearPatches, SeveralScales)])
def test_a_lit_patch_shows_where_it_lies_in_the_picture(kind) -> None:
    """From pixels to the laid map: the token that a patch moved, shown by a map that looks at what moved."""
    network = build(small_vit(tokens=small_tokens(kind), registers=1))
    dark = torch.zeros(1, SHAPE.channels, SHAPE.height, SHAPE.width)
    for row in range(SHAPE.height):
        for column in range(SHAPE.width):
            lit = dark.clone()
            lit[..., row, column] = 1
            moved = (network.embed(lit) - network.embed(dark)).abs().sum(dim=-1, keepdim=True)
            shown = network.layout.on_grids(moved.mT)
            for grid, laid in zip(network.layout.grids, shown, strict=True):
                side = SHAPE.height // grid.rows
                assert (laid[0, 0] > 1e-6).nonzero().tolist() == [[row // side, column // side]]


def test_maps_of_a_trained_looking_model_point_at_the_patch_it_was_made_to_look_at() -> None:
    """Keys that answer to brightness: the class token looks at the bright patch, wherever it is put."""
    network = build(small_vit(depth=1)).eval()
    block = network.blocks[0]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.tokens.embed.weight[0] = 1.0  # the first feature is a patch's brightness
        block.norm_attention.weight.fill_(1.0)
        block.attention.qkv.bias[0] = 4.0  # the first head asks for it
        block.attention.qkv.weight[16, 0] = 4.0  # and the keys answer with it
    for row in range(2):
        for column in range(4):
            pictures = torch.zeros(1, SHAPE.channels, SHAPE.height, SHAPE.width)
            pictures[..., row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 1.0
            (laid,) = network.layout.on_grids(network.maps(pictures)[0].layers[0][:, :, 0])
            assert laid[0, 0].argmax() == row * 4 + column
            assert laid[0, 0, row, column] > 0.9
            assert laid[0, 1].std() < 1e-6  # the second head was told nothing
