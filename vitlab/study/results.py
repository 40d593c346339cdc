"""What a study has found so far: its points, each with its runs, and how much seeds alone make accuracies differ."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from vitlab.errors import BadInput
from vitlab.sample import Difference, of_pairs, student
from vitlab.settings import from_json
from vitlab.study.ledger import Ledger, Slot
from vitlab.study.plan import Plan
from vitlab.study.space import called
from vitlab.study.store import Kept, readable

LEAST = 0.001  # a share of right or wrong answers below which log-odds say more than a few pictures can


@dataclass(frozen=True)
class Ran:
    """One run: its accuracy on held-out pictures, what it cost, and its accuracy after each epoch."""

    seed: int
    accuracy: float
    seconds: float
    parameters: int
    curve: tuple[tuple[float, float, float], ...]  # epoch, seconds, accuracy
    folder: str
    device: str
    test_accuracy: float | None  # read for the chosen point alone

    def at(self, seconds: float) -> float | None:
        """The accuracy at a time: after the last epoch that had ended; none, if none had."""
        ended = [accuracy for _, time, accuracy in self.curve if time <= seconds]
        return ended[-1] if ended else None


@dataclass(frozen=True, eq=False)
class Point:
    """Settings, and a run of them for each seed."""

    settings: Mapping[str, str]
    runs: tuple[Ran, ...]

    @property
    def name(self) -> str:
        return called(self.settings)

    @cached_property
    def accuracy(self) -> float:
        return fmean(run.accuracy for run in self.runs)

    @cached_property
    def seconds(self) -> float:
        return fmean(run.seconds for run in self.runs)

    @property
    def parameters(self) -> int:
        return self.runs[0].parameters

    def at(self, seconds: float) -> float | None:
        """The mean accuracy at a time; none, if a run had none yet."""
        found = [run.at(seconds) for run in self.runs]
        known = [accuracy for accuracy in found if accuracy is not None]
        return fmean(known) if len(known) == len(found) else None


@dataclass(frozen=True)
class Results:
    """The points that are trained, those that were pruned, and the settings that failed."""

    plan: Plan
    points: tuple[Point, ...]
    pruned: tuple[Point, ...]
    failed: tuple[tuple[str, str], ...]  # the settings and why, in words
    counts: Mapping[str, int]  # of tasks, by state

    @property
    def complete(self) -> bool:
        """Whether it is a grid, and every point has every seed."""
        return self.plan.grid and self.counts.get("complete", 0) == self.plan.count

    @cached_property
    def freedom(self) -> int:
        """ν = Σ (nᵢ − 1), over points of nᵢ seeds."""
        return sum(len(point.runs) - 1 for point in self.points)

    @cached_property
    def deviation(self) -> float | None:
        """s² = Σ Σ (l − l̄ᵢ)² / ν, l = log(p / (1 − p)): how far runs of the same settings spread over seeds.

        It is pooled over points, on the scale of log-odds: a spread of 5 points at 60 % and one of 1 at 95 % are alike.
        """
        if not self.freedom:
            return None
        squares = 0.0
        for point in self.points:
            odds = [log_odds(run.accuracy) for run in point.runs]
            squares += sum((each - fmean(odds)) ** 2 for each in odds)
        return math.sqrt(squares / self.freedom)

    def error(self, *points: Point) -> float | None:
        """The standard error of the mean over all n runs of some points: √(Σ (s p (1 − p))²) / n."""
        if self.deviation is None:
            return None
        runs = sum(len(point.runs) for point in points)
        squares = sum(len(point.runs) * (self.deviation * slope(point.accuracy)) ** 2 for point in points)
        return math.sqrt(squares) / runs

    def margin(self, *points: Point) -> float | None:
        """Half the width of that mean's 95 % interval: t(ν) standard errors."""
        error = self.error(*points)
        return None if error is None else student(self.freedom) * error

    def difference(self, one: Point, two: Point) -> Difference:
        """x̄₁ − x̄₂ ± t(ν) · √(e₁² + e₂²), e their standard errors, t wide enough for every pair of points at once.

        The highest is compared with all others, and would else be told apart from some by luck alone.
        """
        first, second = self.error(one), self.error(two)
        if first is None or second is None:
            return Difference(one.accuracy - two.accuracy, None)
        wide = student(self.freedom, of_pairs(len(self.points)))
        return Difference(one.accuracy - two.accuracy, wide * math.hypot(first, second))

    @cached_property
    def sound(self) -> tuple[Point, ...]:
        """The points of which no seed failed; a mean over those that did not would flatter the others."""
        failed = {name for name, _ in self.failed}
        return tuple(point for point in self.points if point.name not in failed)

    @cached_property
    def trusted(self) -> tuple[Point, ...]:
        """The sound points, to be recommended and compared; all of them, where none is sound."""
        return self.sound or self.points

    @cached_property
    def fastest(self) -> float:
        """When the first run ended, in seconds of its training: the time that all of them had."""
        return min(run.seconds for point in self.points for run in point.runs)

    @cached_property
    def devices(self) -> list[str]:
        return sorted({run.device for point in self.points for run in point.runs})


