"""A template and what it is given → one self-contained page."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def fill(package: str, name: str, filters: Mapping[str, Callable[..., Any]], **given: Any) -> str:
    """The page of a package's `name.html.j2`, its `name.css` inside; what a template wants and lacks is an error."""
    environment = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= filters
    style = Markup(files(package).joinpath(f"{name}.css").read_text("utf-8"))
    page = environment.get_template(f"{name}.html.j2").render(style=style, **given)
    # A folder name that is not valid Unicode reaches Python as lone surrogates, which no UTF-8 file can hold.
    return page.encode("utf-8", "replace").decode("utf-8")
