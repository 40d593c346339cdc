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
from matplotlib.image import BboxImage
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Bbox, TransformedBbox

from vitlab.look.colours import Scale, palette, rooted

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
        (across, down), (beside, below) = self.tile, self.gap
        wide, high = columns * (across + beside) - beside, rows * (down + below) - below
        return self.figure.add_axes(box(self.figure, *self.corner(row, column), wide, high))

    def corner(self, row: float, column: float) -> tuple[float, float]:
        """Where a tile begins: inches from the left and from the top."""
        (across, down), (beside, below) = self.tile, self.gap
        return self.left + column * (across + beside), self.top + row * (down + below)

    def put(
        self, place: tuple[float, float], pixels: np.ndarray, *, title: str = "", below: str = "", beside: str = "",
        upright: bool = False,
    ) -> None:  # fmt: skip
        """A picture (y, x, 3) in a tile, with words around it; not axes, of which a drawing can have hundreds."""
        (x, y), (across, down), figure = self.corner(*place), self.tile, self.figure
        fit = min(across / pixels.shape[1], down / pixels.shape[0])
        wide, high = fit * pixels.shape[1], fit * pixels.shape[0]
        put_picture(figure, pixels, (x + (across - wide) / 2, y + (down - high) / 2), (wide, high))
        width, height = figure.get_size_inches()
        middle, upper, lower = (x + across / 2) / width, 1 - y / height, 1 - (y + down) / height
        if title:
            figure.text(middle, upper + 3 / 72 / height, title, color=INK, ha="center", va="baseline", size=8)
        if below:
            figure.text(middle, lower - 2 / 72 / height, below, color=SOFT, size=6.5, ha="center", va="top")
        if beside:
            rotation, size, colour = (0, 7, SOFT) if upright else (90, 8, INK)
            figure.text(
                (x - 6 / 72) / width, (upper + lower) / 2, beside, ha="right", va="center", multialignment="right",
                rotation=rotation, size=size, color=colour,
            )  # fmt: skip

    def bar(self, row: float, column: float, rows: float = 1, beyond: float = 0.42) -> Axes:
        """The axes of a colour bar, so many inches beyond the left edge of a column."""
        (x, y), down, below = self.corner(row, column), self.tile[1], self.gap[1]
        high = min(max(rows * (down + below) - below, LEAST), 2.2)
        return self.figure.add_axes(box(self.figure, x + beyond, y, 0.11, high))


def box(figure: Figure, x: float, y: float, wide: float, high: float) -> tuple[float, float, float, float]:
    """Inches from the left and the top → shares of the figure from the left and the bottom."""
    width, height = figure.get_size_inches()
    return x / width, 1 - (y + high) / height, wide / width, high / height


def put_picture(figure: Figure, pixels: np.ndarray, corner: tuple[float, float], size: tuple[float, float]) -> None:
    """A picture (y, x, 3), enlarged so that it stays sharp; inches from the left and the top."""
    factor = max(-(-FINE // max(pixels.shape[:2])), 1)
    place = TransformedBbox(Bbox.from_bounds(*box(figure, *corner, *size)), figure.transFigure)
    image = BboxImage(place, interpolation="nearest", origin="upper")
    image.set_data(pixels.repeat(factor, axis=0).repeat(factor, axis=1))
    figure.add_artist(image)


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
