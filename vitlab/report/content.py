"""What a report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Mistake:
    """One test picture the model got wrong."""

    picture: np.ndarray  # uint8 (c, y, x)
    index: int  # in the test part
    truth: int
    guess: int
    probabilities: np.ndarray  # float (classes,)


@dataclass(frozen=True, eq=False)
class Look:
    """What the model looked at on one picture."""

    picture: np.ndarray  # uint8 (c, y, x)
    truth: int
    guess: int
    probability: float
    maps: np.ndarray  # float (layers, heads, rows, columns): raw weights from the reading token to the patches
    rest: np.ndarray  # float (layers, heads): share of attention on tokens that are not patches


@dataclass(frozen=True, eq=False)
class View:
    """Everything one report shows."""

    title: str
    facts: Mapping[str, str]  # label → value, in order
    accuracy: float  # on the test part
    interval: tuple[float, float]  # 95 %, Wilson
    count: int
    baseline: float  # share of the commonest class
    epochs: Sequence[Mapping[str, float]]
    classes: Sequence[str]
    confusion: np.ndarray  # int (classes, classes): rows truth, columns guess
    calibration: Sequence[tuple[float, float, int]]  # (mean confidence, accuracy, count) per bin
    mistakes: Sequence[Mistake]  # highest loss first
    looks: Sequence[Look]
    looks_note: str  # "from the class token to each patch"
    configuration: str  # pretty JSON
    commands: Sequence[tuple[str, str]]  # (what it does, shell command)
    notes: Sequence[str] = ()
