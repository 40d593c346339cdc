"""Self-distillation: the loss and what moves by hand, the views by what they show, and a collapse by its words."""

import copy
import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from kinds import HEADS, SHAPE, build, refusal, small_attention, small_multiscale, small_vit, some_pictures
from loops import check_ordinary, check_resumed, loop_of, small, trained
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

import vitlab
from vitlab.chance import Chance
from vitlab.data.geometry import cuts
from vitlab.foreign import foreign
from vitlab.lab import check_that_it_builds, load_data
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Locality
from vitlab.model.blocks import Block
from vitlab.model.heads import FirstToken, Mean
from vitlab.model.positions import Learned, NoPositions, Rotary
from vitlab.model.tokens import ConvPatches, HalvingStem, ResizedPatches, SeveralScales
from vitlab.objectives import Dino
from vitlab.objectives.dino import Collapsed, Distillation, distil

SMALL = {"prototypes": 12, "head_width": 16, "bottleneck": 8, "small_views": 2}
WORDS = ("objective=dino", "prototypes=24", "head_width=32", "bottleneck=8", "small_views=2")


def chance_of(*key: int) -> Chance:
    chance = Chance(torch.device("cpu"))
    chance.start(*key)
    return chance


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learner_of(model: Any = None, shape: Shape = SHAPE, **settings: Any) -> Distillation:
    """With a teacher and a centre of its own, as after some steps."""
    learner = Dino(**SMALL | settings).build(build(model or small_vit(), shape))
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in [*learner.teacher.parameters(), *learner.head.parameters(), *learner.teacher_head.parameters()]:
            weight.add_(torch.randn_like(weight) * 0.1)
        learner.centre.normal_(std=0.1)
    return learner.train()


def batch_of(learner: Distillation, count: int = 5, seed: int = 0, done: float = 1.0) -> tuple[Tensor, ...]:
    pictures = some_pictures(count, learner.network.shape)
    return learner.batch(pictures, torch.zeros(count), lambda given: given, chance_of(seed), done)


