"""Tokenizers against plain slicing and NumPy."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kinds import TOKENS, each, refusal, shake, small_tokens, some_pictures
from numpy.typing import NDArray
from torch import nn

from vitlab.model.layout import Grid, Shape
from vitlab.model.tokens import (
    ConvPatches,
    ConvStem,
    HalvingStem,
    LinearPatches,
    ResizedPatches,
    SeveralScales,
    ShiftedPatches,
    Tokenizer,
    resizing,
)

WIDTH = 6
OWN_PATCH_ONLY = {ConvPatches, LinearPatches, SeveralScales}  # kinds whose tokens see their own pixels and no others
SHAPES = [Shape(1, 8, 16), Shape(3, 16, 8), Shape(5, 24, 8)]


def make(settings, shape: Shape, seed: int = 0) -> Tokenizer:
    torch.manual_seed(seed)
    tokenizer = settings.build(shape, WIDTH)
    shake(tokenizer)
    return tokenizer


def array(tensor) -> NDArray:
    return tensor.detach().double().numpy()


def cut(picture: NDArray, patch: int) -> list[NDArray]:
    """(c, y, x) → its square patches, row by row."""
    rows, columns = picture.shape[1] // patch, picture.shape[2] // patch
    return [
        picture[:, y * patch : (y + 1) * patch, x * patch : (x + 1) * patch]
        for y in range(rows)
        for x in range(columns)
    ]


@each(TOKENS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tokens_count_the_patches_of_rectangles_of_any_channels(shape: Shape, kind) -> None:
    tokenizer = make(small_tokens(kind, shape=shape), shape)
    tokens = tokenizer(some_pictures(2, shape))
    assert tokens.shape == (2, sum(grid.tokens for grid in tokenizer.grids), WIDTH)
    sides = (4, 8) if len(tokenizer.grids) > 1 else (4,)
    height, width = getattr(small_tokens(kind, shape=shape), "size", (shape.height, shape.width))
    assert tokenizer.grids == tuple(Grid(height // side, width // side) for side in sides)


@each(TOKENS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pixels_of_a_patch_move_its_token_in_row_major_order(shape: Shape, kind) -> None:
    tokenizer = make(small_tokens(kind, shape=shape), shape)
    dark = some_pictures(1, shape)
    before = tokenizer(dark)
    start = 0
    for grid in tokenizer.grids:
        side = shape.height // grid.rows
        for row in range(grid.rows):
            for column in range(grid.columns):
                lit = dark.clone()
                lit[..., row * side : (row + 1) * side, column * side : (column + 1) * side] += 3
                moved = (tokenizer(lit) - before).abs().amax(dim=-1)[0, start : start + grid.tokens] > 1e-5
                own = row * grid.columns + column
                assert moved[own]
                if kind in OWN_PATCH_ONLY:
                    assert moved.sum() == 1
        start += grid.tokens


@pytest.mark.parametrize(("given", "wanted"), [((28, 20), (224, 160)), ((30, 24), (14, 10)), ((9, 9), (9, 9))])
def test_a_resize_is_torchs_bicubic_one(given: tuple[int, int], wanted: tuple[int, int]) -> None:
    pictures = some_pictures(2, Shape(3, *given))
    ours = resizing(given[0], wanted[0]) @ pictures @ resizing(given[1], wanted[1]).mT
    theirs = F.interpolate(pictures, size=wanted, mode="bicubic", antialias=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_resized_patches_are_conv_patches_of_the_resized_picture() -> None:
    shape = Shape(3, 8, 12)
    resized, conv = make(ResizedPatches(8, (32, 48)), shape), make(ConvPatches(8), Shape(3, 32, 48), seed=1)
    conv.load_state_dict(resized.state_dict())
    pictures = some_pictures(2, shape)
    larger = F.interpolate(pictures, size=(32, 48), mode="bicubic", antialias=True)
    torch.testing.assert_close(resized(pictures), conv(larger), rtol=1e-5, atol=1e-5)
    for size in ((32,), (32, 0)):
        assert "a height and a width" in refusal(lambda size=size: ResizedPatches(8, size).build(shape, WIDTH))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("patch", [1, 4, 8])
def test_conv_patches_are_linear_patches_with_reshaped_weights(patch: int, shape: Shape) -> None:
    conv, linear = make(ConvPatches(patch), shape), make(LinearPatches(patch), shape, seed=1)
    with torch.no_grad():
        linear.embed.weight.copy_(conv.embed.weight.reshape(WIDTH, -1))
        linear.embed.bias.copy_(conv.embed.bias)
    pictures = some_pictures(2, shape)
    torch.testing.assert_close(conv(pictures), linear(pictures), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("patch", [2, 4, 8])
def test_linear_patches_are_a_dot_product_with_each_patch(patch: int) -> None:
    shape = SHAPES[1]
    tokenizer, pictures = make(LinearPatches(patch), shape), some_pictures(2, shape)
    weight, bias = array(tokenizer.embed.weight), array(tokenizer.embed.bias)
    expected = [[weight @ piece.ravel() + bias for piece in cut(picture, patch)] for picture in array(pictures)]
    np.testing.assert_allclose(array(tokenizer(pictures)), expected, atol=1e-5)


@pytest.mark.parametrize("patch", [2, 4])
def test_linear_patches_taken_twice_are_the_sum_of_two_dot_products(patch: int) -> None:
    shape = SHAPES[1]
    tokenizer, pictures = make(LinearPatches(patch, twice=True), shape), some_pictures(2, shape)
    layers = [layer for layer in tokenizer.modules() if isinstance(layer, nn.Linear)]
    assert len(layers) == 2
    assert not torch.equal(layers[0].weight, layers[1].weight)
    expected = [
        [sum(array(layer.weight) @ piece.ravel() + array(layer.bias) for layer in layers) for piece in pieces]
        for pieces in (cut(picture, patch) for picture in array(pictures))
    ]
    np.testing.assert_allclose(array(tokenizer(pictures)), expected, atol=1e-5)


def shifted(picture: NDArray, down: int, right: int) -> NDArray:
    """The picture moved by whole pixels, zeros where nothing came."""
    moved = np.zeros_like(picture)
    _, height, width = picture.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - down < height and 0 <= x - right < width:
                moved[:, y, x] = picture[:, y - down, x - right]
    return moved


@pytest.mark.parametrize(("patch", "step"), [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_shifted_patches_are_the_papers(patch: int, step: int) -> None:
    shape = SHAPES[1]
    tokenizer, pictures = make(ShiftedPatches(patch), shape), some_pictures(2, shape)
    weight, bias = array(tokenizer.embed.weight), array(tokenizer.embed.bias)
    gain, offset = array(tokenizer.norm.weight), array(tokenizer.norm.bias)
    diagonals = [(-step, -step), (-step, step), (step, -step), (step, step)]
    expected = []
    for picture in array(pictures):
        five = np.concatenate([picture, *(shifted(picture, down, right) for down, right in diagonals)])
        rows = []
        for piece in cut(five, patch):
            x = piece.ravel()
            normal = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * gain + offset
            rows.append(weight @ normal + bias)
        expected.append(rows)
    np.testing.assert_allclose(array(tokenizer(pictures)), expected, atol=2e-5)


def test_the_conv_stem_is_convolution_norm_gelu_patches() -> None:
    shape = Shape(2, 4, 8)
    tokenizer, pictures = make(ConvStem(patch=4, channels=3), shape), some_pictures(2, shape)
    see, see_bias = array(tokenizer.see.weight), array(tokenizer.see.bias)
    gain, offset = array(tokenizer.norm.weight)[:, None, None], array(tokenizer.norm.bias)[:, None, None]
    weight, bias = array(tokenizer.embed.weight).reshape(WIDTH, -1), array(tokenizer.embed.bias)
    expected = []
    for picture in array(pictures):
        padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)))
        seen = np.stack(
            [
                [[(see[d] * padded[:, y : y + 3, x : x + 3]).sum() + see_bias[d] for x in range(8)] for y in range(4)]
                for d in range(3)
            ]
        )
        seen = (seen - seen.mean()) / np.sqrt(seen.var() + 1e-5) * gain + offset
        seen = seen * (1 + np.vectorize(math.erf)(seen / math.sqrt(2))) / 2
        expected.append([weight @ piece.ravel() + bias for piece in cut(seen, 4)])
    np.testing.assert_allclose(array(tokenizer(pictures)), expected, atol=2e-5)


def test_several_scales_are_the_scales_one_after_another_with_weights_of_their_own() -> None:
    shape = SHAPES[0]
    tokenizer, pictures = make(SeveralScales((8, 4)), shape), some_pictures(2, shape)
    parts = []
    for patch, scale in zip((8, 4), tokenizer.scales, strict=True):
        weight, bias = array(scale.embed.weight).reshape(WIDTH, -1), array(scale.embed.bias)
        parts.append([[weight @ piece.ravel() + bias for piece in cut(picture, patch)] for picture in array(pictures)])
    np.testing.assert_allclose(array(tokenizer(pictures)), np.concatenate(parts, axis=1), atol=1e-5)


def convolve(picture: NDArray, layer: nn.Conv2d) -> NDArray:
    """(c, y, x) → (f, y', x'), product by product, 3×3 with zeros beyond the edge."""
    filters, bias, stride = array(layer.weight), array(layer.bias), layer.stride[0]
    padded = np.pad(picture, ((0, 0), (1, 1), (1, 1)))
    rows, columns = picture.shape[1] // stride, picture.shape[2] // stride
    out = np.empty((len(filters), rows, columns))
    for y in range(rows):
        for x in range(columns):
            window = padded[:, y * stride : y * stride + 3, x * stride : x * stride + 3]
            out[:, y, x] = (filters * window).sum(axis=(1, 2, 3)) + bias
    return out


def see(seen: NDArray, part: nn.Module) -> NDArray:
    """3×3 ∗ GELU(norm(z)), the norm over all features and places of one picture."""
    normal = (seen - seen.mean()) / np.sqrt(seen.var() + part.norm.eps)
    normal = normal * array(part.norm.weight)[:, None, None] + array(part.norm.bias)[:, None, None]
    active = normal * 0.5 * (1 + np.vectorize(math.erf)(normal / math.sqrt(2)))
    return convolve(active, part.convolve)


@pytest.mark.parametrize("again", [0, 2])
@pytest.mark.parametrize("patch", [2, 4])
def test_the_halving_stem_is_its_equation(patch: int, again: int) -> None:
    shape = Shape(3, 8, 12)
    tokenizer = make(HalvingStem(patch, channels=2, again=again), shape)
    pictures = some_pictures(2, shape)
    for picture, tokens in zip(array(pictures), array(tokenizer(pictures)), strict=True):
        seen = convolve(picture, tokenizer.see)
        for residual, halve in zip(tokenizer.again, tokenizer.halve, strict=True):
            assert len(residual) == again
            for part in residual:
                seen = seen + see(seen, part)
            seen = see(seen, halve)
        np.testing.assert_allclose(tokens, seen.reshape(WIDTH, -1).T, atol=1e-4)
