"""Pieces of a standalone SVG file: a scale that may be broken, text, marks, legends, and the card they lie on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import escape

from vitlab.report.charts import Axis, apart, steps

WIDTH = 820
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"
INK, SOFT, RULE, EDGE = "#1f2328", "#59636e", "#dfe4ea", "#d0d7de"
LETTER = 7.0  # pixels that a letter of the text takes, seldom more
LINE = 17.0  # pixels between the labels of two lines
SHORT, BREAK = 0.18, 0.09  # shares of a broken scale: its short part, and the gap


@dataclass(frozen=True)
class Scale:
    """An axis in one part, or in two with a break between them, lower values first; each part has its ticks."""

    parts: tuple[Axis, ...]
    ticks: tuple[tuple[float, ...], ...]
    is_share: bool

    def pixel(self, value: float) -> float:
        """Where a value lies; one that no part holds lies at the nearest edge."""
        nearest = min(self.parts, key=lambda part: max(part.low - value, value - part.high))
        return nearest.pixel(min(max(value, nearest.low), nearest.high))

    def label(self, value: float) -> str:
        return f"{round(100 * value, 6):g} %" if self.is_share else f"{value:g}"

    @property
    def note(self) -> str:
        """What a reader must know of the break."""
        if len(self.parts) == 1:
            return ""
        return f"; the axis leaves out {self.label(self.parts[0].high)} to {self.label(self.parts[1].low)}"


def scale(
    ends: Sequence[float],
    shown: Sequence[Sequence[float]],
    start: float,
    end: float,
    *,
    is_share: bool = True,
    most: int = 5,
) -> Scale:
    """A scale for all `shown` values; where some `ends` are far worse than the rest, they get a short part apart."""
    everything = _ticks([value for values in shown for value in values], most, is_share)
    whole = Scale((Axis(everything[0], everything[-1], start, end),), (everything,), is_share)
    order = sorted(range(len(ends)), key=lambda place: ends[place])
    gaps = [ends[above] - ends[below] for below, above in pairwise(order)]
    if not gaps:
        return whole
    cut = max(range(len(gaps)), key=lambda place: gaps[place]) + 1
    good = order[cut:] if is_share else order[:cut]
    top, bottom = ends[good[-1]], ends[good[0]]
    if gaps[cut - 1] <= max(4 * (top - bottom), 0.25 if is_share else top):
        return whole
    low, high = (
        _ticks(
            [value for place in places for value in shown[place]],
            most if places == good else 2,
            is_share,
            0.0 if places == good else 0.1,
        )
        for places in (order[:cut], order[cut:])
    )
    if low[-1] >= high[0]:  # the two overlap on the way: no value between them can be left out
        return whole
    short = SHORT if is_share else 1 - SHORT - BREAK
    edges = [start + at * (end - start) for at in (short, short + BREAK)]
    parts = Axis(low[0], low[-1], start, edges[0]), Axis(high[0], high[-1], edges[1], end)
    return Scale(parts, (low, high), is_share)


def _ticks(values: Sequence[float], most: int, is_share: bool, least: float = 0.0) -> tuple[float, ...]:
    low, high = min(values), max(values)
    room = max(0.004 - (high - low), 0.0) / 2
    low, high = max(low - room, min(low, 0.0)), high + room
    return tuple(steps(low, min(high, 1.0) if is_share else high, most, least))


def card(height: float, describe: str, parts: Sequence[str]) -> str:
    """The whole file: a white card with an edge, so that it reads alike on a light and on a dark page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(describe)}" '
        f'font-family="{FONT}" font-size="13" fill="{INK}">\n'
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8" fill="#ffffff" '
        f'stroke="{EDGE}"/>\n' + "\n".join(part for part in parts if part) + "\n</svg>\n"
    )


def text(x: float, y: float, words: str, anchor: str = "start", fill: str = INK, *, weight: str = "400") -> str:
    if not words:
        return ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-weight="{weight}">'
        f"{escape(words)}</text>"
    )


def heading(title: str, subtitle: str) -> list[str]:
    return [text(18, 27, title, weight="600"), text(18, 46, subtitle, fill=SOFT)]


def dot(x: float, y: float, radius: float, fill: str, opacity: float = 1.0) -> str:
    clear = "" if opacity == 1 else f' opacity="{opacity:g}"'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}"{clear}/>'


def diamond(x: float, y: float) -> str:
    """The mark of a reported figure."""
    return (
        f'<path class="reported" d="M{x:.1f} {y - 6.5:.1f}l6.5 6.5l-6.5 6.5l-6.5 -6.5z" fill="#ffffff" '
        f'fill-opacity="0.6" stroke="{INK}" stroke-width="1.6"/>'
    )


def rules(up: Scale, left: float, right: float) -> list[str]:
    """The horizontal lines of a vertical scale, with their values on the left and a mark at a break."""
    parts = []
    for axis, ticks in zip(up.parts, up.ticks, strict=True):
        for tick in ticks:
            y = axis.pixel(tick)
            parts.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{RULE}"/>')
            parts.append(text(left - 8, y + 4.5, up.label(tick), "end", SOFT))
    return parts + broken(up, lambda y: f"M{left - 5:.1f} {y:.1f}l10 -4M{left - 5:.1f} {y + 5:.1f}l10 -4")


def broken(along: Scale, path: Callable[[float], str]) -> list[str]:
    """Two strokes across the axis at its break, drawn by `path` around the break's middle."""
    if len(along.parts) == 1:
        return []
    return [f'<path d="{path((along.parts[0].end + along.parts[1].start) / 2)}" stroke="{SOFT}" fill="none"/>']


def end_labels(ends: Sequence[tuple[str, str, float]], up: Scale, right: float) -> list[str]:
    """Each line's label beside its last value, pushed apart where two would overlap, with a stroke that leads to it."""
    wanted = [up.pixel(value) for _, _, value in ends]
    low, high = up.parts[-1].end, up.parts[0].start
    parts = []
    for (label, colour, _), y, place in zip(ends, wanted, apart(wanted, LINE, low, high), strict=True):
        parts.append(
            f'<path d="M{right + 2:.1f} {y:.1f}L{right + 16:.1f} {place:.1f}h5" fill="none" stroke="{colour}" '
            f'stroke-width="1.5"/>'
        )
        parts.append(text(right + 25, place + 4.5, label))
    return parts


def legend(colours: Mapping[str, str], y: float) -> tuple[list[str], float]:
    """A stroke of each colour with its label, in as many lines as they need, and where the next thing may start."""
    parts, x = [], 18.0
    for label, colour in colours.items():
        room = 46 + LETTER * len(label)
        if x > 18 and x + room > WIDTH - 18:
            x, y = 18.0, y + 22
        parts.append(f'<path d="M{x:.1f} {y:.1f}h22" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(x + 28, y + 4.5, label))
        x += room
    return parts, y + 20
