"""The supervised loss against NumPy float64, and the bookkeeping of mixed pictures."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.errors import BadInput
from vitlab.model.heads import OUTPUTS
from vitlab.objectives import Supervised
from vitlab.objectives.supervised import mix

CLASSES = 4


def chance_of(*key: int) -> Chance:
    chance = Chance(torch.device("cpu"))
    chance.start(*key)
    return chance


PLAIN = Supervised().draw(1, 1, chance_of(0))


def drawn_for(objective: Supervised, pictures: Tensor, chance: Chance) -> Tensor:
    return objective.draw(pictures.shape[-2], pictures.shape[-1], chance)


def mixed_by(objective: Supervised, pictures: Tensor, chance: Chance) -> tuple[Tensor, float]:
    """The batch as it is mixed, and the share of a picture that stayed its own."""
    drawn = drawn_for(objective, pictures, chance)
    return mix(pictures, drawn), drawn[1].item()


def some_batch(count: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, 3, 8, 10, generator=generator), torch.randint(CLASSES, (count,), generator=generator)


def some_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(240, CLASSES))


def soft_cross_entropy(logits: Tensor, targets: NDArray) -> float:
    """−mean Σ y log softmax(z), in float64."""
    z = logits.detach().double().numpy()
    log_probabilities = z - z.max(axis=1, keepdims=True)
    log_probabilities -= np.log(np.exp(log_probabilities).sum(axis=1, keepdims=True))
    return float(-(targets * log_probabilities).sum(axis=1).mean())


def one_hot(labels: Tensor) -> NDArray:
    return np.eye(CLASSES)[labels.numpy()]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_without_mixing_the_loss_is_torchs(smoothing: float) -> None:
    model, (pictures, labels) = some_model(), some_batch()
    loss, correct = Supervised(label_smoothing=smoothing).loss(model, pictures, labels, PLAIN)
    logits = model(pictures)
    torch.testing.assert_close(loss, nn.CrossEntropyLoss(label_smoothing=smoothing)(logits, labels))
    targets = one_hot(labels) * (1 - smoothing) + smoothing / CLASSES
    assert loss.item() == pytest.approx(soft_cross_entropy(logits, targets), rel=1e-6)
    assert correct.item() == int((logits.argmax(dim=1) == labels).sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_pictures_are_charged_for_both_labels_by_their_share(kind: str, smoothing: float) -> None:
    model, (pictures, labels) = some_model(), some_batch()
    objective = Supervised(label_smoothing=smoothing, **{kind: 1.0})
    majors = set()
    for seed in range(12):
        mixed, share = mixed_by(objective, pictures, chance_of(seed))
        loss, correct = objective.loss(model, pictures, labels, drawn_for(objective, pictures, chance_of(seed)))
        logits = model(mixed)
        targets = share * one_hot(labels) + (1 - share) * one_hot(labels)[::-1]
        targets = targets * (1 - smoothing) + smoothing / CLASSES
        assert loss.item() == pytest.approx(soft_cross_entropy(logits, targets), rel=1e-5)
        major = labels if share >= 0.5 else labels.flip(0)
        majors.add(share >= 0.5)
        assert correct.item() == int((logits.argmax(dim=1) == major).sum())
    assert majors == {True, False}


def test_the_gradient_is_that_of_soft_labels() -> None:
    model, (pictures, labels) = some_model(), some_batch()
    objective = Supervised(mixup=0.8, label_smoothing=0.1)
    mixed, share = mixed_by(objective, pictures, chance_of(3))
    objective.loss(model, pictures, labels, drawn_for(objective, pictures, chance_of(3)))[0].backward()
    ours = model[1].weight.grad.clone()
    model.zero_grad()
    targets = torch.from_numpy(share * one_hot(labels) + (1 - share) * one_hot(labels)[::-1]).float()
    F.cross_entropy(model(mixed), targets, label_smoothing=0.1).backward()
    torch.testing.assert_close(ours, model[1].weight.grad)


def test_log_probabilities_are_charged_as_the_logits_are() -> None:
    """log-softmax leaves log-probabilities alone, so cross-entropy of report R0's output is that of its logits."""
    model, (pictures, labels) = some_model(), some_batch()
    found = []
    for network in (model, nn.Sequential(model, nn.LogSoftmax(dim=1))):
        model.zero_grad()
        loss, correct = Supervised(label_smoothing=0.1).loss(network, pictures, labels, PLAIN)
        loss.backward()
        found.append((loss.detach(), correct, model[1].weight.grad.clone(), model[1].bias.grad.clone()))
    for of_logits, of_log_probabilities in zip(*found, strict=True):
        torch.testing.assert_close(of_log_probabilities, of_logits)


