"""What a benchmark leaves: a record in results/bench, and docs/bench.md written anew from all the records there."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from vitlab.bench.measure import Timing
from vitlab.engine.storage import read_json, write, write_json

HEADINGS = {"training": "per step", "data": "per pass", "epoch": "per epoch"}
COLUMNS = ("contender", "ms", "fastest", "ratio", "gradients", "pictures/s", "parameters", "note")


@dataclass(frozen=True)
class Row:
    """One contender at one piece of work; a ratio above 1 means slower than vitlab in the same rounds."""

    part: str
    work: str
    contender: str
    milliseconds: float | None = None  # median over the rounds
    fastest: float | None = None  # milliseconds of the best round
    ratio: float | None = None
    gradients_milliseconds: float | None = None  # the step without its optimiser
    gradients_ratio: float | None = None
    pictures_per_second: float | None = None
    parameters: int | None = None
    note: str = ""

    def timed(self, timing: Timing, base: Timing, pictures: int) -> "Row":
        """The row with its figures; `base` is vitlab's timing, `pictures` what one call reads."""
        return replace(
            self,
            milliseconds=round(timing.median * 1e3, 3),
            fastest=round(timing.fastest * 1e3, 3),
            ratio=round(timing.ratio(base), 3),
            pictures_per_second=round(pictures / timing.median, 1),
        )

    def with_gradients(self, timing: Timing, base: Timing) -> "Row":
        """The row with the figures of the step without its optimiser."""
        return replace(
            self, gradients_milliseconds=round(timing.median * 1e3, 3), gradients_ratio=round(timing.ratio(base), 3)
        )

    def cells(self) -> tuple[str, ...]:
        if self.milliseconds is None:
            return (self.contender, *[""] * (len(COLUMNS) - 2), self.note)
        return (
            self.contender,
            f"{self.milliseconds:,.2f}",
            f"{self.fastest:,.2f}",
            f"{self.ratio:.2f}",
            "" if self.gradients_ratio is None else f"{self.gradients_ratio:.2f}",
            f"{self.pictures_per_second:,.0f}",
            "" if self.parameters is None else f"{self.parameters:,}",
            self.note,
        )


def missing(part: str, work: str, contender: str, package: str) -> Row:
    return Row(part, work, contender, note=f"not installed (pip install {package})")


def fastest_other(rows: list[Row]) -> str:
    """The nearest rival of vitlab in a group, in words."""
    others = [(row.ratio, row.contender) for row in rows if row.ratio and not row.contender.startswith("vitlab")]
    if not others:
        return "Nobody else is installed."
    ratio, name = min(others)
    return f"Fastest of the others: {name}, at {ratio:.2f} times vitlab's time."


def groups(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each piece of work, in the order they were measured."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.part, row.work), []).append(row)
    return found


def title(part: str, work: str) -> str:
    return f"{part}, {work}: {HEADINGS[part.partition(',')[0]]}"


def table_of(part: str, work: str, rows: list[Row]) -> Table:
    """A group of rows for the terminal, where a line has no room for the notes."""
    table = Table(title=title(part, work), title_justify="left", box=None, pad_edge=False, header_style="bold")
    shown = [place for place, column in enumerate(COLUMNS) if column not in ("fastest", "note")]
    for place in shown:
        table.add_column(COLUMNS[place], justify="right" if place else "left", no_wrap=True)
    for row in rows:
        if row.ratio is not None:
            cells = row.cells()
            table.add_row(*(cells[place] for place in shown))
    return table


def save(record: dict[str, Any], rows: list[Row], out: Path) -> Path:
    """Write the record under its name."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{record['name']}.json"
    write_json(path, record | {"runs": [asdict(row) for row in rows]})
    return path


def write_page(out: Path, page: Path) -> None:
    """Write the page anew from every record in `out`."""
    records = [read_json(path) for path in sorted(out.glob("*.json"))]
    page.parent.mkdir(parents=True, exist_ok=True)
    write(page, "\n".join([OPENING, *(section(record) for record in records)]).encode())


OPENING = """# Benchmarks

Written by `vitlab bench` from the records in results/bench; change the code, not this page.

All contenders of a table were measured by turns in one run, on the same shape and batch, in float32, in training mode
without dropout. *ms* is the median over the rounds and *fastest* the best round. *ratio* is the median of the rounds'
own ratios to vitlab: above 1 means slower than vitlab. *gradients* is the same ratio for the step without its
optimiser. Each library is used as its documents say; a note tells where it cannot do the very same work. Part of
vitlab's lead is work it leaves out: the last block's MLP runs only for the tokens that the head reads, which changes
no output.
"""


def section(record: dict[str, Any]) -> str:
    """One record as Markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        f"## {record['name']}",
        "",
        f"`{record['command']}`, {record['date'][:10]}, on {record['device']}, {record['config']['threads']} threads, "
        f"{record['config']['rounds']} rounds ({versions}).",
        "",
        *(f"- {name}: {words}" for name, words in record["config"]["shapes"].items()),
        "",
    ]
    for (part, work), rows in groups(Row(**run) for run in record["runs"]).items():
        lines += [f"### {title(part, work)}", "", f"| {' | '.join(COLUMNS)} |"]
        lines += ["|---|" + "---:|" * (len(COLUMNS) - 2) + "---|"]
        lines += [f"| {' | '.join(row.cells())} |" for row in rows] + ["", fastest_other(rows), ""]
    return "\n".join(lines)
