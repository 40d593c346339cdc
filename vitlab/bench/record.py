"""What a comparison leaves: rows of a record in results/bench, as a table on the terminal and on the page."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from vitlab.bench.inference import Served
from vitlab.bench.measure import Timing
from vitlab.bench.points import Point
from vitlab.bench.roofline import Bound
from vitlab.bench.scale import Took
from vitlab.bench.settings import MANNERS
from vitlab.engine.storage import make_folder, write_json

HEADINGS = {"training": "training step", "data": "pass over the data", "epoch": "epoch"}
COLUMNS = (
    "contender", "setting", "ms", "fastest", "ratio", "to the loop", "gradients", "pictures/s", "parameters", "note",
)  # fmt: skip


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
    manner: str = "users"  # or best
    setting: str = ""
    loop_ratio: float | None = None  # to vitlab's whole loop

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
        return (
            self.contender,
            self.setting,
            shown(self.milliseconds, ",.2f"),
            shown(self.fastest, ",.2f"),
            shown(self.ratio, ".2f"),
            shown(self.loop_ratio, ".2f") if self.part != "epoch" else "",
            shown(self.gradients_ratio, ".2f"),
            shown(self.pictures_per_second, ",.0f"),
            shown(self.parameters, ","),
            self.note,
        )


def shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def missing(part: str, work: str, contender: str, package: str) -> Row:
    return Row(part, work, contender, note=f"not installed (pip install {package})")


def others(rows: Iterable[Row]) -> list[Row]:
    """Those that are not vitlab, and were timed."""
    return [row for row in rows if row.ratio and not row.contender.startswith("vitlab")]


def rival(rows: Iterable[Row]) -> Row | None:
    """The fastest that is not vitlab."""
    return min(others(rows), key=lambda row: row.ratio or 0.0, default=None)


def fastest_other(rows: list[Row]) -> str:
    """The nearest rival of vitlab in a group, in words."""
    found = rival(rows)
    if found is None:
        return "Nobody else is installed."
    loop = (
        f", {found.loop_ratio:.2f} times that of its whole loop" if found.loop_ratio and found.part != "epoch" else ""
    )
    return f"Fastest of the others: {found.contender}, at {found.ratio:.2f} times vitlab's time{loop}."


def groups(rows: Iterable[Row]) -> dict[tuple[str, str, str], list[Row]]:
    """The rows of each piece of work in each manner, in the order they were measured."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.part, row.work, row.manner), []).append(row)
    return found


def title(part: str, work: str, manner: str) -> str:
    kind, _, way = part.partition(", ")
    words = [HEADINGS[kind], way, "" if kind == "data" else MANNERS[manner]]
    return f"{work}: " + ", ".join(word for word in words if word)


def filled(rows: list[Row]) -> list[int]:
    """The places of the columns in which some row has something."""
    return [place for place in range(len(COLUMNS)) if any(row.cells()[place] for row in rows)]


def table_of(rows: list[Row]) -> Table:
    """A group of rows for the terminal, where a line has no room for the notes."""
    first = rows[0]
    heading = title(first.part, first.work, first.manner)
    table = Table(title=heading, title_justify="left", box=None, pad_edge=False, header_style="bold")
    places = [place for place in filled(rows) if COLUMNS[place] not in ("fastest", "note")]
    for place in places:
        table.add_column(COLUMNS[place], justify="left" if place < 2 else "right", no_wrap=True)
    for row in rows:
        if row.ratio is not None:
            table.add_row(*(row.cells()[place] for place in places))
    return table


def markdown(rows: list[Row]) -> list[str]:
    """A group of rows as the lines of a Markdown table."""
    places = filled(rows)
    names = [COLUMNS[place] for place in places]
    marks = ["---" if name in ("contender", "setting", "note") else "---:" for name in names]
    lines = [f"| {' | '.join(names)} |", f"|{'|'.join(marks)}|"]
    return lines + [f"| {' | '.join(row.cells()[place] for place in places)} |" for row in rows]


def save(record: dict[str, Any], runs: Iterable[Row | Point | Bound | Took | Served], out: Path) -> Path:
    """Write the record under its name."""
    make_folder(out)
    path = out / f"{record['name']}.json"
    write_json(path, record | {"runs": [asdict(run) for run in runs]})
    return path
