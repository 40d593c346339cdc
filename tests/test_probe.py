"""Nearest neighbours and the linear probe, against loops and Newton's method in NumPy float64."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from kinds import build, small_vit
from loops import pictures_of, small
from numpy.typing import NDArray
from torch import Tensor

from vitlab.data.dataset import DataSet, Part
from vitlab.data.prepared import Normalise, Prepared, describe
from vitlab.engine.probe import DECAYS, Reader, give_head, glance, nearest, probe, regress, share
from vitlab.model import Shape, VisionTransformer
from vitlab.model.blocks import Block
from vitlab.model.heads import Mean
from vitlab.model.tokens import ConvPatches

CPU = torch.device("cpu")


def clouds(count: int, features: int, classes: int, apart: float, seed: int) -> tuple[Tensor, Tensor]:
    """Points around a centre for each class, in float32."""
    random = np.random.RandomState(seed)
    labels = random.randint(classes, size=count)
    points = random.randn(classes, features)[labels] * apart + random.randn(count, features)
    return torch.from_numpy(points).float(), torch.from_numpy(labels)


def voted(bank: NDArray, labels: NDArray, asked: NDArray, classes: int, neighbours: int) -> list[int]:
    """The class for which the sum of exp(cosine / 0.07) over the nearest is largest, one by one."""
    guesses = []
    for one in asked:
        cosines = [float(one @ other / math.sqrt((one @ one) * (other @ other))) for other in bank]
        votes = [0.0] * classes
        for place in sorted(range(len(bank)), key=lambda i: -cosines[i])[:neighbours]:
            votes[labels[place]] += math.exp(cosines[place] / 0.07)
        guesses.append(int(np.argmax(votes)))
    return guesses


@pytest.mark.parametrize(
    ("bank", "asked", "neighbours"), [(60, 80, 20), (60, 80, 1), (7, 30, 20), (25, 1_100, 5), (1, 4, 20)]
)
def test_the_nearest_vote_by_their_likeness(bank: int, asked: int, neighbours: int) -> None:
    points, labels = clouds(bank + asked, 6, 4, 0.5, seed=0)
    points *= torch.from_numpy(np.random.RandomState(1).uniform(0.1, 10, (bank + asked, 1))).float()
    guesses = nearest(points[:bank], labels[:bank], points[bank:], 4, neighbours)
    exact = points.double().numpy()
    assert guesses.tolist() == voted(exact[:bank], labels[:bank].numpy(), exact[bank:], 4, neighbours)
    assert bank == 1 or 0.3 < share(guesses, labels[bank:]) < 1


def test_one_that_is_very_like_outweighs_two_that_are_less_so() -> None:
    """e^(1 / 0.07) against 2 e^(0.9 / 0.07): 4.2 to 2; and against 2 e^(0.96 / 0.07): 1.8 to 2."""
    for cosine, expected in ((0.9, 0), (0.96, 1)):
        beside = math.sqrt(1 - cosine**2)
        bank = torch.tensor([[1.0, 0.0], [cosine, beside], [cosine, -beside]])
        assert nearest(bank, torch.tensor([0, 1, 1]), torch.tensor([[3.0, 0.0]]), 2).tolist() == [expected]


@pytest.mark.parametrize(("guesses", "right"), [([1, 2, 3, 4], 1.0), ([1, 2, 0, 0], 0.5), ([0, 0, 0, 4], 0.25)])
def test_a_share_is_of_right_answers(guesses: list[int], right: float) -> None:
    assert share(torch.tensor(guesses), torch.tensor([1, 2, 3, 4])) == right


@dataclass(frozen=True, eq=False)
class Regression:
    """Mean cross-entropy + decay · ‖W‖² on features of mean 0 and deviation 1, in float64."""

    features: NDArray
    labels: NDArray
    classes: int
    decay: float

    def __post_init__(self) -> None:
        features = (self.features - self.features.mean(axis=0)) / self.features.std(axis=0, ddof=1)
        object.__setattr__(self, "rows", np.hstack([features, np.ones((len(features), 1))]))
        charged = np.ones((self.classes, features.shape[1] + 1)) * self.decay
        charged[:, -1] = 0  # not the biases
        object.__setattr__(self, "charged", charged)

    def shares(self, weights: NDArray) -> NDArray:
        z = self.rows @ weights.T
        z = np.exp(z - z.max(axis=1, keepdims=True))
        return z / z.sum(axis=1, keepdims=True)

    def loss(self, weights: NDArray) -> float:
        right = self.shares(weights)[np.arange(len(self.labels)), self.labels]
        return float(-np.log(right).mean() + (self.charged * weights**2).sum())

    def gradient(self, weights: NDArray) -> NDArray:
        wrong = self.shares(weights) - np.eye(self.classes)[self.labels]
        return wrong.T @ self.rows / len(self.labels) + 2 * self.charged * weights

    def solved(self) -> NDArray:
        """Newton's method with halved steps; weights and, last, biases: (classes, d + 1)."""
        weights = np.zeros_like(self.charged)
        for _ in range(60):
            shares, gradient = self.shares(weights), self.gradient(weights)
            if np.abs(gradient).max() < 1e-11:
                break
            between = np.einsum("nc,ce->nce", shares, np.eye(self.classes)) - np.einsum("nc,ne->nce", shares, shares)
            curvature = np.einsum("nce,ni,nj->ciej", between, self.rows, self.rows) / len(self.labels)
            curvature = curvature.reshape(weights.size, -1) + np.diag(2 * self.charged.ravel())
            step = np.linalg.lstsq(curvature, gradient.ravel(), rcond=1e-13)[0].reshape(weights.shape)
            while self.loss(weights - step) > self.loss(weights) and np.abs(step).max() > 1e-12:
                step = step / 2
            weights = weights - step
        assert np.abs(self.gradient(weights)).max() < 1e-8
        return weights

    def standardised(self, weight: Tensor, bias: Tensor) -> NDArray:
        """Weights for the features as they are, as those for features of mean 0 and deviation 1."""
        exact, mean, deviation = weight.double().numpy(), self.features.mean(axis=0), self.features.std(axis=0, ddof=1)
        return np.hstack([exact * deviation, (bias.double().numpy() + exact @ mean)[:, None]])

    def logits(self, weights: NDArray, features: NDArray) -> NDArray:
        mean, deviation = self.features.mean(axis=0), self.features.std(axis=0, ddof=1)
        return (features - mean) / deviation @ weights[:, :-1].T + weights[:, -1]


