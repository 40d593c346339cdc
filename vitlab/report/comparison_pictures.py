"""The test pictures that say most about the runs of a comparison: those they disagree about, those all get wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from vitlab.data.rows import Rows
from vitlab.report import pictures
from vitlab.report.comparison_runs import Compared

SHOWN = 12
ROOM = 112


@dataclass(frozen=True)
class Answer:
    """What a run says of a picture, and how sure it is."""

    run: Compared
    guess: int
    probability: float
    right: bool


@dataclass(frozen=True)
class Card:
    """One test picture with every run's answer."""

    uri: str
    width: int
    height: int
    index: int
    truth: int
    answers: tuple[Answer, ...]


@dataclass(frozen=True)
class Pictures:
    """Pictures that the runs disagree about, pictures that none reads right, and how many of each there are."""

    disagreed: tuple[Card, ...]
    missed: tuple[Card, ...]
    disagreements: int
    misses: int


def gather(runs: Sequence[Compared], shown: Tensor | Rows) -> Pictures:
    """Choose from the test pictures (n, c, y, x) that all of these runs read."""
    labels = runs[0].evaluation.labels
    guesses = torch.stack([run.evaluation.guesses for run in runs])
    differ = (guesses != guesses[0]).any(dim=0)
    missed = (guesses != labels).all(dim=0)
    contested = differ & ~missed
    disagreements = _highest(disagreement(runs), contested)
    misses = _highest(torch.stack([run.evaluation.losses for run in runs]).mean(dim=0), missed)
    half = SHOWN // 2
    most = max(half, SHOWN - len(misses))
    chosen = disagreements[:most]
    return Pictures(
        disagreed=tuple(_card(runs, shown, index) for index in chosen),
        missed=tuple(_card(runs, shown, index) for index in misses[: SHOWN - len(chosen)]),
        disagreements=int(contested.sum()),
        misses=int(missed.sum()),
    )


def disagreement(runs: Sequence[Compared]) -> Tensor:
    """How far the answers lie apart (n,): the mean over pairs of runs of ½ Σ |p − q|, their total variation."""
    apart = [
        (one.evaluation.probabilities - two.evaluation.probabilities).abs().sum(dim=-1) / 2
        for one, two in combinations(runs, 2)
    ]
    return torch.stack(apart).mean(dim=0)


def _highest(scores: Tensor, among: Tensor) -> list[int]:
    """The places that count, those with the highest score first."""
    places = among.nonzero().flatten()
    return places[scores[places].argsort(descending=True, stable=True)].tolist()


def _card(runs: Sequence[Compared], shown: Tensor | Rows, index: int) -> Card:
    picture = shown[index].numpy()
    truth = int(runs[0].evaluation.labels[index])
    answers = []
    for run in runs:
        guess = int(run.evaluation.guesses[index])
        answers.append(Answer(run, guess, float(run.evaluation.probabilities[index, guess]), guess == truth))
    width, height = pictures.display_size(picture, ROOM)
    return Card(pictures.picture_uri(picture), width, height, index, truth, tuple(answers))
