"""Views of DINO: what a large and a small one show, where they lie, and what the network makes of them."""

import math

import numpy as np
import pytest
import torch
from kinds import build, small_vit
from loops import small, trained
from numpy.typing import NDArray
from students import WORDS, batch_of, chance_of, generator_of, learner_of
from torch import Tensor

from vitlab.data.geometry import cuts
from vitlab.model import Shape
from vitlab.model.blocks import Block
from vitlab.model.positions import Learned, NoPositions, Rotary
from vitlab.model.tokens import ConvPatches, HalvingStem, ResizedPatches, SeveralScales

GRIDS = [
    pytest.param(ConvPatches(4), Shape(1, 8, 16), 0.5, (1, 2), id="2x4"),
    pytest.param(ConvPatches(4), Shape(3, 28, 28), 0.5, (4, 4), id="7x7-rounded"),
    pytest.param(ConvPatches(2), Shape(1, 12, 8), 0.4, (2, 2), id="6x4"),
    pytest.param(ConvPatches(4), Shape(1, 12, 20), 1.0, (3, 5), id="whole"),
    pytest.param(ConvPatches(4), Shape(1, 12, 20), 0.01, (1, 1), id="one-cell"),
    pytest.param(SeveralScales((4, 2)), Shape(1, 12, 16), 0.5, (2, 2), id="scales"),
]


@pytest.mark.parametrize(("tokens", "shape", "window", "sides"), GRIDS)
def test_a_window_is_a_rectangle_of_cells_and_lies_everywhere(tokens, shape, window, sides) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape, small_side=window)
    grid, (tall, wide) = learner.windows.cells.grid, sides
    cells = learner.windows.draw(3_000, generator_of(0))
    assert cells.shape == (3_000, tall * wide)
    rows, columns = np.divmod(cells.numpy(), grid.columns)
    top, left = rows[:, 0], columns[:, 0]
    np.testing.assert_array_equal(rows, top[:, None] + np.repeat(np.arange(tall), wide))
    np.testing.assert_array_equal(columns, left[:, None] + np.tile(np.arange(wide), tall))
    assert columns.max() < grid.columns
    assert rows.max() < grid.rows
    count = (grid.rows - tall + 1) * (grid.columns - wide + 1)
    often = np.unique(top * grid.columns + left, return_counts=True)[1]
    assert len(often) == count, "every place there is room for"
    assert np.abs(often - 3_000 / count).max() <= 4.5 * math.sqrt(3_000 / count * (1 - 1 / count))


def coordinates(height: int, width: int, count: int) -> Tensor:
    """Pictures of two channels: how far down and how far right the middle of each pixel lies, from −1 to 1."""
    y, x = ((np.arange(side) + 0.5) / side * 2 - 1 for side in (height, width))
    one = np.stack([np.tile(y[:, None], (1, width)), np.tile(x, (height, 1))])
    return torch.from_numpy(one).float().expand(count, -1, -1, -1)