@pytest.mark.parametrize(
    ("count", "features", "classes", "apart"), [(300, 6, 4, 0.7), (150, 5, 3, 4.0), (40, 8, 2, 1.0)]
)
@pytest.mark.parametrize("stretched", [False, True])
def test_the_probe_is_at_the_optimum(count: int, features: int, classes: int, apart: float, stretched: bool) -> None:
    """Also where features have means and deviations of their own, for which its weights are."""
    points, labels = clouds(count, features, classes, apart, seed=3)
    if stretched:
        points = points * torch.logspace(-2, 2, features) + torch.linspace(-5, 5, features)
    weight, bias, decay = probe(points, labels, classes)
    assert decay == 1e-4
    problem = Regression(points.double().numpy(), labels.numpy(), classes, decay)
    found, best = problem.standardised(weight, bias), problem.solved()
    assert np.abs(problem.gradient(found)).max() < 3e-4
    assert problem.loss(found) < problem.loss(best) + 1e-5
    random = np.random.RandomState(0)
    assert all(problem.loss(found) < problem.loss(found + random.randn(*found.shape) * 0.05) for _ in range(20))
    logits = (points @ weight.mT + bias).double().numpy()
    expected = problem.logits(best, problem.features)
    difference = (logits - logits.mean(axis=1, keepdims=True)) - (expected - expected.mean(axis=1, keepdims=True))
    assert np.abs(difference).max() < 0.02 * np.abs(expected).max()


