"""How far the model's confidence can be believed."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vitlab.report import charts, words


@dataclass(frozen=True)
class Calibration:
    """The reliability diagram, its error and what both say."""

    drawing: Markup
    error: float
    sentence: str
    bins: tuple[tuple[float, float, int], ...]


def expected_error(bins: Sequence[tuple[float, float, int]]) -> float:
    """Expected calibration error: ECE = Σ n_bin / n · |accuracy − confidence| (Naeini et al. 2015)."""
    total = sum(count for _, _, count in bins)
    return sum(count * abs(accuracy - confidence) for confidence, accuracy, count in bins) / total


def gather(bins: Sequence[tuple[float, float, int]]) -> Calibration | None:
    filled = tuple(row for row in bins if row[2] > 0)
    if not filled:
        return None
    total = sum(count for _, _, count in filled)
    excess = sum(count * (confidence - accuracy) for confidence, accuracy, count in filled) / total
    mean = sum(count * confidence for confidence, _, count in filled) / total
    sure, right = words.percent(mean), words.percent(mean - excess)
    sentence = f"On average the model is {sure} sure and {right} right: {_judge(excess)}."
    drawing = charts.reliability(filled, f"Reliability diagram. {sentence}")
    return Calibration(drawing, expected_error(filled), sentence, filled)


def _judge(excess: float) -> str:
    if abs(excess) < 0.01:
        return "its confidence can be taken at its word"
    much = "somewhat" if abs(excess) < 0.05 else "far"
    return f"it is {much} too {'sure' if excess > 0 else 'unsure'} of itself"
