"""How the runs of a comparison did on their test pictures, how sure that is, and what several seeds add to it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitlab.report import words
from vitlab.report.charts import share_axis
from vitlab.report.comparison_runs import Compared, why_not_paired
from vitlab.report.paired import Paired, pair, points, sentence
from vitlab.sample import Difference, Sample, difference


@dataclass(frozen=True)
class Bar:
    """A run's accuracy and its interval, as places along the shared axis in percent of its length."""

    run: Compared
    dot: float
    low: float
    high: float


@dataclass(frozen=True)
class Against:
    """A run beside the first: the paired test, or the reason why there is none."""

    run: Compared
    paired: Paired | None
    sentence: str


@dataclass(frozen=True)
class Group:
    """Seeds of the same settings: their mean, and how far it lies from that of the first run's group."""

    runs: tuple[Compared, ...]
    sample: Sample
    difference: Difference | None
    sentence: str


@dataclass(frozen=True)
class Accuracy:
    """The figures of the runs on one axis, each run against the first, and the groups of seeds if there are any."""

    lead: str
    ticks: tuple[tuple[float, str], ...]
    bars: tuple[Bar, ...]
    against: tuple[Against, ...]
    groups: tuple[Group, ...]

    @property
    def over_seeds(self) -> list[str]:
        """What the groups of several seeds say."""
        return [group.sentence for group in self.groups if group.sample.count > 1]


def gather(runs: Sequence[Compared]) -> Accuracy:
    """Accuracies, paired tests against the first run, and means over seeds."""
    axis, ticks = share_axis([bound for run in runs for bound in run.evaluation.interval], most=5)
    against = tuple(_against(runs[0], run, len(runs) - 1) for run in runs[1:])
    return Accuracy(
        lead=_lead(runs[0], against),
        ticks=ticks,
        bars=tuple(
            Bar(run, *map(axis.pixel, (run.evaluation.accuracy, *run.evaluation.interval)))
            for run in runs
            if run.evaluation.count
        ),
        against=against,
        groups=_groups(runs),
    )


def summary(runs: Sequence[Compared]) -> list[str]:
    """The accuracies and comparisons as lines of text."""
    found = gather(runs)
    lines = []
    for run in runs:
        if not run.evaluation.count:
            lines.append(f"{run.letter} {run.name}: no test pictures")
            continue
        low, high = (f"{100 * bound:.2f}" for bound in run.evaluation.interval)
        lines.append(f"{run.letter} {run.name}: {100 * run.evaluation.accuracy:.2f} % (95 % interval {low} to {high})")
    lines += [each.sentence for each in found.against]
    return [line.replace(words.NARROW_SPACE, " ") for line in [*lines, *found.over_seeds]]


def _against(first: Compared, run: Compared, among: int) -> Against:
    reason = why_not_paired(first, run)
    if reason:
        return Against(run, None, f"{run.called} cannot be compared picture by picture with {first.called}: {reason}.")
    found = pair(first.evaluation, run.evaluation, among)
    return Against(run, found, sentence(found, first.called, run.called))


def _lead(first: Compared, against: Sequence[Against]) -> str:
    """Who is better than the first, who is worse, and who cannot be told apart from it."""
    verdicts: dict[int | None, list[str]] = {1: [], 0: [], -1: [], None: []}
    for each in against:
        verdicts[each.paired.sign if each.paired else None].append(each.run.called)
    said = {
        1: ("is", "are", f"better than {first.called}"),
        -1: ("is", "are", f"worse than {first.called}"),
        0: ("cannot", "cannot", f"be told apart from {first.called}"),
        None: ("was", "were", "tested on other pictures, so there is no paired test"),
    }
    parts = [
        f"{words.joined(names)} {said[sign][len(names) > 1]} {said[sign][2]}"
        for sign, names in verdicts.items()
        if names
    ]
    count = words.grouped(first.evaluation.count)
    where = f"On the same {count} test pictures, " if any(each.paired for each in against) else ""
    return f"{where}{'; '.join(parts)}."


def _groups(runs: Sequence[Compared]) -> tuple[Group, ...]:
    """Runs that are equal but for the seed, the first run's group first; none where no group has two seeds."""
    members: list[list[Compared]] = []
    for run in runs:
        home = next((group for group in members if _same_but_for_seed(group[0], run)), None)
        if home is None:
            members.append([run])
        elif run.experiment.seed not in {other.experiment.seed for other in home}:  # a seed counts once
            home.append(run)
    if all(len(group) == 1 for group in members):
        return ()
    samples = [Sample(tuple(run.evaluation.accuracy for run in group)) for group in members]
    found = []
    for group, sample in zip(members, samples, strict=True):
        comparable = group is not members[0] and not why_not_paired(runs[0], group[0])
        apart = difference(sample, samples[0]) if comparable else None
        found.append(Group(tuple(group), sample, apart, _over_seeds(group[0].called, runs[0].called, sample, apart)))
    return tuple(found)


def _same_but_for_seed(one: Compared, two: Compared) -> bool:
    same = replace(one.experiment, seed=0) == replace(two.experiment, seed=0)
    return same and one.card.fingerprint == two.card.fingerprint and not why_not_paired(one, two)


def _over_seeds(name: str, first: str, sample: Sample, apart: Difference | None) -> str:
    """The mean over seeds, and whether it differs from the first group's."""
    seeds = f"{sample.count} seeds" if sample.count > 1 else "one seed"
    text = f"{name}, {seeds}: {100 * sample.mean:.2f}"
    text += f" ± {100 * sample.margin:.2f}" if sample.margin is not None else ""
    text += f"{words.NARROW_SPACE}%"
    if apart is None:
        return text + "."
    text += f", {points(apart.value)}"
    if apart.margin is None:
        return f"{text} points against {first}; a group of one seed shows no spread, so this is not settled."
    verdict = {1: "better", -1: "worse"}.get(apart.sign)
    said = f"{verdict}, beyond what the seeds vary" if verdict else "these seeds cannot tell the settings apart"
    return f"{text} ± {100 * apart.margin:.2f} points against {first}: {said}."
