"""A View in, one self-contained HTML page out."""

from collections.abc import Callable
from typing import Any

from vitlab.report import calibration, confusion, history, insight, mistakes, unlabelled_section, words
from vitlab.report.content import Insight, Mistake, Unlabelled, View
from vitlab.report.template import fill, script

__all__ = ["Insight", "Mistake", "Unlabelled", "View", "render", "render_look"]

FILTERS: dict[str, Callable[..., str]] = {"percent": words.percent, "number": words.number, "grouped": words.grouped}


def render(view: View) -> str:
    """The whole page, with style, script and pictures inside; the same view gives the same text."""
    unlabelled = unlabelled_section.gather(view)
    sentences = words.headline(view.accuracy, view.interval, view.count, view.baseline)
    sentences += [view.balance] if view.balance else []
    return fill(
        "vitlab.report",
        "report",
        FILTERS,
        view=view,
        digits=words.digits(view.count),
        sentences=sentences if unlabelled is None or unlabelled.labelled else [unlabelled_section.NO_LABELS],
        history=history.gather(view.epochs, view.baseline),
        confusion=confusion.gather(view.confusion),
        calibration=calibration.gather(view.calibration),
        mistakes=[mistakes.card(mistake) for mistake in view.mistakes],
        unlabelled=unlabelled,
        probe=unlabelled_section.probed(view),
        shared=("explorer",),
        **inside(view.insight),
        **script("report", "explorer"),
    )


def render_look(title: str, found: Insight) -> str:
    """The page of one look: the explorer, the test of the maps, the heads and the places."""
    notes = [f"{shown.name}: {shown.note}" for shown in found.look.shown if shown.note]
    return fill(
        "vitlab.report",
        "look",
        FILTERS,
        shared=("report", "explorer"),
        title=title,
        notes=notes,
        **inside(found),
        **script("report", "explorer"),
    )


def inside(found: Insight | None) -> dict[str, Any]:
    """What the section on attention is given."""
    if found is None:
        return {"explorer": None}
    return {
        "explorer": found.explorer,
        "looking": found.look.looking,
        "gap": found.look.gap,
        "blind": found.look.blind,
        "scales": len(found.look.sources),
        "signed": any(stream["signed"] for stream in found.explorer.data["streams"]),
        "tested": insight.tested(found.trust),
        "heads": insight.heads(found.look),
        "mosaics": insight.mosaics(found.places),
    }
