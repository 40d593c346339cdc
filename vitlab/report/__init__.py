"""The page a run leaves behind: one self-contained HTML file."""

from vitlab.report.view import Insight, Mistake, View, render

__all__ = ["Insight", "Mistake", "View", "render"]
