"""The frame of every drawing: sizes, type, tiles, colour bars, and PNG and SVG files."""

import io
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vitlab.look.colours import Scale, overlay, palette, rooted, visible

INK, SOFT, RULE = "#1f2328", "#59636e", "#d8dee4"
# Okabe and Ito's colours, in an order that also differs in lightness.
LINES = ("#0072b2", "#d55e00", "#009e73", "#7f7f7f", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "axes.edgecolor": RULE,
    "axes.labelcolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.grid": False,
    "svg.hashsalt": "vitlab",
    "text.parse_math": False,  # a $ in somebody's file name is a $
}
DOTS = 180  # per inch
LEAST = 0.95  # inches that a tile has at least, so that what stands beside it has room
FINE = 168  # pixels that a tile has at least, so that no viewer smooths a small picture


def new_figure(width: float, height: float) -> Figure:
    """A white figure, in inches."""
    return Figure(figsize=(width, height), facecolor="white")


def styled() -> AbstractContextManager[None]:
    """The style that all drawings share, for a `with` statement."""
    return mpl.rc_context(STYLE)


METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": "vitlab"}}


def rendered(figure: Figure, kind: str) -> bytes:
    """A figure as a png or svg file; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters that the font lacks are drawn as boxes
        figure.savefig(buffer, format=kind, dpi=DOTS, metadata=METADATA[kind])
    return buffer.getvalue()


@dataclass(frozen=True)
class Sheet:
    """Equal tiles in rows and columns, with room for a heading, for labels at the left and for a colour bar."""

    figure: Figure
    tile: tuple[float, float]  # inches
    gap: tuple[float, float]
    left: float
    top: float

    def axes(self, row: float, column: float, rows: float = 1, columns: float = 1) -> Axes:
        """The axes of a tile, or of several."""
        width, height = self.figure.get_size_inches()
        (across, down), (beside, below) = self.tile, self.gap
        x = self.left + column * (across + beside)
        y = self.top + row * (down + below)
        wide, high = columns * (across + beside) - beside, rows * (down + below) - below
        return self.figure.add_axes((x / width, 1 - (y + high) / height, wide / width, high / height))

    def bar(self, row: float, column: float, rows: float = 1, beyond: float = 0.42) -> Axes:
        """The axes of a colour bar, so many inches beyond the left edge of a column."""
        width, height = self.figure.get_size_inches()
        (across, down), (beside, below) = self.tile, self.gap
        x = self.left + column * (across + beside) + beyond
        high = min(max(rows * (down + below) - below, LEAST), 2.2)
        y = self.top + row * (down + below)
        return self.figure.add_axes((x / width, 1 - (y + high) / height, 0.11 / width, high / height))


def sheet(
    rows: float, columns: float, ratio: float, *, side: float = 1.0, left: float = 0.55, top: float = 0.7,
    right: float = 1.15, below: float = 0.24,
) -> Sheet:  # fmt: skip
    """A sheet of rows × columns tiles whose height is `ratio` times their width, the longer side as given."""
    side = max(side, min(LEAST / min(ratio, 1 / ratio), 3 * side))
    across, down = side / max(ratio, 1), side * min(ratio, 1)
    gap = 0.08, below
    width = left + columns * (across + gap[0]) + right
    height = top + max(rows * (down + gap[1]), 1.25) + 0.08
    return Sheet(new_figure(width, height), (across, down), gap, left, top)


def heading(figure: Figure, title: str, words: str = "") -> None:
    """The title of a drawing, and a line that says what it shows."""
    height = figure.get_size_inches()[1]
    figure.text(0.12 / figure.get_size_inches()[0], 1 - 0.1 / height, title, fontsize=10, weight="bold", va="top")
    if words:
        figure.text(0.12 / figure.get_size_inches()[0], 1 - 0.31 / height, words, color=SOFT, va="top", fontsize=7.5)


def tile(axes: Axes, pixels: np.ndarray, title: str = "", below: str = "") -> None:
    """A picture (y, x, 3) without axes, large enough to stay sharp."""
    factor = max(-(-FINE // max(pixels.shape[:2])), 1)
    axes.imshow(pixels.repeat(factor, axis=0).repeat(factor, axis=1), interpolation="nearest", aspect="equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)
    if title:
        axes.set_title(title, color=INK, pad=3)
    if below:
        axes.set_xlabel(below, color=SOFT, fontsize=6.5, labelpad=2)


def show_picture(axes: Axes, picture: np.ndarray, title: str = "", below: str = "") -> None:
    tile(axes, visible(picture), title, below)


def show_map(
    axes: Axes, picture: np.ndarray, weights: np.ndarray, scale: Scale, *, title: str = "", below: str = ""
) -> None:
    tile(axes, overlay(picture, weights, scale.signed, scale.most, scale.root), title, below)


def colour_bar(axes: Axes, scale: Scale, label: str, even: float | None = None) -> None:
    """The scale, as it looks over mid-grey; a mark where every token would have the same weight."""
    colours = palette(scale.signed) / 255
    over_grey = ListedColormap(colours[:, :3] * colours[:, 3:] + 0.5 * (1 - colours[:, 3:]))
    low = -scale.most if scale.signed else 0.0
    norm = FuncNorm((rooted, squared), low, scale.most) if scale.root else Normalize(low, scale.most)
    figure = axes.figure
    assert isinstance(figure, Figure)
    beyond = ("both" if scale.signed else "max") if scale.clipped else "neither"
    bar = figure.colorbar(mpl.cm.ScalarMappable(norm, over_grey), cax=axes, extend=beyond, extendfrac=0.04)
    bar.outline.set_visible(False)
    ends = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(low, scale.most)
    small = [scale.most * share for share in (0.05, -0.05)] if scale.root else []
    ticks = [float(f"{tick:.1g}") for tick in small] + list(ends)
    bar.set_ticks([tick for tick in ticks if low <= tick <= scale.most], labels=None)
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "−"))
    bar.ax.minorticks_off()
    bar.ax.tick_params(length=2, width=0.5)
    bar.set_label(label, color=SOFT, fontsize=7)
    if even is not None and even < scale.most:
        bar.ax.axhline(even, color="white", linewidth=1.2)
        bar.ax.annotate(
            "even", (0, even), (-2, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="center", fontsize=6, color=SOFT,
        )  # fmt: skip


def squared(share: np.ndarray) -> np.ndarray:
    return np.sign(share) * np.square(share)
