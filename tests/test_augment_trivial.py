"""Each change of TrivialAugment against Pillow or a loop over pixels, and how often each is drawn."""

import math
from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from vitlab.data.augment import Augment
from vitlab.data.trivial import CHANGES, LEVELS, change, trivial, warp

SIDE = (18, 24)


def some_pictures(count: int = 4, channels: int = 3) -> Tensor:
    """Whole values of 0 … 255, as Pillow holds them, some of them with few or only one value."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(30, 200, (count, channels, *SIDE), generator=generator)
    values[1] = values[1] // 60 * 60
    values[2, 0] = 77
    return values / 255


def changed(pictures: Tensor, name: str, strength: float, sign: int = 1) -> Tensor:
    count = len(pictures)
    kind = torch.full((count,), CHANGES.index(name))
    return change(pictures, kind, torch.full((count,), strength), torch.full((count,), sign))


def as_pillow(picture: Tensor) -> Image.Image:
    return Image.fromarray((picture.permute(1, 2, 0) * 255).round().byte().numpy())


def by_pillow(picture: Tensor, name: str, strength: float, sign: int) -> NDArray:
    image, factor = as_pillow(picture), 1 + 0.99 * strength * sign
    made = {
        "identity": lambda: image,
        "brightness": lambda: ImageEnhance.Brightness(image).enhance(factor),
        "saturation": lambda: ImageEnhance.Color(image).enhance(factor),
        "contrast": lambda: ImageEnhance.Contrast(image).enhance(factor),
        "sharpness": lambda: ImageEnhance.Sharpness(image).enhance(factor),
        "posterise": lambda: ImageOps.posterize(image, 8 - round(strength * 6)),
        "solarise": lambda: ImageOps.solarize(image, math.ceil(255 * (1 - strength))),
        "autocontrast": lambda: ImageOps.autocontrast(image),
        "equalise": lambda: ImageOps.equalize(image),
    }[name]()
    return np.asarray(made).transpose(2, 0, 1)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", [name for name in CHANGES if name not in CHANGES[1:6]])
def test_a_change_of_values_is_pillows(name: str, strength: float, sign: int) -> None:
    """Pillow rounds to whole values on the way, so that a blend may be off by one and a half, times its factor."""
    pictures = some_pictures()
    found = changed(pictures, name, strength, sign).numpy() * 255
    tolerance = {"equalise": 0.01, "posterise": 0.01, "solarise": 0.01, "identity": 0.01}.get(name, 3.5)
    for picture, own in zip(pictures, found, strict=True):
        np.testing.assert_allclose(own, by_pillow(picture, name, strength, sign), atol=tolerance)
    assert found.min() >= 0
    assert found.max() <= 255.001


@pytest.mark.parametrize(("name", "axis"), [("translate-x", 3), ("translate-y", 2)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_shift_moves_by_whole_pixels(name: str, axis: int, sign: int) -> None:
    pictures, steps = some_pictures(), 8
    moved = changed(pictures, name, steps / 32, sign)
    length = pictures.shape[axis]
    here, there = slice(0, length - steps), slice(steps, length)
    first, second = (here, there) if sign == 1 else (there, here)
    index = [slice(None)] * 4
    index[axis] = first
    other = [slice(None)] * 4
    other[axis] = second
    torch.testing.assert_close(moved[tuple(index)], pictures[tuple(other)], atol=1e-4, rtol=0)
    index[axis] = slice(length - steps, None) if sign == 1 else slice(0, steps)
    assert moved[tuple(index)].abs().max() < 1e-4


@pytest.mark.parametrize(("name", "y", "x"), [("shear-x", 0.0, 0.99), ("shear-y", 0.99, 0.0), ("rotate", None, None)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_slants_and_turns_read_where_they_should(name: str, y: float | None, x: float | None, sign: int) -> None:
    """A ramp stays a ramp: its value at each pixel is that of the place the equation reads, pixels from the centre."""
    rows, columns = np.mgrid[: SIDE[0], : SIDE[1]].astype(float)
    rows, columns = rows - (SIDE[0] - 1) / 2, columns - (SIDE[1] - 1) / 2
    ramp = torch.from_numpy(np.stack([rows, columns])[None]).float()
    strength = 0.2
    amount = strength * sign
    if y is None or x is None:
        angle = math.radians(135) * amount
        read = (
            columns * math.sin(angle) + rows * math.cos(angle),
            columns * math.cos(angle) - rows * math.sin(angle),
        )
    else:
        read = rows + y * amount * columns, columns + x * amount * rows
    kind = torch.tensor([CHANGES.index(name)])
    found = warp(ramp, kind, torch.tensor([amount]))[0].numpy()
    inside = (np.abs(read[0]) <= SIDE[0] / 2 - 1) & (np.abs(read[1]) <= SIDE[1] / 2 - 1)
    assert inside.mean() > 0.4
    np.testing.assert_allclose(found[0][inside], read[0][inside], atol=1e-3)
    np.testing.assert_allclose(found[1][inside], read[1][inside], atol=1e-3)


def test_every_change_of_every_strength_is_drawn_as_often() -> None:
    """The brightness of what comes out follows that of all changes, strengths and signs in turn."""
    picture, count = some_pictures()[:1], 4000
    all_of_them = list(product(range(len(CHANGES)), range(LEVELS), (-1, 1)))
    kind, level, sign = torch.tensor(all_of_them).T
    everything = change(picture.expand(len(kind), -1, -1, -1), kind, level / (LEVELS - 1), sign)
    drawn = trivial(picture.expand(count, -1, -1, -1), torch.Generator().manual_seed(0))
    for figure in (lambda x: x.mean(dim=(1, 2, 3)), lambda x: x.std(dim=(1, 2, 3)), lambda x: x[:, 0, 5, 7]):
        expected, found = figure(everything), figure(drawn)
        for share in (expected, found):
            assert share.std() > 0.01
        assert abs(found.mean() - expected.mean()) < 4.5 * expected.std() / math.sqrt(count)
        assert found.std().item() == pytest.approx(expected.std().item(), rel=0.1)
    assert torch.equal(drawn, trivial(picture.expand(count, -1, -1, -1), torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_pictures_of_any_channels_stay_pictures(channels: int) -> None:
    pictures = some_pictures(64, channels)
    found = Augment(trivial=True)(pictures, torch.Generator().manual_seed(0))
    assert found.shape == pictures.shape
    assert found.min() >= 0
    assert found.max() <= 1 + 1e-6
    assert torch.equal(pictures, some_pictures(64, channels)), "the given pictures are left as they were"