@pytest.mark.parametrize("classes", [2, 10])
def test_probabilities_are_charged_even_where_they_are_perfect(classes: int) -> None:
    """Report R1 gave softmax to cross-entropy, whose second softmax leaves log(e + classes − 1) − 1 at best."""
    labels = torch.arange(classes)
    least = math.log(math.e + classes - 1) - 1
    logits = torch.eye(classes) * 1000  # their softmax is the right class, to the last bit
    loss, correct = Supervised().loss(OUTPUTS["softmax"], logits, labels, PLAIN)
    assert loss.item() == pytest.approx(least, rel=1e-6)
    assert correct == classes
    assert Supervised().loss(OUTPUTS["logits"], logits, labels, PLAIN)[0] == 0
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        some = torch.randn(classes, classes, generator=generator) * 10 + torch.eye(classes) * 20
        assert Supervised().loss(OUTPUTS["softmax"], some, labels, PLAIN)[0] >= least - 1e-6
    assert classes != 10 or round(least, 4) == 1.4612


def test_mixup_is_the_convex_sum_with_the_mirror_of_the_batch() -> None:
    pictures, _ = some_batch(5)
    for seed in range(5):
        mixed, share = mixed_by(Supervised(mixup=1.0), pictures, chance_of(seed))
        assert 0 < share < 1
        x = pictures.double().numpy()
        np.testing.assert_allclose(mixed, share * x + (1 - share) * x[::-1], atol=1e-6)


@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 13), (28, 28), (1, 7)])
def test_the_share_of_cutmix_is_the_share_of_pixels_left(height: int, width: int) -> None:
    """Each picture is filled with its own number, so every pixel tells where it came from."""
    own = torch.arange(6.0).view(6, 1, 1, 1).expand(6, 3, height, width)
    shares = set()
    for seed in range(60):
        mixed, share = mixed_by(Supervised(cutmix=1.0), own, chance_of(seed))
        kept, pasted = mixed == own, mixed == own.flip(0)
        assert (kept ^ pasted).all()
        assert kept.double().mean(dim=(1, 2, 3)).tolist() == pytest.approx([share] * 6)
        inside = pasted[0, 0].numpy()
        assert (pasted == pasted[:1, :1]).all(), "one rectangle for the batch and all channels"
        if inside.any():
            rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
            assert inside.sum() == (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)
        shares.add(round(share, 6))
    assert len(shares) > 4
    assert torch.equal(own[3, 0, 0], torch.full((width,), 3.0)), "the batch itself is left as it was"


@pytest.mark.parametrize("parameter", [0.2, 1.0, 4.0])
def test_shares_of_mixup_follow_the_beta_distribution(parameter: float) -> None:
    pictures = torch.zeros(2, 1, 1, 1)
    objective, count = Supervised(mixup=parameter), 1500
    chance = chance_of(0)
    shares = np.array([mixed_by(objective, pictures, chance)[1] for _ in range(count)])
    variance = 1 / (4 * (2 * parameter + 1))
    assert abs(shares.mean() - 0.5) < 4.5 * math.sqrt(variance / count)
    assert shares.var() == pytest.approx(variance, rel=0.15)


