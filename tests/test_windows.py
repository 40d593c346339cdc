"""Parts of pictures first: what is cut out, what the network answers, and a run that goes over to whole pictures."""

import numpy as np
import pytest
import torch
from kinds import SHAPE, build, refusal, small_attention, small_multiscale, small_vit, some_pictures
from loops import check_resumed, loop_of, small
from students import chance_of, generator_of
from torch import Tensor

from vitlab.model import Shape
from vitlab.model.attention import Linformer
from vitlab.model.blocks import Block
from vitlab.model.heads import FirstToken, Mean
from vitlab.model.positions import Learned, Rotary
from vitlab.model.tokens import ConvPatches, SeveralScales
from vitlab.objectives import Supervised
from vitlab.objectives.cells import Windows

HALF = ("window=0.5", "window_until=0.5")


def unchanged(pictures: Tensor) -> Tensor:
    return pictures


@pytest.mark.parametrize(("side", "rows", "columns"), [(0.5, 2, 3), (0.7, 3, 4), (0.01, 1, 1), (1.0, 4, 6)])
def test_what_is_cut_out_are_the_pixels_of_its_cells(side: float, rows: int, columns: int) -> None:
    windows = Windows(build(small_vit(tokens=ConvPatches(4)), Shape(2, 16, 24)), side)
    pictures = torch.rand(50, 2, 16, 24, generator=generator_of(0))
    cells = windows.draw(50, generator_of(1))
    found = windows.cut(pictures, cells)
    assert found.shape == (50, 2, *windows.size) == (50, 2, 4 * rows, 4 * columns)
    for picture, part, (first, *_) in zip(pictures, found, cells.tolist(), strict=True):
        top, left = 4 * (first // 6), 4 * (first % 6)
        np.testing.assert_array_equal(part, picture[:, top : top + 4 * rows, left : left + 4 * columns])


@pytest.mark.parametrize("tokens", [ConvPatches(4), SeveralScales((4, 2))], ids=["one grid", "two"])
@pytest.mark.parametrize("positions", [Learned(), Rotary(table=True)], ids=["learned", "rotary"])
def test_at_first_the_answers_are_those_to_the_seen_patches_of_the_whole_picture(tokens, positions) -> None:
    """Where no tokenizer looks beyond a patch: other patches may hold anything, or not be there."""
    network = build(small_vit(tokens=tokens, positions=positions, registers=1), Shape(3, 8, 16)).eval()
    learner = Supervised(window=0.5).build(network)
    pictures, labels = some_pictures(6, Shape(3, 8, 16)), torch.arange(6) % 3
    seen, same, drawn, places = learner.batch(pictures, labels, unchanged, chance_of(0), done=0.49)
    assert torch.equal(same, labels)
    assert seen.shape == (6, 3, 4, 8)
    with torch.no_grad():
        found, expected = network(seen, places), network(pictures, places)
        loss, correct = learner(seen, labels, drawn, places)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(found, network(pictures), atol=1e-3)
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(expected, labels))
    assert correct.item() == int((expected.argmax(dim=1) == labels).sum())


@pytest.mark.parametrize(("done", "whole"), [(0.0, False), (0.29, False), (0.3, True), (1.0, True)])
def test_from_its_share_of_training_on_pictures_are_seen_whole(done: float, whole: bool) -> None:
    learner = Supervised(window=0.5, window_until=0.3, cutmix=1.0).build(build(small_vit(block=Block(shift=4))))
    pictures = some_pictures(6)
    seen, _, drawn, *places = learner.batch(pictures, torch.zeros(6, dtype=torch.int64), unchanged, chance_of(0), done)
    assert learner.stages == (0.0, 0.3)
    assert torch.equal(seen, pictures) if whole else len(places) == 1
    assert bool(places) != whole
    top, bottom, left, right = drawn[2:].tolist()
    assert 0 <= top <= bottom <= seen.shape[2]
    assert 0 <= left <= right <= seen.shape[3], "what is pasted lies in what is seen"
    learner(seen, torch.zeros(6, dtype=torch.int64), drawn, *places)[0].backward()
    assert all(weight.grad is not None for weight in learner.parameters())


def test_every_window_is_drawn_anew_and_a_run_without_one_draws_nothing() -> None:
    pictures, labels = some_pictures(64), torch.zeros(64, dtype=torch.int64)
    learner = Supervised(window=0.5).build(build(small_vit()))
    first, second = (learner.batch(pictures, labels, unchanged, chance_of(key))[3] for key in (0, 1))
    assert len(first.unique(dim=0)) > 1
    assert not torch.equal(first, second)
    for settings in (Supervised(), Supervised(window=0.5, window_until=0.0)):
        plain = settings.build(build(small_vit()))
        chance = chance_of(0)
        before = chance.device.get_state()
        assert len(plain.batch(pictures, labels, unchanged, chance)) == 3
        assert torch.equal(chance.device.get_state(), before)
        assert plain.stages == (0.0,)
    assert Supervised(window=0.5, window_until=1.0).build(build(small_vit())).stages == (0.0,)


def test_a_run_that_goes_over_to_whole_pictures_is_resumed_to_the_same_bits(tmp_path) -> None:
    words = (*HALF, "cutmix=1", "head=mean", "shift=8", "ema=0.9", "optimiser=muon", "patch=7")
    loop, _ = check_resumed(small(*words), tmp_path)
    assert loop.session.learner.stages == (0.0, 0.5)


def test_only_the_shapes_that_are_still_to_come_are_made_ready(tmp_path) -> None:
    loop = loop_of(small(*HALF, "window_until=0.25"), tmp_path)
    assert loop.stages_ahead() == [0.0, 0.25]
    for step, ahead in ((1, [0.0, 0.25]), (2, [0.25]), (8, [0.25])):
        loop.session.step = step
        assert loop.stages_ahead() == ahead
    assert [len(loop.first_batch(done)) for done in (0.0, 0.25)] == [4, 3]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (small_vit(attention=small_attention(Linformer)), "linformer's projections are made for all of them"),
        (small_multiscale(), "use model=vit"),
        (small_vit(across="batch"), "use across=tokens"),
        (small_vit(head=FirstToken()), "head=first-token reads: use class-token or mean"),
    ],
    ids=["linformer", "multi-scale", "batch", "first-token"],
)
def test_models_that_need_every_patch_are_refused_with_what_to_change(model, reason: str) -> None:
    text = refusal(Supervised(window=0.5).build, build(model, SHAPE))
    assert text.startswith("window shows some patches of each picture, and ")
    assert reason in text
    Supervised(window=0.5, window_until=0.0).build(build(model, SHAPE))


def test_a_window_has_a_size() -> None:
    assert "window must be above 0" in refusal(Supervised(window=0.0).build, build(small_vit(head=Mean())))
