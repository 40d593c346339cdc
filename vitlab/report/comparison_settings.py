"""What is set differently in the runs of a comparison, and what else differs between them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from vitlab.report import words
from vitlab.report.comparison_runs import Compared
from vitlab.settings import Entry, walk, write_value

SEED = "seed"
NAMED = 6  # settings that a sentence names, at most


@dataclass(frozen=True)
class Row:
    """One setting, or one fact, with its value in each run; a part's own setting is missing where the part differs."""

    name: str
    meaning: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1

    @property
    def chosen(self) -> bool:
        """Whether runs that have it set it differently; else it is there or not with the part that it belongs to."""
        return len(set(self.values) - {None}) > 1


@dataclass(frozen=True)
class Differences:
    """What the settings say, of all runs and of each but the first, and the rows behind it."""

    lead: str
    findings: tuple[tuple[Compared, str], ...]
    rows: tuple[Row, ...]
    surroundings: tuple[Row, ...]
    common: tuple[Row, ...]


def gather(runs: Sequence[Compared]) -> Differences:
    """Compare every setting of the runs' experiments, and the data, device and versions they ran with."""
    settings = [{".".join(entry.path): entry for entry in walk(run.experiment)} for run in runs]
    rows = [_row(name, settings) for name in _in_order(settings)]
    changed = [row for row in rows if row.differs]
    short = shortest([row.name for row in rows])
    surroundings = [_fact(name, read, runs) for name, read in SURROUNDINGS.items()]
    return Differences(
        lead=_lead(runs, changed, short),
        findings=tuple((run, _finding(runs[0], run, names)) for run, names in _chosen(runs, changed, short).items()),
        rows=tuple(changed),
        surroundings=tuple(row for row in surroundings if row.differs),
        common=tuple(row for row in rows if not row.differs),
    )


def _in_order(settings: Sequence[Mapping[str, Entry]]) -> list[str]:
    """Every name once, each after the one that it follows in its own run."""
    names = list(settings[0])
    for run in settings[1:]:
        place = 0
        for name in run:
            if name in names:
                place = names.index(name) + 1
            else:
                names.insert(place, name)
                place += 1
    return names


def _row(name: str, settings: Sequence[Mapping[str, Entry]]) -> Row:
    meaning = next(run[name].meaning for run in settings if name in run)
    return Row(name, meaning, tuple(write_value(run[name].value) if name in run else None for run in settings))


def shortest(names: Sequence[str]) -> dict[str, str]:
    """Each dotted name, shortened to its shortest end that is nobody else's, as the command line takes it."""
    found = {}
    for name in names:
        parts = name.split(".")
        ends = [".".join(parts[-size:]) for size in range(1, len(parts) + 1)]
        found[name] = next(end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1)
    return found


def _chosen(runs: Sequence[Compared], changed: Sequence[Row], short: Mapping[str, str]) -> dict[Compared, list[str]]:
    """For each run but the first, the settings that both have and that differ."""
    return {
        run: [short[row.name] for row in changed if _differ(row.values[0], row.values[place])]
        for place, run in enumerate(runs[1:], start=1)
    }


def _differ(one: str | None, two: str | None) -> bool:
    return one is not None and two is not None and one != two


def _lead(runs: Sequence[Compared], changed: Sequence[Row], short: Mapping[str, str]) -> str:
    if not changed:
        return "Every setting is the same in all runs."
    names = [short[row.name] for row in changed if row.chosen]
    if names == [SEED]:
        return "Only the seed differs, so what lies between these runs is what chance alone does."
    lead = f"The runs differ in {_listed(names)}."
    if any(len(set(own) - {SEED}) > 1 for own in _chosen(runs, changed, short).values()):
        lead += " Where several settings change at once, no figure below can say which of them made a difference."
    return lead


def _finding(first: Compared, run: Compared, names: Sequence[str]) -> str:
    if not names:
        return f"{run.called} has every setting of {first.called}."
    only = " only" if len(names) == 1 else ""
    return f"{run.called} differs from {first.called}{only} in {_listed(names)}."


def _listed(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} more settings"]
    return words.joined(names)


def _fact(name: str, read: Callable[[Compared], str], runs: Iterable[Compared]) -> Row:
    return Row(name, "", tuple(read(run) for run in runs))


def _versions(run: Compared) -> str:
    return ", ".join(f"{name} {number}" for name, number in run.environment["versions"].items())


SURROUNDINGS: Mapping[str, Callable[[Compared], str]] = {
    "data": lambda run: run.card.name,
    "size of a picture": lambda run: f"{run.card.channels}×{run.card.height}×{run.card.width}",
    "classes": lambda run: str(len(run.card.classes)),
    "pictures to learn": lambda run: words.grouped(run.card.train),
    "pictures held out": lambda run: words.grouped(run.card.validation),
    "test pictures read": lambda run: words.grouped(run.evaluation.count),
    "fingerprint of the training part": lambda run: run.card.fingerprint[:7],
    "device": lambda run: run.environment["device"],
    "threads": lambda run: str(run.environment["threads"]),
    "versions": _versions,
}
