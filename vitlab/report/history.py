"""The course of training: two charts, what they say, and the numbers behind them."""

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
    "learning_rate": ("learning rate", lambda value: f"{value:.2e}".replace("-", "−")),
    "seconds": ("seconds", words.number),
    "images_per_second": ("pictures/s", lambda value: words.grouped(round(value))),
}


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
    drawn = [_chart(name, numbers, columns, baseline) for name in ("loss", "accuracy")]
    every = math.ceil(len(epochs) / ROWS) or 1
    shown = sorted({*range(0, len(epochs), every), len(epochs) - 1} - {-1})
    rows = [
        (f"{numbers[index]:g}", *(_form(name, values[index]) for name, values in columns.items())) for index in shown
    ]
    return History(
        charts=tuple(chart for chart in drawn if chart is not None),
        validated="validation_loss" in columns or "validation_accuracy" in columns,
        header=("epoch", *(COLUMNS[name][0] for name in columns)),
        rows=tuple(rows),
        every=every,
    )


def value_of(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


def _form(name: str, value: float) -> str:
    return COLUMNS[name][1](value) if math.isfinite(value) else words.MISSING


def _chart(name: str, epochs: Sequence[float], columns: Mapping[str, Sequence[float]], baseline: float) -> Chart | None:
    held = columns.get(f"validation_{name}")
    series = []
    if held is not None:
        series.append(charts.Series("validation", "main", held))
    if name in columns:
        series.append(charts.Series("training", "second" if held is not None else "main", columns[name]))
    if not series:
        return None
    known = [value for line in series for value in line.values if math.isfinite(value)]
    form = COLUMNS[name][1]
    sentence = " ".join(_sentence(line, name, epochs, form) for line in series)
    marks = charts.steps(*_range(known, name), most=5)
    if name == "loss":
        labels = [f"{mark:g}".replace("-", "−") for mark in marks]
        reference = None
    else:
        labels = [f"{round(100 * mark, 6):g}{words.NARROW_SPACE}%" for mark in marks]
        reference = charts.Tick(baseline, "guessing")
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
    return Chart(name, drawing, sentence)


def _range(known: Sequence[float], name: str) -> tuple[float, float]:
    """The values the vertical axis covers: a loss that falls far is shown down to 0, a flat line gets room."""
    low, high = min(known), max(known)
    if high - low <= 1e-6 * abs(high):
        return (0.0, 1.0) if name == "accuracy" or high == 0 else (min(0.0, 2 * high), max(0.0, 2 * high))
    return (0.0 if name == "loss" and 0 < low < 0.5 * high else low), high


def _sentence(line: charts.Series, name: str, epochs: Sequence[float], form: Callable[[float], str]) -> str:
    known = [(value, epoch) for value, epoch in zip(line.values, epochs, strict=True) if math.isfinite(value)]
    first, last = known[0], known[-1]
    label = f"{line.label.capitalize()} {name}"
    if len(known) == 1:
        return f"{label}: {form(first[0])} after epoch {first[1]:g}."
    text = f"{label} went from {form(first[0])} to {form(last[0])}"
    best = min(known, key=lambda pair: pair[0]) if name == "loss" else max(known, key=lambda pair: pair[0])
    if line.label == "validation" and form(best[0]) != form(last[0]):
        text += f"; best {form(best[0])} at epoch {best[1]:g}"
    missing = len(line.values) - len(known)
    if missing:
        text += f"; {missing} epoch{'s' * (missing > 1)} without a value"
    return text + "."
