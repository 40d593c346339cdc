"""A study as one self-contained page: the recommendation first, then what it rests on."""

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from vitlab.report import charts as lines
from vitlab.report import words
from vitlab.report.comparison_cost import duration
from vitlab.report.template import fill, script
from vitlab.study import advice as advising
from vitlab.study.charts import Accuracies, Dot, accuracies, cloud, effect
from vitlab.study.effects import LEAST, Share, effects, importance, pair, shares, uneven
from vitlab.study.plan import Plan
from vitlab.study.results import Point, Results, pareto, read_results
from vitlab.study.space import Choices, Dimension, as_number, short
from vitlab.study.store import Kept

LINES = 6  # learning curves that can be told apart
PAIRS = 6  # heat maps on one page


@dataclass(frozen=True)
class Figure:
    """A drawing, and what it shows in a few words."""

    drawing: Markup
    sentence: str


@dataclass(frozen=True)
class Heat:
    """The mean accuracy for two settings at a time: names, values, and cells of text with a share of colour."""

    rows: Choices
    columns: Choices
    cells: list[list[tuple[str, float]]]
    best: str


def render(kept: Kept, folder: Path, commands: Sequence[tuple[str, str]]) -> str:
    """The whole page of a study whose runs are in this folder."""
    found = read_results(kept)
    advice = advising.advise(found)
    if advice is None:
        raise advising.unready(kept.plan.name)
    dimensions = [each for each in kept.plan.space if isinstance(each, Choices)]
    pairs = list(itertools.combinations(dimensions, 2))
    return fill(
        "vitlab.study",
        "study",
        {"percent": words.percent, "grouped": words.grouped, "duration": duration, "short": short},
        shared=("report", "comparison"),
        plan=kept.plan,
        space=[described(each) for each in kept.plan.space],
        results=found,
        advice=advice,
        caveat=advising.CAVEAT,
        tested=advising.tested(advice.chosen),
        facts=facts(kept.plan, found),
        effects=[effect_of(found, dimension, advice.chosen) for dimension in kept.plan.space],
        importance=weights(kept, found),
        heats=[heat(found.trusted, *each) for each in pairs[:PAIRS]],
        left_out=max(len(pairs) - PAIRS, 0),
        costs=costs(found, advice.chosen),
        curves=learning(found, advice),
        rows=rows(found, advice.chosen),
        commands=[
            *commands,
            (
                "Train the recommended settings again (epochs=… limit=0 for a full training)",
                training(folder, advice.chosen),
            ),
        ],
        **script("report"),
    )


def described(dimension: Dimension) -> tuple[str, str]:
    if isinstance(dimension, Choices):
        return dimension.name, ", ".join(dimension.values)
    return dimension.name, f"{dimension.low:g} to {dimension.high:g}{', logarithmic' if dimension.log else ''}"


def facts(plan: Plan, found: Results) -> list[tuple[str, str]]:
    counts = found.counts
    open_ones = sum(counts.get(state, 0) for state in ("running", "waiting", "missing"))
    states = [f"{counts.get('complete', 0)} complete"]
    states += [f"{counts[state]} {state}" for state in ("pruned", "failed") if counts.get(state)]
    states += [f"{open_ones} still to come"] if open_ones else []
    return [
        ("trials", ", ".join(states)),
        (
            "kind",
            "grid, every point trained"
            if plan.grid
            else "search by TPE" + f", pruned by {plan.prune}" * (plan.prune != "none"),
        ),
        ("seeds", str(plan.seeds)),
        ("epochs", str(plan.base.training.epochs)),
        ("device", "; ".join(found.devices)),
    ]


def effect_of(found: Results, dimension: Dimension, chosen: Point) -> Figure:
    """What a setting does: the mean for each value over all that the other settings take, or every trial in a range."""
    if not isinstance(dimension, Choices):
        dots = [
            Dot(float(point.settings[dimension.name]), point.accuracy, None, point.name, kind)
            for points, kind in ((found.pruned, "other"), (found.points, "front"), ((chosen,), "chosen"))
            for point in points
        ]
        best = short(max(found.points, key=lambda point: point.accuracy).settings[dimension.name])
        hollow = ", hollow where it was stopped early" if found.pruned else ""
        sentence = f"Each dot is a trial{hollow}; the most accurate has {best}."
        return Figure(cloud(dimension.name, dots, accuracies(dots), dimension.log), sentence)
    means = effects(found, dimension)
    labels = [short(each.value) for each in means]
    dots = [
        Dot(
            place,
            each.mean,
            each.margin,
            f"{dimension.name} {each.value}: {spread(each.mean, each.margin)}, {each.runs} runs",
        )
        for place, each in enumerate(means)
    ]
    low, high = min(means, key=lambda each: each.mean), max(means, key=lambda each: each.mean)
    sentence = (
        f"From {words.percent(low.mean)} at {short(low.value)} to {words.percent(high.mean)} at {short(high.value)}"
    )
    numbers = all(as_number(each.value) is not None for each in means)
    sentence += "." + uneven(found, dimension)
    return Figure(effect(dimension.name, labels, dots, accuracies(dots), numbers and len(means) > 1), sentence)


def spread(mean: float, margin: float | None) -> str:
    return words.percent(mean) + (f" ± {100 * margin:.1f}" if margin is not None else "")


