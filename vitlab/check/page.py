"""Reports as one self-contained page, with the evidence as pictures."""

from collections.abc import Sequence
from importlib.resources import files

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitlab.check.finding import Picture, Report
from vitlab.check.terminal import MARKS, QUESTIONS, heading, summary
from vitlab.report.pictures import map_uri, picture_uri

ORDER = ("mistake", "warning", "unknown", "fine")


def render(reports: Sequence[Report]) -> str:
    """The whole page; the same reports give the same text."""
    environment = Environment(
        loader=PackageLoader("vitlab.check", ""),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"heading": heading, "summary": summary, "draw": draw, "bars": bars}
    style = Markup(files("vitlab.check").joinpath("check.css").read_text("utf-8"))
    page = environment.get_template("check.html.j2").render(
        reports=reports, style=style, questions=QUESTIONS, marks=MARKS, order=ORDER
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def draw(picture: Picture) -> str:
    """A map or a picture as a PNG data URI, one pixel for each number."""
    values = np.array(picture.rows, float)
    if picture.kind == "map":
        return map_uri(values, signed=False)
    low, high = values.min(), values.max()
    pixels = (values - low) / ((high - low) or 1.0) * 255
    return picture_uri(pixels.round().astype(np.uint8)[None])


def bars(picture: Picture) -> list[tuple[float, str]]:
    """The height of each bar in percent of the largest, and its number."""
    values = [abs(value) for value in picture.rows[0]]
    largest = max(values, default=0.0) or 1.0
    return [(round(100 * value / largest, 1), f"{value:.3g}") for value in values]
