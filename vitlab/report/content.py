"""What a report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.look import Look, Places, Trust
from vitlab.report.explorer import Explorer


@dataclass(frozen=True, eq=False)
class Mistake:
    """One test picture the model got wrong."""

    picture: np.ndarray  # uint8 (c, y, x)
    index: int  # in the test part
    truth: int
    guess: int
    probabilities: np.ndarray  # float (classes,)


@dataclass(frozen=True, eq=False)
class Insight:
    """What was found inside the model."""

    look: Look
    explorer: Explorer
    trust: Trust
    places: Sequence[Places]


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
    insight: Insight | None  # where the model has maps
    no_insight: str  # why it has none
    configuration: str  # pretty JSON
    commands: Sequence[tuple[str, str]]  # (what it does, shell command)
    notes: Sequence[str] = ()
