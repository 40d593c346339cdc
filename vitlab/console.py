"""The terminal: how lines and tables are printed everywhere."""

import io
import os
import sys

from rich.console import Console
from rich.table import Table


def speak_anywhere() -> None:
    """A letter that stdout's encoding lacks, or a file name's broken one, is written \\xd7; no stdout is no trouble."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - to the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def terminal(quiet: bool = False, width: int | None = None) -> Console:
    """A console that colours no numbers and leaves long lines to the terminal; `quiet` shows nothing."""
    return Console(quiet=quiet, highlight=False, soft_wrap=True, width=width)


def plain_table(*headings: str) -> Table:
    """A table without lines, whose columns may wrap."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made
