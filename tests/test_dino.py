"""Self-distillation: the loss and what moves by hand, the views by what they show, and a collapse by its words."""

import copy
import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from kinds import HEADS, build, refusal, small_attention, small_multiscale, small_vit, some_pictures
from loops import check_ordinary, check_resumed, loop_of, small, trained
from numpy.typing import NDArray
from safetensors.torch import load_file
from students import SMALL, WORDS, batch_of, generator_of, learner_of
from torch import Tensor

import vitlab
from vitlab.foreign import foreign
from vitlab.given import check_that_it_builds, load_data
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Locality
from vitlab.model.blocks import Block
from vitlab.model.heads import FirstToken, Mean
from vitlab.model.positions import Rotary
from vitlab.model.tokens import ConvPatches, SeveralScales
from vitlab.objectives import Dino
from vitlab.objectives.dino import Collapsed, Distillation, distil, tell_apart


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


def told_apart(said: NDArray, told: NDArray, own: NDArray, temperature: float) -> float:
    """−log of the share that a view's own picture has among all, for each pair of different views: their mean."""
    found = []
    for teacher in range(len(told)):
        for student in range(len(said)):
            for picture in range(said.shape[1]) if student != teacher else ():
                shares = softmax(told[teacher] @ said[student, picture] / temperature)
                found.append(-math.log(shares[own[picture]]))
    return float(np.mean(found))


@pytest.mark.parametrize("views", [2, 5])
@pytest.mark.parametrize("own", [[0, 1, 2, 3, 4, 5], [7, 2, 0, 5, 1, 6]], ids=["alone", "a share"])
def test_without_prototypes_a_view_is_to_find_its_picture_in_the_batch(views: int, own: list[int]) -> None:
    said, _, _ = some_outputs(views)
    told = torch.randn(2, 6 if own[0] == 0 else 9, 10, generator=generator_of(2))
    loss, shares = tell_apart(said, told, torch.tensor(own), 0.3)
    exact = [tensor.double().numpy() for tensor in (said, told)]
    assert loss.item() == pytest.approx(told_apart(*exact, np.array(own), 0.3), rel=1e-5)
    alike = np.stack([softmax(exact[1][t][own] @ exact[1][1 - t].T / 0.3) for t in range(2)])
    np.testing.assert_allclose(shares, alike, atol=1e-5)


def test_without_prototypes_only_the_products_are_rounded_to_bfloat16() -> None:
    said, told = (F.normalize(torch.randn(6, 64, 16, generator=generator_of(seed)), dim=-1) for seed in (1, 2))
    exact, alike = tell_apart(said, told[:2], torch.arange(64), 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss, shares = tell_apart(said, told[:2], torch.arange(64), 0.1)
    assert loss.dtype == shares.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=2e-4)  # 4e-3 where all of it is rounded
    np.testing.assert_allclose(shares.sum(dim=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(shares, alike, rtol=0.1)


def test_a_batch_without_prototypes_is_charged_by_what_the_heads_say_of_its_views() -> None:
    learner = learner_of(prototypes=0, temperature=0.2)
    batch = batch_of(learner)
    said, told = (each.numpy() for each in outputs_of(learner, batch))
    np.testing.assert_allclose(np.linalg.norm(said, axis=-1), 1, rtol=1e-5)
    loss, measures = learner(*batch)
    assert loss.item() == pytest.approx(told_apart(said, told, np.arange(5), 0.2), rel=1e-4)
    shares = np.stack([softmax(told[t] @ told[1 - t].T / 0.2) for t in range(2)])
    expected = [entropy(shares).mean() / math.log(5), entropy(shares.mean(axis=(0, 1))) / math.log(5)]
    np.testing.assert_allclose(measures[:2] / 5, expected, rtol=1e-3)
    loss.backward()
    unmoved = {name for name, weight in learner.named_parameters() if weight.requires_grad and weight.grad is None}
    assert unmoved == {"network.head.logits.weight", "network.head.logits.bias"}
    learner.check({"teacher_entropy": 1.0, "variety": 1.0, "spread": 0.9})  # no aim of anyone's, so no collapse
    with pytest.raises(Collapsed, match="the features of all pictures are the same"):
        learner.check({"teacher_entropy": 0.5, "variety": 1.0, "spread": 0.01})


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
        said.append(learner.head(learner.network.features(view, learner.windows.places(inside)), moves))
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
    assert "locality" in refusal(Dino(**SMALL, small_side=0.5).build, build(model, Shape(3, 8, 8)))


@pytest.mark.parametrize("head", [kind for kind in HEADS if kind is not FirstToken], ids=lambda kind: kind.kind)
def test_a_picture_of_one_patch_is_its_own_window(head: Any) -> None:
    learner = learner_of(small_vit(tokens=ConvPatches(8), head=head()), Shape(3, 8, 8))
    assert learner(*batch_of(learner))[0].isfinite()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ema=0.9",), "dino's teacher is one already: use ema=0"),
        (("flip=yes", "by_turns=yes"), "mirrors all views of a picture alike"),
        (("prototypes=0", "batch=1"), "likens a picture to the others of its batch: use batch=2 or more"),
        (("prototypes=0", "data.limit=1"), "likens a picture to the others of its batch: use batch=2 or more"),
    ],
)
def test_what_its_views_and_its_teacher_do_not_go_with_is_refused(words, said) -> None:
    experiment = small("objective=dino", *words)
    card = load_data(experiment, None).card
    assert said in refusal(lambda: check_that_it_builds(experiment, card))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"prototypes": 1}, "prototypes must be 2 or more, not 1"),
        ({"head_width": 0}, "head_width must be 2 or more, not 0"),
        ({"bottleneck": -3}, "bottleneck must be 2 or more, not -3"),
        ({"small_views": -1}, "small_views must be 0 or more, not -1"),
        ({"small_side": 0.0}, "small_side is a share above 0 and up to 1, not 0.0"),
        ({"small_side": 1.1}, "small_side is a share above 0 and up to 1, not 1.1"),
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


@pytest.mark.parametrize(
    "extra", [(), ("block.dropout=0.1", "rotate=10", "optimiser=muon", "frozen=0.5"), ("prototypes=0", "bottleneck=16")]
)
def test_stopped_in_the_middle_of_an_epoch_it_ends_in_the_same_bits(tmp_path, extra) -> None:
    loop, whole = check_resumed(small(*WORDS, *extra), tmp_path)
    assert {"model.centre", "model.teacher.extra", "model.teacher_head.layers.0.weight"} <= whole.keys()
    assert whole["model.centre"].any() or "prototypes=0" in extra
    assert not torch.equal(whole["model.teacher.extra"], whole["model.network.extra"])
    kept = load_file(loop.run.weights)
    assert torch.equal(kept["extra"], whole["model.teacher.extra"])
