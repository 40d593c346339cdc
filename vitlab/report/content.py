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
class Restored:
    """A picture of which most was hidden: what the model saw, what it made of it, and what it was."""

    index: int  # in its part
    truth: int
    shown: np.ndarray  # uint8 (c, y, x), the hidden patches grey
    drawn: np.ndarray
    original: np.ndarray


@dataclass(frozen=True, eq=False)
class Neighbour:
    """One training picture near another picture."""

    picture: np.ndarray  # uint8 (c, y, x)
    index: int  # in the training part
    label: int
    cosine: float  # of its features and those of the other


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A picture, and the training pictures whose features are most like its own, the likest first."""

    index: int  # in its part
    truth: int
    picture: np.ndarray
    near: Sequence[Neighbour]


@dataclass(frozen=True, eq=False)
class Unlabelled:
    """What a network learned without labels."""

    aim: str  # mae, dino, or apart: dino without prototypes, which tells the pictures of a batch apart
    knn_accuracy: float | None  # of nearest neighbours, on the test part; none where the pictures have no labels
    pixels_accuracy: float | None  # the same by bare pixels
    apart: tuple[int, int, int] | None  # pictures on which features alone are right, pixels alone, and all
    part: str  # of which the pictures below are: test, or held-out where there is no test part
    patches: tuple[int, int]  # shown to the encoder, and all; (0, 0) where nothing is restored
    restored: Sequence[Restored]
    neighbours: Sequence[Neighbours]
    searched: tuple[int, int]  # training pictures among which neighbours were sought, and all
    points: np.ndarray  # float (n, 2): a map of the features of n pictures of the part
    indices: np.ndarray  # int (n,): which
    labels: np.ndarray  # int (n,)


@dataclass(frozen=True)
class Probe:
    """Logits that are a linear probe on weights from elsewhere, and what nearest neighbours reach beside it."""

    learned: int  # pictures whose features it was fitted to
    held_out: int  # pictures that its decay was chosen on
    decay: float
    knn_accuracy: float
    pixels_accuracy: float
    apart: tuple[int, int, int] | None


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
    probe: Probe | None = None  # where no epoch was trained, since its logits are one
    balance: str = ""  # what the accuracy is where each class counts alike, if the classes are uneven
    temperature: str = ""  # what a temperature did to its confidence, or that one can be fitted
    unlabelled: Unlabelled | None = None  # where it learned without labels; the accuracy is then a linear probe's
