"""How far the model's confidence can be believed."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vitlab.engine.facts import Facts
from vitlab.engine.run import Run
from vitlab.engine.storage import read_json
from vitlab.report import charts, words
from vitlab.settings import from_json

LARGE = 0.02  # a calibration error above it is worth a temperature


@dataclass(frozen=True)
class Judged:
    """What the temperature did on some pictures: cross-entropy, and the calibration error in `bins` bins."""

    pictures: int
    bins: int
    loss_before: float
    loss_after: float
    error_before: float
    error_after: float


@dataclass(frozen=True)
class Calibration:
    """A temperature, as `vitlab calibrate` keeps it."""

    temperature: float
    validation: Judged  # what it was fitted on
    test: Judged | None  # what it had not seen


def kept(run: Run) -> Calibration | None:
    """What `calibrate` saved with the run; nothing where it was never called."""
    if not run.calibration.exists():
        return None
    where = str(run.calibration)
    content = Facts(read_json(run.calibration), where)
    test = None if content["test"] is None else from_json(Judged, content["test"], where)
    return Calibration(run.temperature, from_json(Judged, content["validation"], where), test)


@dataclass(frozen=True)
class Reliability:
    """The reliability diagram, its error and what both say."""

    drawing: Markup
    error: float
    sentence: str
    bins: tuple[tuple[float, float, int], ...]


def expected_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Expected calibration error: ECE = Σ n_bin / n · |accuracy − confidence| (Naeini et al. 2015)."""
    total = sum(count for _, _, count in bins)
    return sum(count * abs(accuracy - confidence) for confidence, accuracy, count in bins) / total


def gather(bins: Sequence[tuple[float, float, int]]) -> Reliability | None:
    filled = tuple(row for row in bins if row[2] > 0)
    if not filled:
        return None
    total = sum(count for _, _, count in filled)
    excess = sum(count * (confidence - accuracy) for confidence, accuracy, count in filled) / total
    mean = sum(count * confidence for confidence, _, count in filled) / total
    sure, right = words.percent(mean), words.percent(mean - excess)
    sentence = f"On average the model is {sure} sure and {right} right: {_judge(excess)}."
    drawing = charts.reliability(filled, f"Reliability diagram. {sentence}")
    return Reliability(drawing, expected_error(filled), sentence, filled)


def _judge(excess: float) -> str:
    if abs(excess) < 0.01:
        return "its confidence can be taken at its word"
    much = "somewhat" if abs(excess) < 0.05 else "far"
    return f"it is {much} too {'sure' if excess > 0 else 'unsure'} of itself"


def of_temperature(run: Run, bins: Sequence[tuple[float, float, int]]) -> str:
    """What the run's temperature did to its confidence, or that one can be fitted, where it is worth it."""
    fitted = kept(run)
    if fitted:
        before = "The diagram and all other probabilities on this page are those before it."
        told = f"vitlab calibrate fitted the temperature {fitted.temperature:.3f}, which predictions and exports use"
        if fitted.test is None:
            return f"{told}. {before}"
        errors = [words.number(100 * error) for error in (fitted.test.error_before, fitted.test.error_after)]
        return f"{told}: the error on the test part was {errors[0]} points and is {errors[1]} by it. {before}"
    if bins and run.card.validation and not run.shipped and expected_error(bins) > LARGE:
        command = shlex.join(["vitlab", "calibrate", str(run.folder)])
        return f"{command} fits a temperature, by which its probabilities can be believed more."
    return ""
