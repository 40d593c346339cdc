"""The reports' experiments on a terminal: the list with the reported figures, and a table of each that was run."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from vitlab.console import plain_table
from vitlab.reproduce import words
from vitlab.reproduce.figures import missing, table, verdict
from vitlab.reproduce.plan import Reproduction


def show_list(console: Console, plans: Mapping[str, Reproduction]) -> None:
    """Every experiment with its variants, and what the report says of them."""
    made = plain_table("experiment", "variant", "reported", "settings")
    for name, plan in plans.items():
        made.add_row(name, f"{plan.report}: {plan.title}", "", "", style="bold")
        for variant in plan.variants:
            reported = "" if variant.reported is None else words.percent(variant.reported)
            first = f"first {' '.join(variant.first)}" if variant.first else ""
            made.add_row("", variant.title, reported, " ".join(variant.settings) + f"; {first}" * bool(first))
    console.print(made, markup=False)
    console.print(
        "Run one with 'vitlab reproduce NAME', a report's with 'vitlab reproduce r1', all with 'vitlab reproduce all'; "
        "--small takes minutes on two cores.",
        markup=False,
    )


def show_record(console: Console, plan: Reproduction, record: Mapping[str, Any] | None) -> None:
    """Theirs and ours, variant by variant, and what becomes of the report's conclusions."""
    if record is None:
        return
    rows = table(plan, record)
    small = ", small version" if record["small"] else ""
    console.print(f"\n{plan.report}: {plan.title} ({record['name']}{small})", style="bold", markup=False)
    grouped = any(row.group for row in rows)
    made = plain_table(
        *(["part"] if grouped else []), "variant", "report", "ours", "difference", "while training", "time"
    )
    for row in rows:
        made.add_row(
            *([row.group] if grouped else []),
            row.name,
            "" if row.reported is None else words.percent(row.reported),
            words.accuracy(row.accuracy),
            "" if row.difference is None else words.points(row.difference),
            words.percent(row.train_accuracy.mean),
            words.duration(row.seconds),
            style="bold" if row.difference is not None and row.difference.sign else None,
        )
    console.print(made, markup=False)
    left = [variant.name for variant in missing(plan, rows)]
    if left:
        console.print(f"still to run: {', '.join(left)}", markup=False)
    for claim in plan.claims:
        console.print(f"{claim.words} {verdict(claim, rows).word}", markup=False)
