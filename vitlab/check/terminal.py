"""A report on the terminal, and a table of many."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitlab.check.finding import Finding, Report, Verdict
from vitlab.check.probes import PROBES
from vitlab.console import plain_table

MARKS: dict[Verdict, tuple[str, str]] = {
    "mistake": ("✗", "bold red"), "warning": ("!", "bold yellow"), "unknown": ("?", "bold"), "fine": ("✓", "green"),
}  # fmt: skip
QUESTIONS = {probe.name: probe.question for probe in PROBES}


def show(out: Console, report: Report) -> None:
    """What is wrong, how it is known, what it costs and how to mend it; then what is open, then what is fine."""
    out.print(Text(heading(report), style="bold"))
    if report.trouble:
        out.print(Text.assemble(("✗ ", "bold red"), f"could not be checked: {report.trouble}"))
        return
    for verdict in ("mistake", "warning"):
        for name, finding in report.named(verdict).items():
            out.print()
            out.print(entry(name, finding), soft_wrap=False)
    out.print()
    for name, finding in report.named("unknown").items():
        out.print(entry(name, finding), soft_wrap=False)
    good = report.named("fine")
    if good:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text(*MARKS["fine"]), " · ".join(good))
        out.print(grid, soft_wrap=False)
    out.print()
    out.print(Text(summary(report), style="bold"))


def heading(report: Report) -> str:
    if not report.shape:
        return report.target
    channels, height, width = report.shape
    size = f"{channels}×{height}×{width} → {report.classes} classes"
    model = "" if report.target.endswith(report.model) else f"{report.model} · "
    return f"{report.target} · {model}{size} · {report.weights:,} weights"


def entry(name: str, finding: Finding) -> Table:
    mark, style = MARKS[finding.verdict]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(width=max(map(len, QUESTIONS)))
    grid.add_column(overflow="fold")
    grid.add_row(Text(mark, style=style), Text(name, style="bold"), Text(QUESTIONS.get(name, ""), style="bold"))
    label = "open" if finding.verdict == "unknown" else "seen"
    rows = (
        (label, finding.measured),
        ("meaning", finding.meaning),
        ("cost", finding.cost),
        ("fix", finding.remedy),
    )
    for title, text in rows:
        if text:
            grid.add_row("", Text(f"  {title}", style="dim"), Text(text))
    return grid


def summary(report: Report) -> str:
    mistakes, warnings, unknowns, good = (len(report.named(verdict)) for verdict in MARKS)
    parts = [count(mistakes, "mistake", "no mistakes found")]
    if warnings:
        parts.append(count(warnings, "warning"))
    if unknowns:
        parts.append(count(unknowns, "open question"))
    return f"{', '.join(parts)}, {good} fine ({report.seconds:.1f} s)"


def count(number: int, word: str, none: str = "") -> str:
    return none if not number and none else f"{number} {word}{'s' * (number != 1)}"


def show_table(out: Console, reports: Sequence[Report], empty: Sequence[str]) -> None:
    """One line for each model, and one for the folders in which there was none."""
    table = plain_table("", "model", "weights", "mistakes", "warnings", "open")
    for report in reports:
        mark, style = MARKS["fine" if report.healthy else "mistake"]
        found = ", ".join(report.named("mistake")) or ("none" if not report.trouble else report.trouble)
        weights = f"{report.weights:,}" if report.weights else ""
        hurts, asks = (", ".join(report.named(verdict)) for verdict in ("warning", "unknown"))
        table.add_row(Text(mark, style=style), report.target, weights, Text(found), hurts, asks)
    out.print(table, markup=False, soft_wrap=False)
    if empty:
        out.print(f"no Python file in {', '.join(empty)}", markup=False)


def show_probes(out: Console) -> None:
    table = plain_table("probe", "question", "threshold, and why")
    for probe in PROBES:
        table.add_row(probe.name, probe.question, probe.threshold)
    out.print(table, markup=False, soft_wrap=False)