def test_it_is_at_the_optimum_also_where_features_go_together_and_the_decay_is_small() -> None:
    """As those of a network do."""
    points, labels = clouds(600, 24, 4, 0.5, seed=7)
    mix = torch.from_numpy(np.random.RandomState(8).randn(2, 24, 24)).float()
    points = points @ (mix[0] * torch.arange(1, 25) ** -2.0) @ mix[1]
    spread = (points - points.mean(dim=0)) / points.std(dim=0)
    weight, bias = regress(spread, labels, 4, 1e-6)
    problem = Regression(points.double().numpy(), labels.numpy(), 4, 1e-6)
    found = np.hstack([weight.double().numpy(), bias.double().numpy()[:, None]])
    assert problem.loss(found) < problem.loss(problem.solved()) + 1e-4


def test_a_solver_of_our_own_is_right_where_the_answer_is_known() -> None:
    """One feature of ±1 and two classes, of which 3 in 4 go with its sign: the logits differ by ±log 3."""
    labels = np.array([0, 0, 0, 1, 1, 1, 1, 0])
    problem = Regression(np.repeat([[-1.0], [1.0]], 4, axis=0), labels, 2, 1e-12)
    logits = problem.logits(problem.solved(), problem.features)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], np.repeat([-math.log(3), math.log(3)], 4), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 3.3, -7.7, 1000.1])
def test_a_constant_feature_does_no_harm(value: float) -> None:
    """Nothing can be learned of it, so nothing may hang on it, nor on a hair's breadth by which it is off later."""
    points, labels = clouds(300, 4, 3, 0.7, seed=5)
    held, _ = clouds(100, 4, 3, 0.7, seed=6)
    weight, bias, _ = probe(points, labels, 3)

    def beside(features: Tensor, constant: float) -> Tensor:
        return torch.cat([features, torch.full((len(features), 1), constant)], dim=1)

    with_it, its_bias, _ = probe(beside(points, value), labels, 3)
    expected = held @ weight.mT + bias
    torch.testing.assert_close(beside(held, value) @ with_it.mT + its_bias, expected, rtol=0.01, atol=0.01)
    torch.testing.assert_close(beside(held, value + 1e-3) @ with_it.mT + its_bias, expected, rtol=0.01, atol=0.02)


def test_of_decays_that_read_as_many_the_strongest_is_taken() -> None:
    """Held-out pictures far from every border are read alike with any of them."""
    points, labels = torch.tensor([[1.0], [2.0], [-1.0], [-2.0]]), torch.tensor([0, 0, 1, 1])
    assert probe(points, labels, 2, (10 * points, labels))[2] == max(DECAYS)


@pytest.mark.parametrize("wanted", DECAYS)
def test_the_decay_is_the_one_that_reads_most_held_out_pictures_right(wanted: float) -> None:
    """The held-out labels are what the solution of one decay says, where it is sure; so that one is right in all."""
    points, labels = clouds(40, 8, 3, 0.9, seed=2)
    held = torch.from_numpy(np.random.RandomState(4).randn(4_000, 8)).float()
    guesses = {}
    for decay in DECAYS:
        problem = Regression(points.double().numpy(), labels.numpy(), 3, decay)
        logits = problem.logits(problem.solved(), held.double().numpy())
        guesses[decay] = logits.argmax(axis=1)
        if decay == wanted:
            first, second = np.sort(logits, axis=1).T[[-1, -2]]
            sure = first - second > 0.01 * np.abs(logits).max()
    right = {decay: int((guesses[decay] == guesses[wanted])[sure].sum()) for decay in DECAYS}
    assert all(right[decay] < sure.sum() - 5 for decay in DECAYS if decay != wanted), "no other is as good"
    known = torch.from_numpy(sure)
    weight, bias, decay = probe(points, labels, 3, (held[known], torch.from_numpy(guesses[wanted])[known]))
    assert decay == wanted
    problem = Regression(points.double().numpy(), labels.numpy(), 3, wanted)
    assert problem.loss(problem.standardised(weight, bias)) == pytest.approx(problem.loss(problem.solved()), abs=1e-4)


def digits() -> Prepared:
    """64 digits to learn from, 100 held out and 150 to test."""
    return pictures_of(small(), 150)


def reader_of(network: VisionTransformer, data: Prepared, at_once: int = 37) -> Reader:
    return Reader(network, Normalise(data.card, CPU), bfloat16=False, at_once=at_once)


