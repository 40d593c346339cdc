"""What each setting does to the accuracy: means, and the variance taken apart into settings and their interplay."""

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import optuna

from vitlab.report.words import joined
from vitlab.study.results import Point, Results
from vitlab.study.space import Choices
from vitlab.study.store import Kept

LEAST = 8  # trials of a search below which importance is chance


@dataclass(frozen=True)
class Effect:
    """The mean accuracy over all runs with one value of a setting, whatever the other settings are."""

    value: str
    mean: float
    margin: float | None
    runs: int


@dataclass(frozen=True)
class Share:
    """How much of the variance of accuracy a setting explains, or settings together, or seeds."""

    name: str
    share: float


def effects(results: Results, dimension: Choices) -> list[Effect]:
    """Of each value that was trained."""
    points, found = comparable(results, dimension) or results.trusted, []
    for value in dimension.values:
        own = [point for point in points if point.settings[dimension.name] == value]
        runs = [run.accuracy for point in own for run in point.runs]
        if runs:
            found.append(Effect(value, fmean(runs), results.margin(*own), len(runs)))
    return found


def comparable(results: Results, dimension: Choices) -> tuple[Point, ...]:
    """The trusted points whose other settings were trained with every value; a mean over others would flatter some."""
    alike: dict[tuple[str, ...], list[Point]] = {}
    for point in results.trusted:
        others = tuple(value for name, value in point.settings.items() if name != dimension.name)
        alike.setdefault(others, []).append(point)
    values = {point.settings[dimension.name] for point in results.trusted}
    return tuple(point for points in alike.values() if len(points) == len(values) for point in points)


def uneven(results: Results, dimension: Choices) -> str:
    """What to know of these means where not all points are in them; nothing, where all are."""
    compared, every = len(comparable(results, dimension)), len(results.points)
    if not compared:
        return " The other settings differ between these, which is part of it."
    if compared < every:
        return f" Of {every} points these are the {compared} whose other settings all values were soundly trained with."
    return ""


def pair(points: Sequence[Point], first: Choices, second: Choices) -> list[list[float | None]]:
    """The mean accuracy for each value of one setting (rows) and of another (columns)."""
    return [
        [
            mean_or_none([p.accuracy for p in points if p.settings[first.name] == a and p.settings[second.name] == b])
            for b in second.values
        ]
        for a in first.values
    ]


def mean_or_none(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def decompose(values: np.ndarray) -> dict[tuple[int, ...], float]:
    """Variances of a full grid's accuracies (k₁, …, k_d, seeds), which add up to the variance over all runs.

    For every set S of settings, f_S = mean over the others − Σ f_T over the true subsets T of S, and V_S = mean f_S².
    What is left, the variance of the seeds within points, is at the key that names the last axis. Seeds alone raise
    each V_S too, by df_S · s² / N on average, df_S = Π (k − 1) over S, s² the variance within points and N the number
    of runs: so much of it is counted to them.
    """
    means, axes = values.mean(axis=-1), range(values.ndim - 1)
    effect: dict[tuple[int, ...], np.ndarray] = {(): means.mean(keepdims=True)}
    found: dict[tuple[int, ...], float] = {}
    for size in range(1, values.ndim):
        for chosen in itertools.combinations(axes, size):
            others = tuple(axis for axis in axes if axis not in chosen)
            lower = [effect[part] for count in range(size) for part in itertools.combinations(chosen, count)]
            effect[chosen] = means.mean(axis=others, keepdims=True) - sum(lower)
            found[chosen] = float((effect[chosen] ** 2).mean())
    seeds = float(values.var(axis=-1).mean())
    if values.shape[-1] > 1:
        chance = float(values.var(axis=-1, ddof=1).mean()) / values.size
        for chosen, variance in found.items():
            own = min(variance, chance * math.prod(values.shape[axis] - 1 for axis in chosen))
            found[chosen], seeds = variance - own, seeds + own
    return found | {(values.ndim - 1,): seeds}


def shares(results: Results) -> list[Share]:
    """The shares of a full grid, largest first; interplay of three or more settings is summed up."""
    dimensions = [each for each in results.plan.space if isinstance(each, Choices)]
    by_settings = {tuple(point.settings.values()): point for point in results.points}
    shape = [len(each.values) for each in dimensions]
    rows = [[run.accuracy for run in by_settings[tuple(point.values())].runs] for point in results.plan.points()]
    parts = decompose(np.array(rows).reshape(*shape, results.plan.seeds))
    total = sum(parts.values())
    if total == 0:
        return []
    names = [each.name for each in dimensions]
    found: dict[str, float] = {}
    for chosen, variance in parts.items():
        if chosen == (len(names),):
            name = "seeds alone"
        else:
            name = joined([names[axis] for axis in chosen]) + (" together" if len(chosen) > 1 else "")
            name = name if len(chosen) <= 2 else "three or more together"
        found[name] = found.get(name, 0.0) + variance / total
    if results.plan.seeds == 1:
        del found["seeds alone"]
    return sorted((Share(name, share) for name, share in found.items()), key=lambda each: -each.share)


def importance(kept: Kept, results: Results) -> list[Share]:
    """PED-ANOVA's estimate of what separates a search's better trials from the rest; none, if there are too few."""
    if len(results.points) < LEAST or len(results.plan.space) < 2:
        return []
    place = results.plan.objectives.index("accuracy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Mapping[str, float] = optuna.importance.get_param_importances(
            kept.study,
            evaluator=optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25),
            target=lambda trial: -trial.values[place],
        )
    return [Share(name, share) for name, share in found.items()] if sum(found.values()) > 0 else []
