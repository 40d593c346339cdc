"""Where the runs of a comparison err: each class side by side, and the pairs that each run confuses most."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vitlab.engine.evaluation import Evaluation
from vitlab.report import confusion, words
from vitlab.report.charts import Axis, share_axis
from vitlab.report.comparison_runs import Compared, why_not_paired
from vitlab.report.paired import pair

PAIRS = 4
SHOWN = 20  # classes; where there are more, those that the runs differ about most come first and the rest is folded


@dataclass(frozen=True)
class ClassRow:
    """One class: its test pictures in the first run, and the share that each run reads right."""

    name: str
    count: int
    shares: tuple[float, ...]

    @property
    def drawn(self) -> list[tuple[int, float]]:
        """The runs, as places in the comparison's list, that have pictures of it; the first drawn last, on top."""
        return [(place, share) for place, share in enumerate(self.shares) if math.isfinite(share)][::-1]

    @property
    def spread(self) -> float:
        known = [share for _, share in self.drawn]
        return max(known) - min(known) if known else 0.0


@dataclass(frozen=True)
class Classes:
    """The runs that have the first one's classes, a row for each class, and every run's commonest confusions."""

    sentence: str
    note: str
    runs: tuple[Compared, ...]
    axis: Axis  # from shares to percent of the length of a row
    ticks: tuple[tuple[float, str], ...]
    rows: tuple[ClassRow, ...]
    folded: tuple[ClassRow, ...]
    pairs: tuple[tuple[Compared, tuple[confusion.Pair, ...]], ...]


def gather(runs: Sequence[Compared]) -> Classes:
    """Accuracy by class, for runs with the same classes; confusions, for all."""
    first = runs[0]
    alike = [run for run in runs if run.card.classes == first.card.classes]
    others = [run.called for run in runs if run.card.classes != first.card.classes]
    found = {run.letter: confusion.gather(run.evaluation.confusion().numpy()) for run in runs}
    rows = [
        ClassRow(
            name,
            found[first.letter].rows[place].count,
            tuple(found[run.letter].rows[place].accuracy for run in alike),
        )
        for place, name in enumerate(first.card.classes)
    ]
    if len(rows) > SHOWN:
        rows.sort(key=lambda row: -row.spread)
    axis, ticks = share_axis([share for row in rows for _, share in row.drawn] or [0.0, 1.0], most=4)
    return Classes(
        sentence=_largest_gap(first, alike[1:]),
        note=f"Not among these, since the classes are others: {words.joined(others)}." if others else "",
        runs=tuple(alike) if len(alike) > 1 else (),
        axis=axis,
        ticks=ticks,
        rows=tuple(rows[:SHOWN]),
        folded=tuple(rows[SHOWN:]),
        pairs=tuple((run, found[run.letter].pairs[:PAIRS]) for run in runs),
    )


def _largest_gap(first: Compared, others: Sequence[Compared]) -> str:
    """The class about which a run differs most from the first, and whether chance does as much in so many classes."""
    paired = [run for run in others if not why_not_paired(first, run)]
    tests = [
        (pair(_only(first.evaluation, label), _only(run.evaluation, label)), label, run)
        for run in paired
        for label in first.evaluation.labels.unique().tolist()
    ]
    if not tests:
        return ""
    found, label, run = max(tests, key=lambda test: abs(test[0].difference))
    if found.gained == found.lost:
        return f"No class is read right more often, or less, than by {first.called}."
    name = first.card.classes[label]
    before, after = (words.percent((found.both + extra) / found.count) for extra in (found.lost, found.gained))
    # Of many differences one is bound to look large, so its p-value must be small times their number (Bonferroni).
    chance = "more" if found.p_value * len(tests) < 0.05 else "no more"
    return (
        f"The widest gap is class {name}, of which {run.called} reads {after} right and {first.called} {before} "
        f"({found.count} pictures); that is {chance} than chance does somewhere among {len(tests)} such gaps."
    )


def _only(evaluation: Evaluation, label: int) -> Evaluation:
    """The pictures of one class."""
    chosen = evaluation.labels == label
    return Evaluation(evaluation.logits[chosen], evaluation.labels[chosen])
