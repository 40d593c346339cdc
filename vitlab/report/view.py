"""A View in, one self-contained HTML page out."""

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitlab.report import calibration, confusion, history, looks, mistakes, words
from vitlab.report.content import Look, Mistake, View

__all__ = ["Look", "Mistake", "View", "render"]


def render(view: View) -> str:
    """The whole page, with style, script and pictures inside; the same view gives the same text."""
    environment = Environment(
        loader=PackageLoader("vitlab.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": words.percent, "number": words.number, "grouped": words.grouped}
    script = files("vitlab.report").joinpath("report.js").read_text("utf-8")
    page = environment.get_template("report.html.j2").render(
        view=view,
        style=Markup(files("vitlab.report").joinpath("report.css").read_text("utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        digits=words.digits(view.count),
        sentences=words.headline(view.accuracy, view.interval, view.count, view.baseline),
        history=history.gather(view.epochs, view.baseline),
        confusion=confusion.gather(view.confusion),
        calibration=calibration.gather(view.calibration),
        mistakes=[mistakes.card(mistake) for mistake in view.mistakes],
        looks=looks.gather(view.looks),
    )
    # A folder name that is not valid Unicode reaches Python as lone surrogates, which no UTF-8 file can hold.
    return page.encode("utf-8", "replace").decode("utf-8")
