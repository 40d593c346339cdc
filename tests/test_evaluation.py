"""What follows from logits and labels: the figures of every report, against plain loops and published ones."""

import math

import numpy as np
import pytest
import torch
from kinds import CLASSES, SHAPE, build, small_vit
from torch import Tensor

from vitlab.data.dataset import Part
from vitlab.engine.evaluation import Evaluation, evaluate_part, wilson
from vitlab.engine.probe import Reader


@pytest.fixture(scope="module")
def answers() -> Evaluation:
    """Logits of 300 pictures and 4 classes, of which the last is never right and never named."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (300,), generator=generator)
    logits = 2 * torch.randn(300, 4, generator=generator) + 2 * torch.nn.functional.one_hot(labels, 4)
    logits[:, 3] = -9
    return Evaluation(logits, labels)


# Newcombe (1998), table I: the score interval without continuity correction.
@pytest.mark.parametrize(
    ("correct", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_the_published_one(correct: int, count: int, low: float, high: float) -> None:
    assert wilson(correct, count) == pytest.approx((low, high), abs=5e-5)
    assert wilson(count - correct, count) == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_accuracy_loss_and_confusion_are_counted_picture_by_picture(answers: Evaluation) -> None:
    losses, right, confusion = [], 0, np.zeros((4, 4), dtype=int)
    for row, label in zip(answers.logits.double().tolist(), answers.labels.tolist(), strict=True):
        losses.append(math.log(sum(math.exp(logit) for logit in row)) - row[label])
        guess = max(range(4), key=row.__getitem__)
        confusion[label, guess] += 1
        right += guess == label
    assert answers.correct == right
    assert answers.accuracy == right / 300
    assert answers.interval == wilson(right, 300)
    assert answers.loss == pytest.approx(np.mean(losses), rel=1e-6)
    np.testing.assert_array_equal(answers.confusion(), confusion)
    assert 0.5 < answers.accuracy < 0.95
    assert np.count_nonzero(confusion - confusion.T)


def test_balanced_accuracy_counts_each_class_that_has_pictures_alike(answers: Evaluation) -> None:
    guesses, labels = answers.logits.numpy().argmax(axis=1), answers.labels.numpy()
    shares = [float((guesses[labels == label] == label).mean()) for label in range(3)]
    np.testing.assert_allclose(answers.recall, [*shares, np.nan])
    assert answers.balanced_accuracy == pytest.approx(np.mean(shares))
    assert not answers.uneven
    rare = np.concatenate([np.flatnonzero(labels != 1), np.flatnonzero(labels == 1)[:5]])
    some = Evaluation(answers.logits[rare], answers.labels[rare])
    assert some.uneven
    again = float((guesses[rare[-5:]] == 1).mean())
    assert some.balanced_accuracy == pytest.approx((shares[0] + again + shares[2]) / 3)
    nothing = Evaluation(answers.logits[:0], answers.labels[:0])
    assert math.isnan(nothing.balanced_accuracy)
    assert not nothing.uneven


def test_calibration_sorts_pictures_by_how_sure_the_model_is(answers: Evaluation) -> None:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for row, label in zip(answers.logits.double().numpy(), answers.labels.tolist(), strict=True):
        shares = np.exp(row) / np.exp(row).sum()
        bins[int(shares.max() * 10)].append((shares.max(), shares.argmax() == label))
    expected = [(*np.mean(some, axis=0), len(some)) for some in bins if some]
    np.testing.assert_allclose(answers.calibration(), expected, rtol=1e-6)
    assert len(expected) > 5
    certain = Evaluation(torch.tensor([[0.0, 99.0]]), torch.tensor([1]))
    assert certain.calibration() == [(1.0, 1.0, 1)]


def test_answers_that_are_no_numbers_are_counted() -> None:
    logits = torch.zeros(5, 2)
    logits[1, 0], logits[2, 1], logits[3] = torch.nan, torch.inf, torch.tensor([-torch.inf, 0.0])
    assert Evaluation(logits, torch.zeros(5, dtype=torch.long)).unanswered == 3
    assert Evaluation(logits[:1], torch.zeros(1, dtype=torch.long)).unanswered == 0


def rounding() -> tuple[str, bool]:
    """How float32 products are rounded now: of matrices, and of convolutions on a GPU."""
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


def test_no_figure_is_rounded_by_what_a_caller_has_chosen() -> None:
    network, seen = build(small_vit()), list[tuple[str, bool]]()
    part = Part(torch.zeros(5, SHAPE.channels, SHAPE.height, SHAPE.width, dtype=torch.uint8), torch.zeros(5).long())

    def normalise(pictures: Tensor) -> Tensor:
        seen.append(rounding())
        return pictures

    before = rounding()
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    try:
        assert evaluate_part(network, part, normalise, bfloat16=False).logits.shape == (5, CLASSES)
        Reader(network, normalise, bfloat16=False, at_once=500)(part.pictures)
        assert rounding() == ("medium", True)
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
    assert seen == [("highest", False)] * 2
