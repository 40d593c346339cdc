"""A template and what it is given → one self-contained page."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fill(
    package: str, name: str, filters: Mapping[str, Callable[..., Any]], *, shared: Sequence[str] = (), **given: Any
) -> str:
    """The page of a package's `name.html.j2` with its `name.css` inside, after the sheets that it shares.

    What a template wants and is not given is an error. It may extend the templates of vitlab.report.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader("vitlab.report", "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    sheets = [("vitlab.report", sheet) for sheet in shared] + [(package, name)]
    style = "".join(files(owner).joinpath(f"{sheet}.css").read_text("utf-8") for owner, sheet in sheets)
    page = environment.get_template(f"{name}.html.j2").render(style=Markup(style), **given)
    # A folder name that is not valid Unicode reaches Python as lone surrogates, which no UTF-8 file can hold.
    return page.encode("utf-8", "replace").decode("utf-8")


def script(*names: str) -> dict[str, str]:
    """The scripts of a page as one, and the digest by which it allows this one and no other."""
    text = "".join(files("vitlab.report").joinpath(f"{name}.js").read_text("utf-8") for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return {"script": Markup(text), "script_hash": digest}
