"""Augmentation against slicing, NumPy and geometry; what was drawn is read off the result, not taken from the code."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from vitlab.data.augment import Augment, turn_hues
from vitlab.errors import BadInput

EVERYTHING = Augment(
    flip=True, crop=2, rotate=20, translate=0.1, scale=0.2, shear=10, bend=0.05, colour=0.4, hue=0.1,
    grey=0.3, erase=0.5,
)  # fmt: skip
ALONE = [
    Augment(flip=True), Augment(crop=3), Augment(rotate=30), Augment(translate=0.2), Augment(scale=0.3),
    Augment(shear=15), Augment(bend=0.05), Augment(colour=0.5), Augment(hue=0.2), Augment(erase=1.0), EVERYTHING,
]  # fmt: skip


def name_of(augment: Augment) -> str:
    on = [name for name in Augment.__dataclass_fields__ if getattr(augment, name)]
    return on[0] if len(on) == 1 else "everything"


def seeded(seed: int = 0) -> Generator:
    return torch.Generator().manual_seed(seed)


def some_pictures(count: int, channels: int = 3, height: int = 12, width: int = 20, seed: int = 1) -> Tensor:
    return torch.rand(count, channels, height, width, generator=seeded(seed))


def within(share: float, expected: float, count: int) -> bool:
    """A share of `count` draws lies within 4.5 standard deviations of what is expected."""
    return abs(share - expected) <= 4.5 * math.sqrt(expected * (1 - expected) / count)


@pytest.mark.parametrize("augment", ALONE, ids=name_of)
def test_the_generator_decides_everything(augment: Augment) -> None:
    pictures = some_pictures(16)
    before = pictures.clone()
    torch.manual_seed(0)
    first = augment(pictures, seeded(5))
    torch.manual_seed(1)
    assert torch.equal(augment(pictures, seeded(5)), first)
    assert not torch.equal(augment(pictures, seeded(6)), first)
    assert torch.equal(pictures, before), "the given pictures are left as they were"


@pytest.mark.parametrize("augment", ALONE, ids=name_of)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 20), (5, 21, 7)], ids=str)
def test_shape_type_and_range_are_kept(shape: tuple[int, int, int], augment: Augment) -> None:
    pictures = some_pictures(40, *shape)
    changed = augment(pictures, seeded())
    assert changed.shape == pictures.shape
    assert changed.dtype == torch.float32
    assert changed.min() >= 0
    assert changed.max() <= 1
    assert torch.equal(changed, pictures) == (augment.hue > 0 and shape[0] != 3 and augment is not EVERYTHING)
    extremes = torch.ones(20, *shape)
    assert augment(extremes, seeded()).max() <= 1 + 1e-6


def test_all_off_is_the_identity_and_draws_nothing() -> None:
    pictures, generator = some_pictures(4), seeded(3)
    state = generator.get_state()
    assert torch.equal(Augment()(pictures, generator), pictures)
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize("augment", ALONE, ids=name_of)
def test_every_picture_is_drawn_on_its_own(augment: Augment) -> None:
    same = some_pictures(1, height=16, width=16).expand(24, -1, -1, -1)
    different = {changed.numpy().tobytes() for changed in augment(same, seeded())}
    assert len(different) > (1 if augment.flip and augment != EVERYTHING else 12)


def test_half_the_pictures_are_mirrored() -> None:
    pictures = some_pictures(2000, 1, 2, 3)
    changed = Augment(flip=True)(pictures, seeded())
    mirrored = torch.from_numpy(pictures.numpy()[..., ::-1].copy())
    same, turned = ((changed == one).flatten(1).all(dim=1) for one in (pictures, mirrored))
    assert (same ^ turned).all()
    assert within(turned.double().mean().item(), 0.5, 2000)


def test_a_crop_is_a_slice_of_the_padded_picture_at_any_offset() -> None:
    padding, height, width = 2, 5, 7
    pictures = some_pictures(1000, 2, height, width) + 0.01
    changed = Augment(crop=padding)(pictures, seeded())
    offsets = []
    for picture, crop in zip(pictures.numpy(), changed.numpy(), strict=True):
        padded = np.pad(picture, ((0, 0), (padding, padding), (padding, padding)))
        places = [(y, x) for y in range(2 * padding + 1) for x in range(2 * padding + 1)]
        found = [(y, x) for y, x in places if np.array_equal(padded[:, y : y + height, x : x + width], crop)]
        assert len(found) == 1
        offsets.append(found[0])
    counts = np.zeros((2 * padding + 1, 2 * padding + 1))
    for y, x in offsets:
        counts[y, x] += 1
    assert all(within(count / 1000, 1 / 25, 1000) for count in counts.ravel())


# Geometry. A picture whose channels are its own coordinates and a constant shows, after the move, where each pixel
# came from: bilinear sampling is exact on a slope, so the map is read off the pixels that lie wholly inside.


def slopes(height: int, width: int) -> Tensor:
    """Channels: x and y in pixels from the centre, shifted and shrunk into 0 … 1, and ones."""
    y, x = np.mgrid[:height, :width].astype(np.float64)
    return torch.from_numpy(np.stack([(x + 0.5) / width, (y + 0.5) / height, np.ones_like(x)])).float()


def read_off(augment: Augment, count: int, height: int, width: int, seed: int) -> tuple[NDArray, NDArray]:
    """The matrices (count, 2, 2) and shifts (count, 2) by which output (x, y) from the centre came from input."""
    moved = augment(slopes(height, width).expand(count, -1, -1, -1), seeded(seed)).double().numpy()
    y, x = np.mgrid[:height, :width]
    x, y = x + 0.5 - width / 2, y + 0.5 - height / 2
    matrices, shifts = [], []
    for source_x, source_y, inside in moved:
        # Beyond the outermost pixel centres zeros are mixed in, and the constant channel tells.
        whole = inside > 1 - 1e-6
        assert whole.sum() > 12
        known = np.stack([x[whole], y[whole], np.ones(whole.sum())], axis=1)
        wanted = np.stack([source_x[whole] * width - width / 2, source_y[whole] * height - height / 2], axis=1)
        solution, *_ = np.linalg.lstsq(known, wanted, rcond=None)
        assert np.abs(known @ solution - wanted).max() < 1e-3, "the move is affine"
        matrices.append(solution[:2].T)
        shifts.append(solution[2])
    return np.stack(matrices), np.stack(shifts)


SIZES = [(24, 24), (16, 32), (30, 20)]
COUNT = 200


def spans(values: NDArray, most: float) -> bool:
    """The values lie within ±most and use both ends of it."""
    return bool(
        np.abs(values).max() <= most * 1.001 + 1e-4 and values.max() > 0.9 * most and values.min() < -0.9 * most
    )


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_rotation_turns_rigidly_about_the_centre_on_rectangles_too(height: int, width: int) -> None:
    matrices, shifts = read_off(Augment(rotate=40), COUNT, height, width, seed=2)
    np.testing.assert_allclose(
        matrices @ matrices.transpose(0, 2, 1), np.broadcast_to(np.eye(2), (COUNT, 2, 2)), atol=1e-3
    )
    np.testing.assert_allclose(np.linalg.det(matrices), 1, atol=1e-3)
    np.testing.assert_allclose(shifts, 0, atol=1e-3)
    assert spans(np.degrees(np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])), 40)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_scaling_grows_or_shrinks_both_sides_alike(height: int, width: int) -> None:
    matrices, shifts = read_off(Augment(scale=0.3), COUNT, height, width, seed=3)
    np.testing.assert_allclose(shifts, 0, atol=1e-3)
    np.testing.assert_allclose(matrices[:, [0, 1], [1, 0]], 0, atol=1e-3)
    np.testing.assert_allclose(matrices[:, 0, 0], matrices[:, 1, 1], atol=1e-3)
    assert spans(1 / matrices[:, 0, 0] - 1, 0.3)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_shearing_slants_rows_and_keeps_the_area(height: int, width: int) -> None:
    matrices, shifts = read_off(Augment(shear=45), COUNT, height, width, seed=4)
    np.testing.assert_allclose(shifts, 0, atol=1e-3)
    np.testing.assert_allclose(matrices[:, :, 0], np.broadcast_to([1, 0], (COUNT, 2)), atol=1e-3)
    np.testing.assert_allclose(matrices[:, 1, 1], 1, atol=1e-3)
    assert spans(np.degrees(np.arctan(matrices[:, 0, 1])), 45)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_translation_shifts_by_a_share_of_each_side(height: int, width: int) -> None:
    matrices, shifts = read_off(Augment(translate=0.2), COUNT, height, width, seed=5)
    np.testing.assert_allclose(matrices, np.broadcast_to(np.eye(2), (COUNT, 2, 2)), atol=1e-3)
    assert spans(shifts[:, 0], 0.2 * width)
    assert spans(shifts[:, 1], 0.2 * height)
    assert abs(np.corrcoef(shifts.T)[0, 1]) < 0.3, "the two sides are drawn apart"


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_all_moves_together_are_a_turn_a_size_a_slant_and_a_shift(height: int, width: int) -> None:
    augment = Augment(rotate=25, scale=0.2, shear=15, translate=0.1)
    matrices, shifts = read_off(augment, COUNT, height, width, seed=6)
    angle = np.arctan2(matrices[:, 1, 0], matrices[:, 0, 0])
    size = np.hypot(matrices[:, 0, 0], matrices[:, 1, 0])
    turn = np.stack([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
    rest = turn.transpose(0, 2, 1) @ matrices / size[:, None, None]
    np.testing.assert_allclose(rest[:, :, 0], np.broadcast_to([1, 0], (COUNT, 2)), atol=2e-3)
    np.testing.assert_allclose(rest[:, 1, 1], 1, atol=2e-3)
    assert spans(np.degrees(angle), 25)
    assert spans(1 / size - 1, 0.2)
    assert spans(np.degrees(np.arctan(rest[:, 0, 1])), 15)
    assert spans(shifts[:, 0], 0.1 * width)
    assert spans(shifts[:, 1], 0.1 * height)


def bilinear(picture: NDArray, matrix: NDArray, shift: NDArray) -> NDArray:
    """Inverse mapping, pixel by pixel: each output pixel mixes its four neighbours in the input, zeros outside."""
    _, height, width = picture.shape
    moved = np.zeros_like(picture)
    for row in range(height):
        for column in range(width):
            x, y = matrix @ [column + 0.5 - width / 2, row + 0.5 - height / 2] + shift
            x, y = x + width / 2 - 0.5, y + height / 2 - 0.5
            left, top = math.floor(x), math.floor(y)
            for v in (top, top + 1):
                for u in (left, left + 1):
                    if 0 <= v < height and 0 <= u < width:
                        moved[:, row, column] += picture[:, v, u] * (1 - abs(v - y)) * (1 - abs(u - x))
    return moved


@pytest.mark.parametrize(
    "augment", [Augment(rotate=90), Augment(rotate=25, scale=0.2, shear=15, translate=0.1)], ids=["turn", "all"]
)
def test_moved_pictures_are_bilinear_with_zeros_beyond_the_edge(augment: Augment) -> None:
    height, width, count = 14, 18, 6
    pictures = some_pictures(count, 3, height, width)
    matrices, shifts = read_off(augment, count, height, width, seed=7)  # the draws do not look at the pictures
    moved = augment(pictures, seeded(7)).double().numpy()
    for picture, matrix, shift, result in zip(pictures.double().numpy(), matrices, shifts, moved, strict=True):
        np.testing.assert_allclose(result, bilinear(picture, matrix, shift), atol=1e-3)


def test_bending_moves_points_by_up_to_the_share_and_what_lies_between_smoothly() -> None:
    """Pictures that show their own coordinates: what is read tells where it was read."""
    most, height, width = 0.06, 21, 41  # the 5×5 points fall on whole pixels
    y, x = torch.meshgrid(torch.arange(height) / height, torch.arange(width) / width, indexing="ij")
    read = Augment(bend=most)(torch.stack([y, x]).expand(400, 2, height, width), seeded()).numpy()
    moved = read - torch.stack([y, x]).numpy()
    inner = moved[:, :, 5:-5, 10:-10]  # beyond it, zeros from beyond the edge are mixed in
    points = inner[:, :, ::5, ::10]
    assert points.shape[2:] == (3, 3)
    for axis in (0, 1):
        assert spans(points[:, axis].ravel(), most)
        assert abs(points[:, axis].mean()) < 4.5 * most / math.sqrt(3 * points[:, axis].size)
    assert abs(np.corrcoef(points[:, 0].ravel(), points[:, 1].ravel())[0, 1]) < 0.1, "the two sides are drawn apart"
    assert abs(np.corrcoef(points[:, 0, 0, 0], points[:, 0, 0, 1])[0, 1]) < 0.25, "and so are the points"
    assert np.abs(inner).max() < 1.6 * most, "a smooth surface passes its points by little"
    turns = np.abs(np.diff(inner, n=2, axis=2)).max(), np.abs(np.diff(inner, n=2, axis=3)).max()
    assert max(turns) < 0.6 * most, "no creases"


@pytest.mark.parametrize("channels", [1, 3, 5])
def test_colour_multiplies_brightness_then_stretches_contrast_then_saturation(channels: int) -> None:
    """Brightness is read off the mean, contrast off the grey, saturation off the rest; then all must fit."""
    count, most = 400, 0.3
    pictures = 0.3 + 0.15 * some_pictures(count, channels, 6, 9)  # nothing is clipped
    changed = Augment(colour=most)(pictures, seeded()).double().numpy()
    before = pictures.double().numpy()
    means = before.mean(axis=(1, 2, 3))
    brightness = changed.mean(axis=(1, 2, 3)) / means
    grey, grey_after = before.mean(axis=1), changed.mean(axis=1)
    spread = grey - grey.mean(axis=(1, 2), keepdims=True)
    spread_after = grey_after - grey_after.mean(axis=(1, 2), keepdims=True)
    contrast = (spread * spread_after).sum(axis=(1, 2)) / (spread**2).sum(axis=(1, 2)) / brightness
    tint, tint_after = before - grey[:, None], changed - grey_after[:, None]
    assert spans(brightness - 1, most)
    assert spans(contrast - 1, most)
    saturation = np.ones(count)
    if channels > 1:
        saturation = (tint * tint_after).sum(axis=(1, 2, 3)) / (tint**2).sum(axis=(1, 2, 3)) / brightness / contrast
        assert spans(saturation - 1, most)
    b, k, s = (each[:, None, None, None] for each in (brightness, contrast, saturation))
    expected = b * (means[:, None, None, None] + k * (spread[:, None] + s * tint))
    np.testing.assert_allclose(changed, expected, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (24, 48)])
def test_erasing_puts_noise_in_one_rectangle_of_the_share_of_pictures(height: int, width: int) -> None:
    count, share = 1500, 0.4
    changed = Augment(erase=share)(torch.zeros(count, 3, height, width), seeded()).numpy()
    erased = (changed != 0).all(axis=1)
    assert ((changed != 0).any(axis=1) == erased).all(), "all channels at once"
    touched = erased.any(axis=(1, 2))
    assert within(touched.mean(), share, count)
    areas, noise = [], changed[np.broadcast_to(erased[:, None], changed.shape)]
    for mask in erased[touched]:
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        tall, wide = rows[-1] - rows[0] + 1, columns[-1] - columns[0] + 1
        assert mask.sum() == tall * wide, "the rectangle is whole"
        longest = math.sqrt(0.25 * 3)
        assert tall <= longest * height + 1
        assert wide <= longest * width + 1
        assert (tall - 1) * (wide - 1) <= 0.25 * height * width
        if rows[0] > 0 and rows[-1] < height - 1 and columns[0] > 0 and columns[-1] < width - 1:
            assert (tall + 1) * (wide + 1) >= 0.02 * height * width
            assert (tall + 1) / height * width / (wide - 1) >= 1 / 3
            assert (tall - 1) / height * width / (wide + 1) <= 3
        areas.append(tall * wide / height / width)
    assert np.mean(areas) > 0.07, "cut off at the edge, they still cover most of 13.5 % on average"
    assert abs(noise.mean() - 0.5) < 0.01
    assert abs(noise.var() - 1 / 12) < 0.005


def test_erasing_always_or_never() -> None:
    pictures = torch.zeros(50, 1, 28, 28)
    assert (Augment(erase=1.0)(pictures, seeded()).amax(dim=(1, 2, 3)) > 0).all()
    assert torch.equal(Augment(erase=0.0)(pictures, seeded()), pictures)


def test_a_share_of_pictures_loses_its_colour_and_the_others_keep_it() -> None:
    pictures = some_pictures(1000, 3, 4, 5)
    changed = Augment(grey=0.3)(pictures, seeded()).numpy()
    grey = np.repeat(pictures.numpy().mean(axis=1, keepdims=True), 3, axis=1)
    lost = np.isclose(changed, grey, atol=1e-6).all(axis=(1, 2, 3))
    assert abs(lost.mean() - 0.3) < 4.5 * (0.3 * 0.7 / 1000) ** 0.5
    np.testing.assert_array_equal(changed[~lost], pictures.numpy()[~lost])


def test_hues_turn_about_the_grey_axis_each_picture_by_its_own_angle() -> None:
    """Read off in a plane across that axis: the angle is the same in all pixels, grey and length stay."""
    count, most = 400, 0.2
    pictures = 0.4 + 0.1 * some_pictures(count, 3, 6, 9)  # nothing is clipped
    before, changed = pictures.double().numpy(), Augment(hue=most)(pictures, seeded()).double().numpy()
    np.testing.assert_allclose(changed.mean(axis=1), before.mean(axis=1), atol=1e-6)
    plane = np.exp(2j * np.pi * np.arange(3) / 3)[None, :, None, None]
    turned, was = (changed * plane).sum(axis=1), (before * plane).sum(axis=1)
    np.testing.assert_allclose(np.abs(turned), np.abs(was), atol=1e-6)
    angles = np.angle((turned * was.conj()).sum(axis=(1, 2))) / (2 * np.pi)
    assert spans(angles, most)
    np.testing.assert_allclose(turned, was * np.exp(2j * np.pi * angles)[:, None, None], atol=1e-6)


def test_a_third_of_the_circle_makes_red_green_and_what_has_no_hue_stays() -> None:
    red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    torch.testing.assert_close(turn_hues(red, torch.tensor([1 / 3])), red.roll(1, dims=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(turn_hues(red, torch.tensor([0.0])), red, atol=1e-6, rtol=0)
    loud = turn_hues(torch.rand(50, 3, 4, 4, generator=seeded()), torch.rand(50, generator=seeded(1)))
    assert 0 <= loud.min() <= loud.max() <= 1
    for channels in (1, 2, 4):
        pictures = some_pictures(5, channels)
        assert torch.equal(Augment(hue=0.5)(pictures, seeded()), pictures)
    grey = some_pictures(5, 1).expand(-1, 3, -1, -1)
    torch.testing.assert_close(Augment(hue=0.5)(grey, seeded()), grey, atol=1e-6, rtol=0)


def test_the_parts_run_in_the_order_the_docstring_gives() -> None:
    """Flip, crop, move, colour, hue, grey, erase: each alone, one after another from one generator, gives the same."""
    pictures, together, apart = some_pictures(8), seeded(9), seeded(9)
    expected = pictures
    for part in (
        Augment(flip=True), Augment(crop=2), Augment(rotate=20, translate=0.1, scale=0.2, shear=10, bend=0.05),
        Augment(colour=0.4), Augment(hue=0.1), Augment(grey=0.3), Augment(erase=0.5),
    ):  # fmt: skip
        expected = part(expected, apart)
    assert torch.equal(EVERYTHING(pictures, together), expected)


@pytest.mark.parametrize(
    "name", ["crop", "rotate", "translate", "shear", "bend", "colour", "hue", "grey", "erase", "scale"]
)
def test_negative_amounts_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match=name) as caught:
        Augment(**{name: -1})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "value"), [("erase", 1.01), ("grey", 1.01), ("scale", 1.0)])
def test_shares_beyond_one_are_refused(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=f"{name}.*{value}"):
        Augment(**{name: value})