def softmax(z: NDArray) -> NDArray:
    shares = np.exp(z - z.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def distilled(said: NDArray, told: NDArray, centre: NDArray, warm: float, cold: float) -> float:
    """−Σ p log q for each picture and each pair of a teacher's view and another view of the student: their mean."""
    found = []
    for teacher in range(len(told)):
        for student in range(len(said)):
            if student == teacher:
                continue
            for picture in range(said.shape[1]):
                wanted = softmax((told[teacher, picture] - centre) / cold)
                guess = softmax(said[student, picture] / warm)
                found.append(-sum(p * math.log(q) for p, q in zip(wanted, guess, strict=True)))
    return float(np.mean(found))


def some_outputs(views: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines of the student (views, 6, 10), the teacher (2, 6, 10), and a centre."""
    generator = generator_of(seed)
    said, told = (torch.rand(count, 6, 10, generator=generator) * 2 - 1 for count in (views, 2))
    return said, told, torch.randn(10, generator=generator) * 0.2


@pytest.mark.parametrize("temperatures", [(0.1, 0.04), (0.2, 0.07), (1.0, 1.0)])
@pytest.mark.parametrize("views", [2, 3, 6])
def test_the_loss_is_the_mean_over_pairs_of_different_views(views: int, temperatures: tuple[float, float]) -> None:
    said, told, centre = some_outputs(views)
    loss, wanted = distil(said, told, centre, *temperatures)
    exact = [tensor.double().numpy() for tensor in (said, told, centre)]
    assert loss.item() == pytest.approx(distilled(*exact, *temperatures), rel=1e-5)
    np.testing.assert_allclose(wanted, softmax((exact[1] - exact[2]) / temperatures[1]), atol=1e-5)


@pytest.mark.parametrize("views", [2, 5])
def test_loss_and_centre_are_those_of_lightly(views: int) -> None:
    pytest.importorskip("lightly", reason="lightly is not installed")
    if find_spec("torchvision") is None:
        pytest.skip("lightly needs torchvision")
    theirs = foreign("lightly.loss.dino_loss").DINOLoss(12, teacher_temp=0.05, student_temp=0.2, center_momentum=0.8)
    learner = learner_of(
        temperature=0.2, teacher_temperature=0.05, centre_momentum=0.8, small_views=views - 2, momentum=0.5
    ).eval()
    theirs.center.copy_(learner.centre)
    for seed in range(3):  # the second batch is judged by the centre that the first one moved
        batch = batch_of(learner, seed=seed)
        said, told = outputs_of(learner, batch)
        loss, _ = learner(*batch)
        expected = theirs(list(told.float()), list(said.float()))
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(learner.centre, theirs.center.flatten())


@torch.no_grad()
def outputs_of(learner: Distillation, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """What student (views, b, k) and teacher (2, b, k) say of these views, one view at a time, in float64."""
    large, small, cells, moves = batch
    count = len(large) // 2
    said, told = [], []
    for view in large.split(count):
        said.append(learner.head(learner.network.features(view), moves))
        told.append(learner.teacher_head(learner.teacher.features(view), moves))
    for view, inside in zip(small.split(count), cells.split(count), strict=True) if len(small) else ():
        said.append(learner.head(learner.network.features(view, learner.places(inside)), moves))
    return torch.stack(said).double(), torch.stack(told).double()


@pytest.mark.parametrize("model", [small_vit(), small_vit(positions=Rotary(), head=Mean(), registers=1)])
@pytest.mark.parametrize("views", [0, 1, 3])
def test_a_batch_is_charged_by_the_centre_it_finds_and_moves_it(model: Any, views: int) -> None:
    learner = learner_of(model, small_views=views)
    before = learner.centre.double().numpy()
    batch = batch_of(learner)
    said, told = (each.numpy() for each in outputs_of(learner, batch))
    assert said.shape == (2 + views, 5, 12)
    loss, measures = learner(*batch)
    assert loss.item() == pytest.approx(distilled(said, told, before, 0.1, 0.04), rel=1e-4)
    np.testing.assert_allclose(learner.centre, 0.9 * before + 0.1 * told.mean(axis=(0, 1)), rtol=1e-5, atol=1e-6)
    shares = softmax((told - before) / 0.04)
    with torch.no_grad():
        features = learner.teacher.features(batch[0]).double().numpy()
    units = features / np.linalg.norm(features, axis=1, keepdims=True)
    apart = np.sqrt(((units - units.mean(axis=0)) ** 2).sum(axis=1).mean())
    expected = [entropy(shares).mean() / math.log(12), entropy(shares.mean(axis=(0, 1))) / math.log(12), apart]
    np.testing.assert_allclose(measures / 5, expected, rtol=1e-3, atol=1e-4)


def entropy(shares: NDArray) -> NDArray:
    return -(shares * np.log(shares)).sum(axis=-1)


def test_what_the_head_says_is_the_cosine_with_each_prototype() -> None:
    head, moves = learner_of().head, torch.tensor(1.0)
    features = torch.randn(4, 16, generator=generator_of(3))
    with torch.no_grad():
        vectors, prototypes = (x.double().numpy() for x in (head.layers(features), head.prototypes))
    expected = vectors @ prototypes.T
    expected /= np.linalg.norm(vectors, axis=1, keepdims=True) * np.linalg.norm(prototypes, axis=1)
    np.testing.assert_allclose(head(features, moves).detach(), expected, atol=1e-6)
    torch.testing.assert_close(head(features, torch.tensor(0.0)), head(features, moves))


@pytest.mark.parametrize(("done", "moving"), [(0.0, False), (0.049, False), (0.05, True), (1.0, True)])
def test_no_gradient_reaches_the_teacher_nor_prototypes_that_are_frozen(done: float, moving: bool) -> None:
    learner = learner_of(frozen=0.05)
    batch = batch_of(learner, done=done)
    assert batch[-1].item() == moving
    learner(*batch)[0].backward()
    for part in (learner.teacher, learner.teacher_head):
        assert not any(weight.requires_grad or weight.grad is not None for weight in part.parameters())
    assert learner.head.prototypes.grad.abs().max().item() > 0 or not moving
    assert moving or (learner.head.prototypes.grad == 0).all()
    still = {name for name, weight in learner.named_parameters() if weight.requires_grad and weight.grad is None}
    assert still == {"network.head.logits.weight", "network.head.logits.bias"}, "nothing else is without a gradient"


def test_the_gradient_of_the_prototypes_is_that_of_finite_differences() -> None:
    learner = learner_of()
    batch, exact = batch_of(learner, 3), copy.deepcopy(learner).double()
    learner(*batch)[0].backward()
    batch = tuple(each.double() if each.is_floating_point() else each for each in batch)
    for place in ((0, 0), (3, 5), (11, 7)):
        kept, found = exact.head.prototypes.data[place].item(), []
        for moved in (kept + 1e-5, kept - 1e-5, kept):
            exact.head.prototypes.data[place] = moved
            said, told = outputs_of(exact, batch)
            found.append(distilled(said.numpy(), told.numpy(), exact.centre.numpy(), 0.1, 0.04))
        slope = (found[0] - found[1]) / 2e-5
        assert learner.head.prototypes.grad[place].item() == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_after_a_step_the_teacher_has_moved_a_cosines_share_of_the_way(tmp_path) -> None:
    loop = loop_of(small(*WORDS, "momentum=0.6", "frozen=0.3", "weight_decay=0"), tmp_path)
    learner, steps = loop.session.learner, loop.session.steps
    assert steps == 8
    parts = ((learner.teacher, learner.network), (learner.teacher_head, learner.head))
    assert all(torch.equal(t, s) for old, new in parts for t, s in zip(old.parameters(), new.parameters(), strict=True))
    for step in range(1, steps + 1):
        before = [weight.detach().double().numpy() for teacher, _ in parts for weight in teacher.parameters()]
        drawn, head = learner.network.extra.detach().clone(), learner.head.layers[0].weight.detach().clone()
        prototypes = learner.head.prototypes.detach().clone()
        loop.train_step(torch.arange(16) + 16 * (step % 4))
        assert not torch.equal(learner.network.extra, drawn)
        assert not torch.equal(learner.head.layers[0].weight, head)
        assert torch.equal(learner.head.prototypes, prototypes) == ((step - 1) / steps < 0.3)
        keep = 1 - (1 - 0.6) * (1 + np.cos(np.pi * step / steps)) / 2
        after = [weight.detach().numpy() for teacher, _ in parts for weight in teacher.parameters()]
        students = [weight.detach().double().numpy() for _, student in parts for weight in student.parameters()]
        for found, teacher, student in zip(after, before, students, strict=True):
            np.testing.assert_allclose(found, keep * teacher + (1 - keep) * student, rtol=1e-6, atol=1e-7)
    assert keep == 1
    assert not torch.equal(learner.teacher.extra, learner.network.extra)


def test_where_prototypes_decay_while_they_are_frozen_none_turns(tmp_path) -> None:
    """Only where they point counts, as the head divides them by their length."""
    loop = loop_of(small(*WORDS, "frozen=0.5", "weight_decay=0.5"), tmp_path)
    prototypes, found = loop.session.learner.head.prototypes, []
    for step in range(6):
        loop.train_step(torch.arange(16) + 16 * (step % 4))
        found.append(prototypes.detach().double().numpy() / prototypes.detach().double().norm(dim=1).numpy()[:, None])
    np.testing.assert_allclose(found[3], found[0], atol=1e-6)
    assert np.abs(found[4] - found[3]).max() > 1e-4


def test_the_teacher_is_what_is_judged_and_it_drops_nothing() -> None:
    learner = learner_of(small_vit(block=Block(dropout=0.5)))
    assert learner.evaluated is learner.teacher
    pictures = some_pictures(2)
    assert learner.training
    assert torch.equal(learner.teacher.features(pictures), learner.teacher.features(pictures))
    assert not torch.equal(learner.network.features(pictures), learner.network.features(pictures))


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
    learner = learner_of(small_vit(tokens=tokens), shape, window=window)
    grid, (tall, wide) = learner.cells.grid, sides
    cells = learner.windows(3_000, generator_of(0))
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
    learner = learner_of(small_vit(tokens=tokens), shape, window=window, small_views=3)
    pictures = torch.rand(4, shape.channels, shape.height, shape.width, generator=generator_of(0)) + 1
    large, small_views, cells, _ = learner.batch(pictures, torch.zeros(4), lambda given: given, chance_of(0))
    assert large.shape == (8, *pictures.shape[1:])
    tall, wide = learner.cells.size
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
    learner = learner_of(model, shape, window=window, small_views=1)
    _, views, cells, _ = learner.batch(
        torch.rand(6, shape.channels, shape.height, shape.width), torch.zeros(6), lambda given: given, chance_of(0)
    )
    (tall, wide), columns = learner.cells.size, learner.cells.grid.columns
    whole = torch.rand(6, shape.channels, shape.height, shape.width)
    for picture, view, (first, *_) in zip(whole, views, cells.tolist(), strict=True):
        top, left = first // columns * tall, first % columns * wide
        picture[:, top : top + view.shape[1], left : left + view.shape[2]] = view
    places = learner.places(cells)
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
        found, _ = learner.network.enter(views, learner.places(cells))
        expected = alone(views) + learner.network.positions.table[cells + 1]
    torch.testing.assert_close(found[:, 1:], expected)


@pytest.mark.parametrize(("tokens", "shape", "window", "sides"), GRIDS)
def test_in_a_small_view_shift_takes_from_the_neighbours_that_the_view_has(tokens, shape, window, sides) -> None:
    model = small_vit(tokens=tokens, positions=NoPositions(), block=Block(shift=4), registers=1)
    learner = learner_of(model, shape, window=window, small_views=1)
    (tall, wide), views, cells = learner.cells.size, *batch_of(learner)[1:3]
    alone = build(model, Shape(shape.channels, sides[0] * tall, sides[1] * wide))
    alone.load_state_dict(learner.network.state_dict())
    with torch.no_grad():
        found, expected = learner.network.features(views, learner.places(cells)), alone.features(views)
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


def means_of(learner: Distillation, batch: tuple[Tensor, ...]) -> dict[str, float]:
    found = learner(*batch)[1] / (len(batch[0]) // 2)
    return dict(zip(learner.measures, found.tolist(), strict=True))


def test_features_that_are_the_same_for_all_pictures_are_called_a_collapse() -> None:
    learner = learner_of()
    learner.check(means_of(learner, batch_of(learner)))
    with torch.no_grad():
        for weight in learner.teacher.blocks.parameters():
            weight.zero_()
    means = means_of(learner, batch_of(learner))
    assert means["spread"] < 1e-3
    text = refusal(learner.check, means)
    assert "the features of all pictures are the same (spread 0.000): it has collapsed" in text
    assert "lower learning_rate" in text


def test_one_prototype_for_every_picture_is_called_a_collapse() -> None:
    learner = learner_of(teacher_temperature=0.01)
    learner.check(means_of(learner, batch_of(learner)))
    with torch.no_grad():
        learner.teacher_head.layers[-1].bias.copy_(learner.teacher_head.prototypes[3] * 100)
    means = means_of(learner, batch_of(learner))
    assert means["spread"] > 0.05
    text = refusal(learner.check, means)
    assert "the teacher names the same prototype for every picture (variety 0.0" in text
    assert "higher teacher_temperature" in text


def test_all_prototypes_alike_are_called_a_collapse() -> None:
    learner = learner_of(teacher_temperature=50.0)
    means = means_of(learner, batch_of(learner))
    text = refusal(learner.check, means)
    assert "the teacher likens every picture to all prototypes alike (entropy 1.000 of the most)" in text
    assert "lower teacher_temperature" in text


def test_a_run_that_collapses_ends_at_the_next_measurement_with_its_reason(tmp_path) -> None:
    """Without a block the class token has seen nothing of the picture."""
    loop = loop_of(small(*WORDS, "depth=0"), tmp_path, tested=50)
    with pytest.raises(Collapsed, match="the features of all pictures are the same"):
        loop.train()
    (line,) = loop.run.metrics()
    assert line["spread"] < 0.01
    assert not loop.run.finished


REFUSED = [
    (small_vit(attention=small_attention(Linformer)), "linformer's projections are made for all of them"),
    (small_multiscale(), "use model=vit"),
    (small_vit(across="batch"), "use across=tokens"),
    (small_vit(head=FirstToken()), "head=first-token reads: use class-token or mean"),
]


@pytest.mark.parametrize(("model", "reason"), REFUSED, ids=["linformer", "multi-scale", "batch", "first-token"])
def test_models_that_need_every_patch_are_refused_with_what_to_change(model: Any, reason: str) -> None:
    text = refusal(Dino().build, build(model))
    assert text.startswith("objective dino shows the student a window of some patches, and ")
    assert reason in text


def test_scales_that_do_not_lie_in_each_other_are_refused() -> None:
    network = build(small_vit(tokens=SeveralScales((4, 6))), Shape(1, 12, 24))
    assert "choose patches that divide each other" in refusal(Dino().build, network)


def test_locality_with_one_token_in_the_window_is_refused() -> None:
    """It looks at all tokens but its own: where the window is one cell and no token is extra, there is no other."""
    model = small_vit(attention=small_attention(Locality), head=Mean())
    assert "locality" in refusal(Dino(**SMALL, window=0.5).build, build(model, Shape(3, 8, 8)))


@pytest.mark.parametrize("head", [kind for kind in HEADS if kind is not FirstToken], ids=lambda kind: kind.kind)
def test_a_picture_of_one_patch_is_its_own_window(head: Any) -> None:
    learner = learner_of(small_vit(tokens=ConvPatches(8), head=head()), Shape(3, 8, 8))
    assert learner(*batch_of(learner))[0].isfinite()


def test_a_second_running_mean_is_refused() -> None:
    experiment = small("objective=dino", "ema=0.9")
    card = load_data(experiment, None).card
    assert "dino's teacher is one already: use ema=0" in refusal(lambda: check_that_it_builds(experiment, card))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"prototypes": 1}, "prototypes must be 2 or more, not 1"),
        ({"head_width": 0}, "head_width must be 2 or more, not 0"),
        ({"bottleneck": -3}, "bottleneck must be 2 or more, not -3"),
        ({"small_views": -1}, "small_views must be 0 or more, not -1"),
        ({"window": 0.0}, "window is a share above 0 and up to 1, not 0.0"),
        ({"window": 1.1}, "window is a share above 0 and up to 1, not 1.1"),
        ({"small": 0.0}, "small and large are shares of a picture"),
        ({"small": 0.5, "large": 0.4}, "the first no larger, not 0.5 and 0.4"),
        ({"large": 1.5}, "small and large are shares of a picture"),
        ({"temperature": 0.0}, "temperatures must be above 0, not 0.0"),
        ({"teacher_temperature": -0.1}, "temperatures must be above 0, not 0.1 and -0.1"),
        ({"momentum": 1.0}, "momentum is a share from 0 up to 1, not 1.0"),
        ({"centre_momentum": -0.1}, "centre_momentum is a share from 0 up to 1, not -0.1"),
        ({"frozen": 1.0}, "frozen is a share from 0 up to 1, not 1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    assert reason in refusal(lambda: Dino(**settings).build(build(small_vit())))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> vitlab.Run:
    """20 steps on 64 digits."""
    return trained(small(*WORDS, "epochs=5"), tmp_path_factory.mktemp("dino"))


def test_a_sound_run_does_not_collapse(run) -> None:
    lines = run.metrics()
    assert [line["step"] for line in lines] == [4, 8, 12, 16, 20]
    assert all(line["spread"] > 0.2 for line in lines)
    assert all(0.05 < line["teacher_entropy"] < line["variety"] < 1 for line in lines)


def test_a_finished_run_is_an_ordinary_run(run, tmp_path) -> None:
    check_ordinary(run, tmp_path)


@pytest.mark.parametrize("extra", [(), ("block.dropout=0.1", "rotate=10", "optimiser=muon", "frozen=0.5")])
def test_stopped_in_the_middle_of_an_epoch_it_ends_in_the_same_bits(tmp_path, extra) -> None:
    loop, whole = check_resumed(small(*WORDS, *extra), tmp_path)
    assert {"model.centre", "model.teacher.extra", "model.teacher_head.prototypes"} <= whole.keys()
    assert whole["model.centre"].abs().max() > 0
    assert not torch.equal(whole["model.teacher.extra"], whole["model.network.extra"])
    kept = load_file(loop.run.weights)
    assert torch.equal(kept["extra"], whole["model.teacher.extra"])
