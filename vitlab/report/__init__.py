"""The page a run leaves behind: one self-contained HTML file."""

from vitlab.report.view import Look, Mistake, View, render

__all__ = ["Look", "Mistake", "View", "render"]
