"""The course of training: a few charts, what they say, and the numbers behind them."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from vitlab.report import charts, words

ROWS = 100
COLUMNS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "loss": ("training loss", words.number),
    "validation_loss": ("validation loss", words.number),
    "accuracy": ("training accuracy", words.percent),
    "validation_accuracy": ("validation accuracy", words.percent),
    "knn_accuracy": ("k-NN, held out", words.percent),
    "spread": ("spread", words.number),
    "teacher_entropy": ("entropy", words.number),
    "variety": ("variety", words.number),
    "learning_rate": ("learning rate", lambda value: f"{value:.2e}".replace("-", "−")),
    "seconds": ("seconds", words.number),
    "images_per_second": ("pictures/s", lambda value: words.grouped(round(value))),
}
# The lines of each chart: a measure, its label, the label where there is little room, and what sentences call it.
LINES: Mapping[str, Sequence[tuple[str, str, str, str]]] = {
    "loss": (
        ("validation_loss", "validation", "", "Validation loss"),
        ("loss", "training", "", "Training loss"),
    ),
    "accuracy": (
        ("validation_accuracy", "validation", "", "Validation accuracy"),
        ("accuracy", "training", "", "Training accuracy"),
        ("knn_accuracy", "k-NN, held out", "k-NN", "k-NN accuracy"),
    ),
    "spread": (("spread", "spread", "", "Spread of the features"),),
}
HELD_OUT = ("validation_loss", "validation_accuracy", "knn_accuracy")


@dataclass(frozen=True)
class Chart:
    """One drawn chart and the sentence that says what it shows."""

    name: str
    drawing: Markup
    sentence: str


@dataclass(frozen=True)
class History:
    """The charts, and a table of at most ROWS epochs."""

    charts: tuple[Chart, ...]
    validated: bool
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    every: int  # the table shows one epoch in this many


def gather(epochs: Sequence[Mapping[str, float]], baseline: float) -> History:
    """Charts and table of a run's epochs; measures that no epoch has are left out."""
    numbers = [float(epoch.get("epoch", index + 1)) for index, epoch in enumerate(epochs)]
    columns = {name: [value_of(epoch.get(name)) for epoch in epochs] for name in COLUMNS}
    columns = {name: values for name, values in columns.items() if any(map(math.isfinite, values))}
    drawn = [_chart(name, numbers, columns, baseline) for name in LINES]
    every = math.ceil(len(epochs) / ROWS) or 1
    shown = sorted({*range(0, len(epochs), every), len(epochs) - 1} - {-1})
    rows = [
        (f"{numbers[index]:g}", *(_form(name, values[index]) for name, values in columns.items())) for index in shown
    ]
    return History(
        charts=tuple(chart for chart in drawn if chart is not None),
        validated=any(name in columns for name in HELD_OUT),
        header=("epoch", *(COLUMNS[name][0] for name in columns)),
        rows=tuple(rows),
        every=every,
    )


def value_of(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


def _form(name: str, value: float) -> str:
    return COLUMNS[name][1](value) if math.isfinite(value) else words.MISSING


def _chart(name: str, epochs: Sequence[float], columns: Mapping[str, Sequence[float]], baseline: float) -> Chart | None:
    present = [line for line in LINES[name] if line[0] in columns]
    if not present:
        return None
    series = [
        charts.Series(label, "second" if place else "main", columns[measure], short=short)
        for place, (measure, label, short, _) in enumerate(present)
    ]
    known = [value for line in series for value in line.values if math.isfinite(value)]
    form = COLUMNS[present[0][0]][1]
    sentence = " ".join(_sentence(measure, called, columns[measure], epochs) for measure, _, _, called in present)
    marks = charts.steps(*_range(known, name), most=5)
    if name == "accuracy":
        labels = [f"{round(100 * mark, 6):g}{words.NARROW_SPACE}%" for mark in marks]
        reference = charts.Tick(baseline, "guessing")
    else:
        labels = [f"{mark:g}".replace("-", "−") for mark in marks]
        reference = None
    ticks = [charts.Tick(mark, label) for mark, label in zip(marks, labels, strict=True)]
    drawing = charts.curves(
        epochs,
        series,
        f"{name} against epoch. {sentence}",
        form=form,
        bounds=(marks[0], marks[-1]),
        ticks=ticks,
        reference=reference,
    )
    return Chart("k-NN accuracy" if present[0][0] == "knn_accuracy" else name, drawing, sentence)


def _range(known: Sequence[float], name: str) -> tuple[float, float]:
    """What the vertical axis covers: a loss that falls far and a spread are shown down to 0, a flat line gets room."""
    low, high = min(known), max(known)
    if high - low <= 1e-6 * abs(high):
        return (0.0, 1.0) if name == "accuracy" or high == 0 else (min(0.0, 2 * high), max(0.0, 2 * high))
    return (0.0 if name == "spread" or (name == "loss" and 0 < low < 0.5 * high) else low), high


def _sentence(measure: str, called: str, values: Sequence[float], epochs: Sequence[float]) -> str:
    form = COLUMNS[measure][1]
    known = [(value, epoch) for value, epoch in zip(values, epochs, strict=True) if math.isfinite(value)]
    first, last = known[0], known[-1]
    if len(known) == 1:
        return f"{called}: {form(first[0])} after epoch {first[1]:g}."
    text = f"{called} went from {form(first[0])} to {form(last[0])}"
    best = (min if measure.endswith("loss") else max)(known, key=lambda pair: pair[0])
    if measure in HELD_OUT and form(best[0]) != form(last[0]):
        text += f"; best {form(best[0])} at epoch {best[1]:g}"
    missing = len(values) - len(known)
    if missing:
        text += f"; {missing} epoch{'s' * (missing > 1)} without a value"
    return text + "."
