"""Somebody else's words, fit to stand in one line of ours."""

import re
from pathlib import Path


def one_line(message: object, longest: int = 120) -> str:
    """A message in one short line; the kind of error where it has no words."""
    return " ".join(str(message).split())[:longest] or type(message).__name__


def counted(number: int, thing: str) -> str:
    """A number and what it counts: "1 picture", "3 pictures"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def shown(name: Path | str) -> str:
    """A file name with its unprintable characters escaped."""
    text = str(name)
    return text if text.isprintable() else repr(text)[1:-1]


def natural(name: str) -> tuple[list[str | int], str]:
    """Sort key that puts "2" before "10" and "a" beside "A"."""
    pieces = re.split(r"([0-9]+)", name)
    return [int(piece) if place % 2 else piece.casefold() for place, piece in enumerate(pieces)], name