def log_odds(share: float) -> float:
    share = min(max(share, LEAST), 1 - LEAST)
    return math.log(share / (1 - share))


def slope(share: float) -> float:
    """dp / dl = p (1 − p): from a spread in log-odds to one in shares."""
    share = min(max(share, LEAST), 1 - LEAST)
    return share * (1 - share)


def read_results(kept: Kept) -> Results:
    slots = Ledger(kept).slots()
    counts: dict[str, int] = {}
    with readable(kept.place.shown):
        for slot in slots:
            counts[slot.state] = counts.get(slot.state, 0) + 1
        return Results(
            kept.plan,
            gather_points(slot for slot in slots if slot.state == "complete"),
            gather_points(slot for slot in slots if slot.state == "pruned"),
            tuple(dict.fromkeys((called(slot.point()), slot.why) for slot in slots if slot.state == "failed")),
            counts,
        )


def gather_points(slots: Iterable[Slot]) -> tuple[Point, ...]:
    """Runs of the same settings together, each seed once, in the order of the plan."""
    found: dict[tuple[tuple[str, str], ...], dict[int, Ran]] = {}
    for slot in slots:
        assert slot.settled is not None
        runs = found.setdefault(tuple(slot.point().items()), {})
        for each in slot.settled.user_attrs["runs"]:
            runs.setdefault(each["seed"], ran(each))
    return tuple(Point(dict(key), tuple(runs[seed] for seed in sorted(runs))) for key, runs in found.items())


def ran(kept: Mapping[str, Any]) -> Ran:
    """A run as the storage has it, where a number may have become another thing."""
    kinds = {"seed": int, "accuracy": float, "seconds": float, "parameters": int, "folder": str, "device": str}
    facts = {name: from_json(kind, kept[name], name) for name, kind in kinds.items()}
    curve = [from_json(tuple[float, ...], line, "curve") for line in kept["curve"]]
    tested = kept["test_accuracy"]
    if any(len(line) != 3 for line in curve) or not 0 <= facts["accuracy"] <= 1 or facts["seconds"] < 0:
        raise BadInput("a run has an accuracy from 0 to 1, seconds, and a curve of epoch, seconds and accuracy")
    return Ran(
        curve=tuple(curve), **facts,
        test_accuracy=None if tested is None else from_json(float, tested, "test_accuracy"),
    )  # fmt: skip


def front(costs: Sequence[tuple[float, ...]]) -> list[int]:
    """The places that no other beats: none is as low in every cost and lower in one."""
    return [
        place
        for place, cost in enumerate(costs)
        if not any(other != cost and all(a <= b for a, b in zip(other, cost, strict=True)) for other in costs)
    ]


def pareto(points: Sequence[Point], *costs: str) -> list[Point]:
    """The points on the front of accuracy against some costs, cheapest first."""
    rated = [(-point.accuracy, *(float(getattr(point, cost)) for cost in costs)) for point in points]
    return sorted((points[place] for place in front(rated)), key=lambda point: getattr(point, costs[0]))
