"""The learning curves of the runs of a comparison, laid over each other."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitlab.report import charts, words
from vitlab.report.comparison_runs import Compared
from vitlab.report.history import Chart, value_of

ROOM = 11  # letters of a line's label
NAMED = 4  # runs whose last values a sentence gives
EARLY = 0.2  # of a run: what the axis need not show, so that the ends of the lines can be told apart


@dataclass(frozen=True)
class Curves:
    """The charts, what a reader must know of them, and each run's last epoch, accuracy and loss."""

    charts: tuple[Chart, ...]
    remarks: tuple[str, ...]
    ends: tuple[tuple[Compared, str, str, str], ...]


def gather(runs: Sequence[Compared]) -> Curves:
    """Accuracy and loss against epoch: on held-out pictures where every run has some, else on the training pictures."""
    drawn = [run for run in runs if run.epochs]
    if not drawn:
        return Curves((), ("No run has recorded an epoch, so there is no curve to draw.",), ())
    without = [run.called for run in drawn if not all("validation_loss" in epoch for epoch in run.epochs)]
    charted = [_chart(drawn, name, held_out=not without) for name in ("accuracy", "loss")]
    return Curves(tuple(charted), tuple(_remarks(runs, drawn, without)), tuple(_end(run, not without) for run in drawn))


def _end(run: Compared, held_out: bool) -> tuple[Compared, str, str, str]:
    last, kind = run.epochs[-1], "validation_" if held_out else ""
    accuracy, loss = (value_of(last.get(f"{kind}{name}")) for name in ("accuracy", "loss"))
    return run, f"{last['epoch']:g}", words.percent(accuracy), words.number(loss)


def _chart(runs: Sequence[Compared], name: str, held_out: bool) -> Chart:
    key = f"validation_{name}" if held_out else name
    form: Callable[[float], str] = words.percent if name == "accuracy" else words.number
    labels = [f"{run.letter} {run.name}" for run in runs]
    if max(map(len, labels)) > ROOM:
        labels = [run.letter for run in runs]
    series = [
        charts.Series(
            label,
            f"run {run.style}",
            [value_of(epoch.get(key)) for epoch in run.epochs],
            [float(epoch["epoch"]) for epoch in run.epochs],
        )
        for label, run in zip(labels, runs, strict=True)
    ]
    low, high = _range(series, name)
    marks = charts.steps(low, high, most=5)
    shown = [f"{round(100 * mark, 6):g}{words.NARROW_SPACE}%" if name == "accuracy" else f"{mark:g}" for mark in marks]
    sentence = _sentence(runs, series, f"{'validation' if held_out else 'training'} {name}", form, name == "accuracy")
    drawing = charts.curves(
        sorted({epoch for line in series for epoch in line.epochs}),
        series,
        f"{name} against epoch. {sentence}",
        form=form,
        bounds=(marks[0], marks[-1]),
        ticks=[charts.Tick(mark, text) for mark, text in zip(marks, shown, strict=True)],
        frame=f"frame-{name}",
    )
    return Chart(f"{'validation' if held_out else 'training'} {name}", drawing, sentence)


def _range(series: Sequence[charts.Series], name: str) -> tuple[float, float]:
    """What the vertical axis must show: every line after its first fifth."""
    late = [
        value
        for line in series
        for epoch, value in zip(line.epochs, line.values, strict=True)
        if math.isfinite(value) and epoch > EARLY * line.epochs[-1]
    ]
    if not late:
        return 0.0, 1.0
    low, high = min(late), max(late)
    if high - low <= 1e-6 * abs(high):
        return (0.0, 1.0) if name == "accuracy" or high == 0 else (0.0, 2 * high)
    return (0.0 if name == "loss" and 0 < low < 0.5 * high else low), high


def _sentence(
    runs: Sequence[Compared], series: Sequence[charts.Series], what: str, form: Callable[[float], str], rising: bool
) -> str:
    """The last values, the best first; of many runs, the best and the worst."""
    ends = [
        (line.last, run.called, line.epochs[-1])
        for run, line in zip(runs, series, strict=True)
        if line.last is not None
    ]
    ends.sort(key=lambda end: end[0], reverse=rising)
    together = len({epoch for _, _, epoch in ends}) == 1
    parts = [f"{name} {form(value)}" + ("" if together else f" (epoch {epoch:g})") for value, name, epoch in ends]
    if len(parts) > NAMED:
        return f"Last {what} from {parts[0]} to {parts[-1]}."
    return f"Last {what}: {', '.join(parts)}." if parts else f"No {what} was recorded."


def _remarks(runs: Sequence[Compared], drawn: Sequence[Compared], without: Sequence[str]) -> list[str]:
    found = []
    if without:
        found.append(
            f"{words.joined(without)} held nothing out for validation, so the training figures of all runs are drawn: "
            "they do not show how a model does on new pictures."
        )
    elif len({(run.card.fingerprint, run.card.validation) for run in drawn}) > 1:
        found.append(
            "Not all runs learned from, and were validated on, the same pictures: the test figures above are the judge."
        )
    missing = [run.called for run in runs if run not in drawn]
    if missing:
        found.append(f"{words.joined(missing)} recorded no epoch.")
    if any(len(run.epochs) > 1 / EARLY for run in drawn):
        found.append(
            "The axis shows every line after the first fifth of its training; what comes before may lie outside."
        )
    return found
