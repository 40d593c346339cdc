"""The pictures the model got most wrong."""

from dataclasses import dataclass

import numpy as np

from vitlab.report import pictures
from vitlab.report.content import Mistake

ROOM = 112
ANSWERS = 3


@dataclass(frozen=True)
class Card:
    """One mistake as the page shows it: the likeliest answers, and the truth even where it is not among them."""

    uri: str
    width: int
    height: int
    index: int
    truth: int
    guess: int
    answers: tuple[tuple[int, float], ...]


def card(mistake: Mistake) -> Card:
    """The picture and its answers, likeliest first."""
    order = [int(answer) for answer in np.argsort(-mistake.probabilities, kind="stable")[:ANSWERS]]
    if mistake.truth not in order:
        order.append(mistake.truth)
    answers = tuple((answer, float(mistake.probabilities[answer])) for answer in order)
    width, height = pictures.display_size(mistake.picture, ROOM)
    uri = pictures.picture_uri(mistake.picture)
    return Card(uri, width, height, mistake.index, mistake.truth, mistake.guess, answers)
