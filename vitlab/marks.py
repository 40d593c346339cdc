"""Figures in a page of prose: what stands between two marks is made anew from the records, the rest stays."""

import re
from collections.abc import Mapping


def filled(text: str, made: Mapping[str, str]) -> str:
    """The text with each part between `<!-- name -->` and `<!-- end of name -->` as it is made."""
    for name, part in made.items():
        marks = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end of {re.escape(name)} -->)", re.DOTALL)
        places = list(marks.finditer(text))
        assert len(places) == 1, f"the marks of '{name}' are there {len(places)} times"
        (place,) = places
        text = f"{text[: place.end(1)]}{part.rstrip()}\n{text[place.start(2) :]}"
    return text
