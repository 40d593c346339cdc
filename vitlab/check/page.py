"""Reports as one self-contained page, with the evidence as pictures."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vitlab.check.finding import Picture, Report
from vitlab.check.terminal import MARKS, QUESTIONS, heading, summary
from vitlab.report.pictures import map_uri, picture_uri
from vitlab.report.template import fill

WRONG = ("mistake", "warning", "unknown")  # what is shown first


def render(reports: Sequence[Report]) -> str:
    """The whole page; the same reports give the same text."""
    filters: dict[str, Callable[..., Any]] = {"heading": heading, "summary": summary, "draw": draw, "bars": bars}
    return fill("vitlab.check", "check", filters, reports=reports, questions=QUESTIONS, marks=MARKS, wrong=WRONG)


def draw(picture: Picture) -> str:
    """A map or a picture as a PNG data URI, one pixel for each number."""
    values = np.array(picture.rows, float)
    if picture.kind == "map":
        return map_uri(values, signed=False)
    low, high = values.min(), values.max()
    pixels = (values - low) / ((high - low) or 1.0) * 255
    return picture_uri(pixels.round().astype(np.uint8)[None])


def bars(picture: Picture) -> list[tuple[float, str]]:
    """The height of each bar in percent of the largest, and its number."""
    values = [abs(value) for value in picture.rows[0]]
    largest = max(values, default=0.0) or 1.0
    return [(round(100 * value / largest, 1), f"{value:.3g}") for value in values]
