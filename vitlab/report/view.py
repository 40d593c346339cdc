"""A View in, one self-contained HTML page out."""

from vitlab.report import calibration, confusion, history, looks, mistakes, words
from vitlab.report.content import Look, Mistake, View
from vitlab.report.template import fill, script

__all__ = ["Look", "Mistake", "View", "render"]


def render(view: View) -> str:
    """The whole page, with style, script and pictures inside; the same view gives the same text."""
    return fill(
        "vitlab.report",
        "report",
        {"percent": words.percent, "number": words.number, "grouped": words.grouped},
        view=view,
        digits=words.digits(view.count),
        sentences=words.headline(view.accuracy, view.interval, view.count, view.baseline),
        history=history.gather(view.epochs, view.baseline),
        confusion=confusion.gather(view.confusion),
        calibration=calibration.gather(view.calibration),
        mistakes=[mistakes.card(mistake) for mistake in view.mistakes],
        looks=looks.gather(view.looks),
        **script(),
    )