def test_the_area_of_cutmix_follows_its_draw() -> None:
    """A side of s = √(1 − λ) centred anywhere and cut off at the edge covers s − s²/4 on average, either way.

    With λ uniform the pasted area is then E[(s − s²/4)²] = 1/2 − 1/5 + 1/48 on average.
    """
    pictures = torch.zeros(2, 1, 100, 100)
    pictures[0] = 1
    chance, objective, count = chance_of(1), Supervised(cutmix=1.0), 1500
    areas, whole = [], 0
    for _ in range(count):
        mixed, share = mixed_by(objective, pictures, chance)
        pasted = (mixed[0, 0] == 0).numpy()
        rows, columns = np.flatnonzero(pasted.any(axis=1)), np.flatnonzero(pasted.any(axis=0))
        areas.append(1 - share)
        if len(rows) and min(rows[0], columns[0]) > 0 and max(rows[-1], columns[-1]) < 99:
            assert abs(len(rows) - len(columns)) <= 1, "a square picture gets a square, where nothing is cut off"
            whole += 1
    assert whole > 30
    assert abs(np.mean(areas) - (1 / 2 - 1 / 5 + 1 / 48)) < 4.5 * np.std(areas) / math.sqrt(count)


def test_both_kinds_take_turns_and_a_share_of_batches_stays_plain() -> None:
    own = torch.arange(4.0).view(4, 1, 1, 1).expand(4, 1, 16, 16)
    objective, chance, count = Supervised(mixup=1.0, cutmix=1.0, mixed=0.6), chance_of(2), 1000
    kinds = {"plain": 0, "mixup": 0, "cutmix": 0}
    for _ in range(count):
        mixed, share = mixed_by(objective, own, chance)
        if torch.equal(mixed, own):
            assert share == 1
            kinds["plain"] += 1
        else:
            whole = bool((mixed == mixed[..., :1, :1]).all()) and not bool(
                ((mixed == own) | (mixed == own.flip(0))).all()
            )
            kinds["mixup" if whole else "cutmix"] += 1
    for kind, expected in (("plain", 0.4), ("mixup", 0.3), ("cutmix", 0.3)):
        # A cutmix so small or so large that no pixel or every pixel moved looks like neither; they are few.
        assert abs(kinds[kind] / count - expected) < 4.5 * math.sqrt(expected * (1 - expected) / count) + 0.01


@pytest.mark.parametrize(("until", "done", "mixes"), [(0.0, 0.0, False), (0.5, 0.49, True), (0.5, 0.5, False)])
def test_from_its_share_of_training_on_no_batch_is_mixed(until: float, done: float, mixes: bool) -> None:
    drawn = Supervised(mixup=1.0, mixed_until=until).draw(8, 8, chance_of(3), done)
    assert (drawn.tolist() != [1, 1, 0, 0, 0, 0]) == mixes


def test_mixing_follows_from_the_chance_alone() -> None:
    pictures, labels = some_batch()
    objective = Supervised(mixup=1.0, cutmix=1.0)
    torch.manual_seed(0)
    first = mixed_by(objective, pictures, chance_of(7, 1, 5))
    torch.manual_seed(1)
    second = mixed_by(objective, pictures, chance_of(7, 1, 5))
    assert torch.equal(first[0], second[0])
    assert first[1] == second[1]
    others = [mixed_by(objective, pictures, chance_of(7, 1, step))[1] for step in range(6, 12)]
    assert len({first[1], *others}) == 7
    assert len(labels) == 6


def test_bfloat16_logits_are_charged_in_float32() -> None:
    model, (pictures, labels) = some_model().bfloat16(), some_batch()
    loss, _ = Supervised().loss(model, pictures.bfloat16(), labels, chance_of(0))
    logits = model(pictures.bfloat16())
    assert logits.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(soft_cross_entropy(logits, one_hot(labels)), rel=1e-6)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"mixup": -0.1}, "mixup"),
        ({"cutmix": -1.0}, "cutmix"),
        ({"label_smoothing": -0.1}, "label_smoothing"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"mixed": 1.5}, "mixed"),
        ({"mixed": -0.5}, "mixed"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, float], word: str) -> None:
    with pytest.raises(BadInput, match=word) as caught:
        Supervised(**given)
    assert "\n" not in str(caught.value)
