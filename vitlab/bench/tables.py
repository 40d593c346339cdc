"""Tables of a Markdown page, and how their cells are written."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import Any

from vitlab.bench.scale import Took
from vitlab.bench.sections import time_words


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 0, words: int = 0) -> str:
    """Figures to the right; the first `left` columns and the last `words` to the left."""
    figures = len(heads) - left - words
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * left + "---:|" * figures + "---|" * words]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def spread(took: Took) -> str:
    """The median, and half of the range between the quartiles."""
    half = (took.high - took.low) / 2
    return f"{time_words(took.milliseconds)} ± {100 * half / took.milliseconds:.0f} %"


def share(part: float) -> str:
    return f"{100 * part:.0f} %"


def percent(error: float) -> str:
    return f"{100 * error:+.0f} %".replace("-", "−")


def mean_size(values: Sequence[float]) -> str:
    return share(sum(map(abs, values)) / len(values))


def long_time(seconds: float) -> str:
    if seconds < 99.5:
        return f"{seconds:.2g} s" if seconds < 9.95 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def of_runs(runs: Iterable[Mapping[str, Any]], name: str) -> str:
    """The mean of a share over runs, and their deviation where they differ."""
    found = [100 * run[name] for run in runs]
    return f"{mean(found):.2f} %" + (f" ± {stdev(found):.2f}" if len(found) > 1 and stdev(found) else "")


def link(record: Mapping[str, Any], folder: str) -> str:
    return f"[`{record['name']}`]({folder}/{record['name']}.json)"


def where(record: Mapping[str, Any]) -> list[str]:
    """The device, with the cores that were used where some were left, and the day."""
    device, threads = record["device"], record.get("threads", 0)
    name, _, cores = device.removesuffix(" cores").rpartition(", ")
    if device.endswith(" cores") and 0 < threads < int(cores):
        device = f"{name}, {threads} of {cores} cores"
    return [device, record["date"][:10]]
