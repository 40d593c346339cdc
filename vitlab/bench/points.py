"""One measured point of a curve, and what may be said of the curves they form."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Cost = Literal["milliseconds", "memory"]


@dataclass(frozen=True)
class Point:
    """What one size costs in one series, or why it was left out."""

    series: str  # a kind of attention, or what is doubled
    size: int
    milliseconds: float | None = None  # median over the rounds
    fastest: float | None = None  # milliseconds of the best round
    memory: int | None = None  # bytes at the peak
    note: str = ""


def curves(points: Iterable[Point], cost: Cost) -> dict[str, dict[int, float]]:
    """Series → size → cost, of what was measured."""
    found: dict[str, dict[int, float]] = {}
    for point in points:
        value = getattr(point, cost)
        line = found.setdefault(point.series, {})
        if value is not None:
            line[point.size] = value
    return found