def weights(kept: Kept, found: Results) -> tuple[str, list[Share]]:
    """Which settings matter, and how that is known."""
    if found.complete:
        exact = (
            "The grid is full, so the variance of accuracy over its runs splits into what each setting does alone, "
            "what settings do only together, and what seeds do, with what seeds alone would have shown as a setting's."
        )
        return exact, shares(found)
    estimated = (
        "Estimated by PED-ANOVA: how far the best quarter of the trials differs from all of them in each setting."
        if not kept.plan.grid
        else "Not every point of the grid is trained, so these are estimates (PED-ANOVA), not exact shares."
    )
    known = importance(kept, found)
    few = f"There are too few trials to tell ({LEAST} or more, of two settings or more, are needed)."
    return (estimated, known) if known else (few, [])


def heat(points: Sequence[Point], first: Choices, second: Choices) -> Heat:
    """Colour from the lowest mean to the highest."""
    table = pair(points, first, second)
    known = [value for row in table for value in row if value is not None]
    low, high = min(known), max(known)
    cells = [
        [
            ("–", 0.0) if value is None else (f"{100 * value:.1f}", 0.08 + 0.92 * (value - low) / ((high - low) or 1.0))
            for value in row
        ]
        for row in table
    ]
    places = [
        (value, a, b)
        for row, a in zip(table, first.values, strict=True)
        for value, b in zip(row, second.values, strict=True)
    ]
    value, a, b = max((place for place in places if place[0] is not None), key=lambda place: place[0] or 0.0)
    return Heat(first, second, cells, f"Highest at {first.name} {short(a)}, {second.name} {short(b)}: {value:.1%}.")


def costs(found: Results, chosen: Point) -> list[Figure]:
    """Accuracy against time and against the number of weights, each with the points that no other beats."""
    figures = []
    for cost, axis in (("seconds", "seconds of training"), ("parameters", "weights")):
        on_front = pareto(found.points, cost)

        def dot(point: Point, cost: str = cost, on_front: Sequence[Point] = on_front) -> Dot:
            kind = "chosen" if point is chosen else "front" if point in on_front else "other"
            price = duration(point.seconds) if cost == "seconds" else words.grouped(point.parameters)
            margin = found.margin(point)
            return Dot(
                float(getattr(point, cost)),
                point.accuracy,
                margin,
                f"{point.name}: {spread(point.accuracy, margin)}, {price}",
                kind,
            )

        dots = [dot(point) for point in found.points]
        names = "; ".join(point.name for point in on_front)
        count = f"{len(on_front)} point{'s' * (len(on_front) > 1)}"
        beaten = f"these: {names}" if len(on_front) <= 3 else f"the {count} on the line"
        sentence = f"No point is both cheaper and more accurate than {beaten}."
        figures.append(Figure(cloud(axis, dots, accuracies(dots), True, [dot(point) for point in on_front]), sentence))
    return figures


def learning(found: Results, advice: advising.Advice) -> tuple[list[tuple[Point, str]], list[Figure]]:
    """Curves of a few points, mean over seeds: against epochs, and against time."""
    ranked = sorted(found.points, key=lambda point: -point.accuracy)
    fast = min(found.points, key=lambda point: point.seconds)
    wanted = [advice.chosen, advice.best, fast, *ranked[:: max(len(ranked) // (LINES - 2), 1)]]
    shown = list(dict.fromkeys(wanted))[:LINES]
    by_epoch = [curve(point, place, 0) for place, point in enumerate(shown)]
    by_time = [curve(point, place, 1) for place, point in enumerate(shown)]
    scale = accuracies([Dot(0, value, None, "") for each in by_epoch for value in each.values])
    figures = [
        Figure(
            drawn(by_epoch, scale, ("epoch", "epoch"), None),
            "At equal epochs: every point learns from as many pictures.",
        ),
        Figure(
            drawn(by_time, scale, ("seconds of training", "seconds"), found.fastest),
            f"At equal time: the dotted line is {duration(found.fastest)}, when the fastest run ended.",
        ),
    ]
    return [(point, f"run-{place + 1}") for place, point in enumerate(shown)], figures


def curve(point: Point, place: int, column: int) -> lines.Series:
    """The mean over seeds after each epoch, at its number or its mean time."""
    count = min(len(run.curve) for run in point.runs)
    epochs = [round(fmean(run.curve[epoch][column] for run in point.runs), 3) for epoch in range(count)]
    values = [fmean(run.curve[epoch][2] for run in point.runs) for epoch in range(count)]
    return lines.Series(point.name, f"run run-{place + 1}", values, epochs=epochs, short=chr(ord("A") + place))


def drawn(series: Sequence[lines.Series], scale: Accuracies, across: tuple[str, str], moment: float | None) -> Markup:
    places = sorted({place for each in series for place in each.epochs or ()})
    ticks = [lines.Tick(mark, f"{round(100 * mark, 6):g}{words.NARROW_SPACE}%") for mark in scale.marks]
    return lines.curves(
        places, series, f"validation accuracy against {across[1]}", form=words.percent,
        bounds=(scale.low, scale.high), ticks=ticks, across=across, moment=moment,
    )  # fmt: skip


def rows(found: Results, chosen: Point) -> list[dict[str, Any]]:
    """Every point, the most accurate first, with its accuracy at equal epochs and at equal time."""
    fronts = [set(map(id, pareto(found.points, cost))) for cost in ("seconds", "parameters")]
    return [
        {
            "point": point,
            "accuracy": spread(point.accuracy, found.margin(point)),
            "early": words.MISSING if (early := point.at(found.fastest)) is None else words.percent(early),
            "chosen": point is chosen,
            "fronts": [name for name, front in zip(("time", "weights"), fronts, strict=True) if id(point) in front],
        }
        for point in sorted(found.points, key=lambda point: -point.accuracy)
    ]


def training(folder: Path, chosen: Point) -> str:
    words = ["vitlab", "train", f"{folder}/{chosen.runs[0].folder}/experiment.json", "--name", f"{folder.name}-chosen"]
    return shlex.join(words)