def along(values: NDArray, side: int) -> tuple[float, float]:
    """The source's start and end, from −1 to 1, of a view.

    `values` are the coordinates, in a source of `side` pixels, that the view's pixels show: a straight line, where they
    lie half a pixel or more within the source, as its outermost half pixels have no neighbour to be blended with.
    """
    inside = np.arange(len(values))
    slope, start = np.polyfit(inside[3:-3], values[3:-3], 1)
    assert slope > 0
    line = start + slope * inside
    within = np.abs(line) < 1 - 1 / side - 1e-4
    assert within.sum() > 3
    np.testing.assert_allclose(values[within], line[within], atol=1e-4)
    return start - slope / 2, start + slope * (len(values) - 0.5)


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.4), (0.4, 1.0), (0.3, 0.3)])
@pytest.mark.parametrize("size", [None, (24, 32), (40, 16)])
def test_a_view_shows_a_part_of_the_picture_of_the_share_that_is_asked_for(low, high, size) -> None:
    height, width, count = 48, 64, 150
    views = cuts(coordinates(height, width, count), low, high, generator_of(2), size)
    tall, wide = size or (height, width)
    assert views.shape == (count, 2, tall, wide)
    areas, ratios, middles = [], [], []
    for view in views.double().numpy():
        down, right = along(view[0, :, wide // 2], height), along(view[1, tall // 2], width)
        assert min(*down, *right) > -1 - 1e-3
        assert max(*down, *right) < 1 + 1e-3
        # Each row shows one y and each column one x: nothing is slanted.
        np.testing.assert_allclose(view[1, 8:-8].std(axis=0), 0, atol=1e-4)
        sides = (down[1] - down[0]) / 2, (right[1] - right[0]) / 2
        areas.append(sides[0] * sides[1])
        ratios.append(sides[0] / sides[1])
        middles.append((sum(down) / 2, sum(right) / 2))
    assert min(areas) > low - 2e-3
    assert max(areas) < high + 2e-3
    assert min(ratios) > 3 / 4 - 2e-2
    assert max(ratios) < 4 / 3 + 2e-2
    assert min(ratios) < 0.85
    assert max(ratios) > 1.15
    assert low == high or np.ptp(areas) > 0.8 * (high - low)
    assert (np.ptp(middles, axis=0) > 0.5).all(), "anywhere in the picture"


@pytest.mark.parametrize(("low", "high"), [(0.1, 0.4), (0.4, 1.0)])
@pytest.mark.parametrize("size", [None, (14, 7)])
def test_a_view_of_an_even_picture_is_even(low: float, high: float, size: tuple[int, int] | None) -> None:
    """It lies within the picture, so nothing from beyond the edge may come in."""
    views = cuts(torch.ones(500, 1, 28, 28), low, high, generator_of(2), size)
    np.testing.assert_allclose(views, 1, atol=1e-5)


@pytest.mark.parametrize("low", [0.8, 0.95, 1.0])
def test_a_large_view_has_the_share_that_is_asked_for_however_large(low: float) -> None:
    areas = []
    for view in cuts(coordinates(64, 64, 100), low, 1.0, generator_of(3)).double().numpy():
        down, right = along(view[0, :, 32], 64), along(view[1, 32], 64)
        areas.append((down[1] - down[0]) * (right[1] - right[0]) / 4)
    assert min(areas) > low - 5e-3


@pytest.mark.parametrize(("tokens", "shape", "window", "sides"), GRIDS)
def test_a_small_view_is_as_large_as_its_window_and_no_view_is_like_another(tokens, shape, window, sides) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape, small_side=window, small_views=3)
    pictures = torch.rand(4, shape.channels, shape.height, shape.width, generator=generator_of(0)) + 1
    large, small_views, cells, _ = learner.batch(pictures, torch.zeros(4), lambda given: given, chance_of(0))
    assert large.shape == (8, *pictures.shape[1:])
    tall, wide = learner.windows.cells.size
    assert small_views.shape == (12, shape.channels, sides[0] * tall, sides[1] * wide)
    assert cells.shape == (12, sides[0] * sides[1])
    assert (small_views > 0.9).all(), "nothing but the picture"
    for views in (large.flatten(1), small_views.flatten(1)):
        for first in range(len(views)):
            for second in range(first):
                assert not torch.allclose(views[first], views[second], atol=1e-3)


LAID = [*GRIDS, pytest.param(ResizedPatches(4, size=(24, 40)), Shape(1, 12, 20), 0.5, (3, 5), id="resized")]


@pytest.mark.parametrize(("tokens", "shape", "window", "sides"), LAID)
@pytest.mark.parametrize("positions", [Learned(), Rotary(table=True)])
def test_a_small_view_is_seen_as_if_it_lay_in_its_window_of_the_whole_picture(
    tokens, shape, window, sides, positions
) -> None:
    model = small_vit(tokens=tokens, positions=positions, registers=1)
    learner = learner_of(model, shape, small_side=window, small_views=1)
    _, views, cells, _ = learner.batch(
        torch.rand(6, shape.channels, shape.height, shape.width), torch.zeros(6), lambda given: given, chance_of(0)
    )
    (tall, wide), columns = learner.windows.cells.size, learner.windows.cells.grid.columns
    whole = torch.rand(6, shape.channels, shape.height, shape.width)
    for picture, view, (first, *_) in zip(whole, views, cells.tolist(), strict=True):
        top, left = first // columns * tall, first % columns * wide
        picture[:, top : top + view.shape[1], left : left + view.shape[2]] = view
    places = learner.windows.places(cells)
    with torch.no_grad():
        found, expected = (learner.teacher.features(seen, places) for seen in (views, whole))
        elsewhere = learner.teacher.features(views, places.flip(0))
    if isinstance(tokens, ResizedPatches):  # a resize blends a pixel with what lies around it
        assert (found - expected).norm() < 0.35 * (expected - expected.mean(dim=0)).norm()
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert sides == (3, 5) or not torch.allclose(found, elsewhere, atol=1e-4), "where it lies counts"


def test_a_stem_sees_of_a_small_view_nothing_but_the_view() -> None:
    """Nor do its norms, which would else count the emptiness around it."""
    stem = HalvingStem(patch=4, channels=4)
    learner = learner_of(small_vit(tokens=stem, positions=Learned()), Shape(3, 16, 24), small_views=1)
    views, cells = batch_of(learner)[1:3]
    alone = small_vit(tokens=stem).tokens.build(Shape(3, 8, 12), 16)
    alone.load_state_dict(learner.network.tokens.state_dict())
    with torch.no_grad():
        found, _ = learner.network.enter(views, learner.windows.places(cells))
        expected = alone(views) + learner.network.positions.table[cells + 1]
    torch.testing.assert_close(found[:, 1:], expected)


@pytest.mark.parametrize(("tokens", "shape", "window", "sides"), GRIDS)
def test_in_a_small_view_shift_takes_from_the_neighbours_that_the_view_has(tokens, shape, window, sides) -> None:
    model = small_vit(tokens=tokens, positions=NoPositions(), block=Block(shift=4), registers=1)
    learner = learner_of(model, shape, small_side=window, small_views=1)
    (tall, wide), views, cells = learner.windows.cells.size, *batch_of(learner)[1:3]
    alone = build(model, Shape(shape.channels, sides[0] * tall, sides[1] * wide))
    alone.load_state_dict(learner.network.state_dict())
    with torch.no_grad():
        found, expected = learner.network.features(views, learner.windows.places(cells)), alone.features(views)
        whole = learner.network.features(batch_of(learner)[0])
    torch.testing.assert_close(found, expected)
    assert whole.isfinite().all(), "and whole pictures as before"
    learner(*batch_of(learner))[0].backward()


def test_every_view_is_changed_by_draws_of_its_own() -> None:
    learner, given = learner_of(small_views=3), []

    def change(pictures: Tensor) -> Tensor:
        given.append(pictures)
        return pictures + len(given)

    pictures = torch.zeros(2, 3, 8, 16)
    large, small_views, *_ = learner.batch(pictures, torch.zeros(2), change, chance_of(0))
    assert len(given) == 5
    middle = torch.cat([views.amax(dim=(1, 2, 3)) for views in (large, small_views)])
    np.testing.assert_allclose(middle, np.repeat([1, 2, 3, 4, 5], 2), rtol=1e-5)


def test_without_small_views_the_student_sees_the_large_ones_alone(tmp_path) -> None:
    learner = learner_of(small_views=0)
    large, small_views, cells, _ = batch = batch_of(learner)
    assert (len(large), len(small_views), len(cells)) == (10, 0, 0)
    loss, _ = learner(*batch)
    loss.backward()
    assert learner.network.extra.grad.abs().sum() > 0
    run = trained(small(*WORDS, "small_views=0"), tmp_path, tested=50)
    assert all(math.isfinite(line["loss"]) for line in run.metrics())
