"""What the runs of a comparison cost: weights, arithmetic, time and memory, with ratios to the first run."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from vitlab.report import words
from vitlab.report.comparison_runs import Compared


@dataclass(frozen=True)
class Measure:
    """A column: how it is read and written, and whether it says something only among runs on the same device."""

    read: Callable[[Compared], float | None]
    write: Callable[[float], str]
    of_device: bool = False


@dataclass(frozen=True)
class Cell:
    """A value, and how many times the first run's it is."""

    text: str
    ratio: str


@dataclass(frozen=True)
class Cost:
    """The table, what it says, and the device where it is the same for all."""

    sentences: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[Compared, tuple[Cell, ...]], ...]
    device: str | None


def gather(runs: Sequence[Compared]) -> Cost:
    """Every measure of every run; a run folder of an older version may lack some."""
    devices = {run.environment["device"] for run in runs}
    rows = []
    for run in runs:
        cells = []
        for measure in MEASURES.values():
            value, base = measure.read(run), measure.read(runs[0])
            like = not measure.of_device or run.environment["device"] == runs[0].environment["device"]
            text = words.MISSING if value is None else measure.write(value)
            cells.append(Cell(text, ratio(value, base) if like and run is not runs[0] else ""))
        rows.append((run, tuple(cells)))
    return Cost(
        tuple(_sentences(runs, len(devices) == 1)),
        tuple(MEASURES),
        tuple(rows),
        devices.pop() if len(devices) == 1 else None,
    )


def ratio(value: float | None, base: float | None) -> str:
    """How many times `base` a value is."""
    return f"×{words.NARROW_SPACE}{words.number(value / base)}" if value and base else ""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best."""
    for unit, length in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{words.number(seconds / length)} {unit}"
    return f"{words.number(seconds)} s"


def _fact(name: str) -> Callable[[Compared], float | None]:
    return lambda run: run.result.get(name)


MEASURES: Mapping[str, Measure] = {
    "weights": Measure(_fact("parameters"), lambda value: words.grouped(int(value))),
    "operations a picture": Measure(lambda run: run.flops, words.large),
    "epochs": Measure(_fact("epochs"), lambda value: str(int(value))),
    "training": Measure(_fact("train_seconds"), duration, of_device=True),
    "pictures/s": Measure(_fact("images_per_second"), lambda value: words.grouped(round(value)), of_device=True),
    "peak memory": Measure(_fact("peak_memory"), words.memory, of_device=True),
}


def _sentences(runs: Sequence[Compared], same_device: bool) -> list[str]:
    found = [_range(runs, "operations a picture", "To read one picture takes", "operations", "as many")]
    if same_device:
        found.append(_range(runs, "training", "Training took", "", "as long"))
    else:
        found.append("The runs were not trained on the same device, so times, speeds and memory are not set in ratio.")
    return [sentence for sentence in found if sentence]


def _range(runs: Sequence[Compared], name: str, beginning: str, unit: str, ending: str) -> str:
    """From the least to the most, and whose they are."""
    measure = MEASURES[name]
    known = [(value, run.called) for run in runs if (value := measure.read(run))]
    if len(known) < 2:
        return ""
    (low, least), (high, most) = min(known), max(known)
    texts = [measure.write(value) for value in (low, high)]
    fewest = f"{texts[0]} {unit}".strip()
    if texts[0] == texts[1]:
        return f"{beginning} {fewest} in every run."
    return f"{beginning} from {fewest} ({least}) to {texts[1]} ({most}), {words.number(high / low)} times {ending}."
