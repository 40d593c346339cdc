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
    """Accuracy and loss against epoch: on held-out pictures where every run has some, else on the training pictures.

    A run without labels has the accuracy of nearest neighbours, and a loss that only its like can be compared with.
    """
    drawn = [run for run in runs if run.epochs]
    if not drawn:
        return Curves((), ("No run has recorded an epoch, so there is no curve to draw.",), ())
    labelled = [run for run in drawn if run.labelled]
    without = [run.called for run in labelled if not all("validation_loss" in epoch for epoch in run.epochs)]
    like = [run for run in drawn if of_one_loss(drawn[0], run)]
    charted = [
        _chart(drawn, "accuracy", held_out=not without),
        _chart(like, "loss", held_out=not without and drawn[0].labelled),
    ]
    ends = tuple(_end(run, not without, run in like) for run in drawn)
    return Curves(tuple(charted), tuple(_remarks(runs, drawn, without)), ends)


def of_one_loss(one: Compared, two: Compared) -> bool:
    return one.experiment.objective.kind == two.experiment.objective.kind


def key_of(run: Compared, name: str, held_out: bool) -> str:
    """Under which name a run's epochs have an accuracy or a loss."""
    if run.labelled:
        return f"validation_{name}" if held_out else name
    return "knn_accuracy" if name == "accuracy" else name


def _end(run: Compared, held_out: bool, alike: bool) -> tuple[Compared, str, str, str]:
    last = run.epochs[-1]
    accuracy, loss = (value_of(last.get(key_of(run, name, held_out))) for name in ("accuracy", "loss"))
    return run, f"{last['epoch']:g}", words.percent(accuracy), words.number(loss) if alike else words.MISSING


def _chart(runs: Sequence[Compared], name: str, held_out: bool) -> Chart:
    what = f"{'validation' if held_out else 'training'} {name}"
    if name == "accuracy" and not any(run.labelled for run in runs):
        what = "k-NN accuracy"
    form: Callable[[float], str] = words.percent if name == "accuracy" else words.number
    labels = [f"{run.letter} {run.name}" for run in runs]
    if max(map(len, labels)) > ROOM:
        labels = [run.letter for run in runs]
    series = [
        charts.Series(
            label,
            f"run {run.style}",
            [value_of(epoch.get(key_of(run, name, held_out))) for epoch in run.epochs],
            [float(epoch["epoch"]) for epoch in run.epochs],
        )
        for label, run in zip(labels, runs, strict=True)
    ]
    low, high = _range(series, name)
    marks = charts.steps(low, high, most=5)
    shown = [f"{round(100 * mark, 6):g}{words.NARROW_SPACE}%" if name == "accuracy" else f"{mark:g}" for mark in marks]
    sentence = _sentence(runs, series, what, form, name == "accuracy")
    drawing = charts.curves(
        sorted({epoch for line in series for epoch in line.epochs}),
        series,
        f"{name} against epoch. {sentence}",
        form=form,
        bounds=(marks[0], marks[-1]),
        ticks=[charts.Tick(mark, text) for mark, text in zip(marks, shown, strict=True)],
        frame=f"frame-{name}",
    )
    return Chart(what, drawing, sentence)


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
    unlabelled = [run.called for run in drawn if not run.labelled]
    if unlabelled:
        found.append(
            f"Learned without labels: {words.joined(unlabelled)}. The accuracy drawn for such a run is that of nearest "
            "neighbours on held-out pictures, where there are any."
        )
    unlike = [run.called for run in drawn if not of_one_loss(drawn[0], run)]
    if unlike:
        found.append(
            f"The loss of {words.joined(unlike)} measures something else, so it is not drawn beside the others."
        )
    missing = [run.called for run in runs if run not in drawn]
    if missing:
        found.append(f"{words.joined(missing)} recorded no epoch.")
    if any(len(run.epochs) > 1 / EARLY for run in drawn):
        found.append(
            "The axis shows every line after the first fifth of its training; what comes before may lie outside."
        )
    return found