def some_network(data: Prepared, **parts: object) -> VisionTransformer:
    shape = Shape(data.card.channels, data.card.height, data.card.width)
    network = build(small_vit(**{"tokens": ConvPatches(7)} | parts), shape)
    network.head.logits = torch.nn.Linear(16, len(data.card.classes))
    return network


def normalised(data: Prepared, part: Part) -> Tensor:
    """By hand, for one channel."""
    return (part.pictures / 255 - data.card.mean[0]) / data.card.deviation[0]


def known_of(network: VisionTransformer, data: Prepared) -> tuple[Tensor, Tensor, Tensor]:
    """Features and labels to learn from, and features held out."""
    with torch.no_grad():
        known, held = (network.eval().features(normalised(data, part)) for part in (data.train, data.validation))
    return known, data.train.labels, held


@pytest.mark.parametrize("head", [None, Mean()])
def test_features_are_what_the_logits_are_made_of(head: Mean | None) -> None:
    data = digits()
    network = some_network(data, block=Block(dropout=0.5), **({"head": head} if head else {})).train()
    network.norm.eval()
    read = reader_of(network, data)(data.test.pictures)
    assert read.shape == (150, 16)
    assert network.training
    assert not network.norm.training, "each layer is left in the mode it was in"
    network.eval()
    with torch.no_grad():
        logits = network.logits(normalised(data, data.test))
        torch.testing.assert_close(network.head.logits(read), logits, rtol=1e-4, atol=1e-4)


def test_the_head_that_is_given_is_the_probe_of_the_networks_features() -> None:
    data = digits()
    network = some_network(data).train()
    facts = give_head(network, reader_of(network, data), data)
    network.eval()
    with torch.no_grad():
        known, asked = (network.features(normalised(data, part)) for part in (data.train, data.test))
        logits = network.logits(normalised(data, data.test))
    weight, bias = network.head.logits.weight.detach(), network.head.logits.bias.detach()
    expected = asked.double().numpy() @ weight.double().numpy().T + bias.double().numpy()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-3)
    problem = Regression(known.double().numpy(), data.train.labels.numpy(), 10, facts["probe_decay"])
    found = problem.standardised(weight, bias)
    assert np.abs(problem.gradient(found)).max() < 1e-3
    guesses = voted(known.double().numpy(), data.train.labels.numpy(), asked.double().numpy(), 10, 20)
    assert facts["knn_accuracy"] == np.mean(np.array(guesses) == data.test.labels.numpy())


def test_without_held_out_pictures_the_head_is_given_by_the_middle_decay() -> None:
    data = digits()
    data = Prepared(data.card, data.train, Part(data.validation.pictures[:0], data.validation.labels[:0]), data.test)
    network = some_network(data)
    assert give_head(network, reader_of(network, data), data)["probe_decay"] == 1e-4
    assert network.head.logits.weight.abs().max() > 0


def test_a_glance_is_the_accuracy_of_neighbours_on_the_held_out_pictures() -> None:
    data = digits()
    network = some_network(data)
    known, labels, held = known_of(network, data)
    guesses = np.array(voted(known.double().numpy(), labels.numpy(), held.double().numpy(), 10, 20))
    assert glance(reader_of(network, data), data) == np.mean(guesses == data.validation.labels.numpy())


def test_a_glance_at_pictures_in_the_order_of_their_classes_sees_every_class() -> None:
    """As they lie in a folder: three kinds of pictures that any network tells apart, 2 500 of each."""
    kinds = torch.zeros(3, 1, 4, 4, dtype=torch.uint8)
    kinds[0, :, :2], kinds[1, :, :, :2], kinds[2, :, 1::2, 1::2] = 250, 250, 250
    parts = [Part(kinds.repeat_interleave(n, dim=0), torch.arange(3).repeat_interleave(n)) for n in (2_500, 400, 1)]
    loaded = DataSet("sorted", ("a", "b", "c"), parts[0], parts[2])
    data = Prepared(describe(loaded, parts[0], parts[1]), *parts)
    network = some_network(data, tokens=ConvPatches(2), depth=1)
    everything = nearest(*known_of(network, data), 3)
    assert share(everything, data.validation.labels) == 1
    assert glance(reader_of(network, data, 1_000), data) == 1
