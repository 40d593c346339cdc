"""The terminal: how lines and tables are printed everywhere."""

from rich.console import Console
from rich.table import Table


def terminal(quiet: bool = False, width: int | None = None) -> Console:
    """A console that colours no numbers and leaves long lines to the terminal; `quiet` shows nothing."""
    return Console(quiet=quiet, highlight=False, soft_wrap=True, width=width)


def plain_table(*headings: str) -> Table:
    """A table without lines, whose columns may wrap."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made
