"""Line charts, the reliability diagram and maps of points as inline SVG, coloured by the page's style."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH, HEIGHT = 460, 270
LEFT, RIGHT, TOP, BOTTOM = 50, 86, 12, 40
LABEL = 15  # pixels between the names of two lines
SQUARE = 320
WIDE, EDGE = 720, 14  # of a map
SHAPES = (  # told apart also by readers who see no colours
    "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z",
    "M-3.1-3.1h6.2v6.2h-6.2z",
    "M0-4.2L4.1 3H-4.1z",
    "M0-4.5L4.5 0L0 4.5L-4.5 0z",
    "M0 4.2L4.1-3H-4.1z",
)


@dataclass(frozen=True)
class Axis:
    """A straight map from values to pixels: pixel = start + (value − low) / (high − low) · (end − start)."""

    low: float
    high: float
    start: float
    end: float

    def pixel(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


@dataclass(frozen=True)
class Series:
    """One line of a chart; NaN marks a value that is not there."""

    label: str
    kind: str  # the style's class: "main" or "second", or that of a run
    values: Sequence[float]
    epochs: Sequence[float] = ()  # where they are not those of the chart
    short: str = ""  # what stands at the line's end, where the label is too long for it

    @property
    def last(self) -> float | None:
        """The last value that is there."""
        return next((value for value in reversed(self.values) if math.isfinite(value)), None)

    def at(self, epoch: float, epochs: Sequence[float]) -> float:
        """The value at an epoch of the chart's."""
        return dict(zip(self.epochs or epochs, self.values, strict=True)).get(epoch, math.nan)


@dataclass(frozen=True)
class Tick:
    """One label on an axis."""

    value: float
    label: str


def steps(low: float, high: float, most: int, least: float = 0.0) -> list[float]:
    """Multiples of 1, 2 or 5 · 10^k that cover low … high, in at most `most` intervals inside it."""
    span = max(high - low, 1e-12 + abs(high) * 1e-9)
    power = 10.0 ** math.floor(math.log10(span / most))
    step = max(next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most), least)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]


def share_axis(shares: Sequence[float], most: int) -> tuple[Axis, tuple[tuple[float, str], ...]]:
    """An axis from shares to percent of its length that holds all of them, and its marks with their labels."""
    low, high = min(shares), max(shares)
    room = max(0.04 - (high - low), 0.0) / 2  # so that shares that are all alike have an axis, too
    marks = steps(max(low - room, 0.0), min(high + room, 1.0), most)
    axis = Axis(marks[0], marks[-1], 0.0, 100.0)
    return axis, tuple((axis.pixel(mark), f"{round(100 * mark, 6):g}\u202f%") for mark in marks)


def apart(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places nearest to the given ones that lie `gap` apart between low and high, in the same order."""
    gap = min(gap, (high - low) / max(len(places) - 1, 1))
    order = sorted(range(len(places)), key=lambda index: places[index])
    blocks: list[tuple[float, int]] = []  # the mean place and the size of labels that lie side by side
    for rank, index in enumerate(order):
        block = (places[index] - rank * gap, 1)
        while blocks and blocks[-1][0] > block[0]:
            mean, size = blocks.pop()
            block = ((mean * size + block[0] * block[1]) / (size + block[1]), size + block[1])
        blocks.append(block)
    settled = [mean for mean, size in blocks for _ in range(size)]
    last = high - (len(places) - 1) * gap
    moved = [0.0] * len(places)
    for rank, index in enumerate(order):
        moved[index] = min(max(settled[rank], low), last) + rank * gap
    return moved


def curves(
    epochs: Sequence[float],
    series: Sequence[Series],
    describe: str,
    *,
    form: Callable[[float], str],
    bounds: tuple[float, float],
    ticks: Sequence[Tick],
    reference: Tick | None = None,
    frame: str = "",
    across: tuple[str, str] = ("epoch", "epoch"),
    moment: float | None = None,
) -> Markup:
    """Lines against epoch, labelled at their right ends, with one readout text per epoch for the script.

    `across` names something other than the epoch, on the axis and in a readout.
    A `frame` is the name of an edge at which lines that leave the bounds are cut off; a `moment` is marked upright.
    """
    vertical = Axis(*bounds, start=HEIGHT - BOTTOM, end=TOP)
    first, last = min(epochs), max(epochs)
    margin = 0.5 if first == last else 0.0
    horizontal = Axis(first - margin, last + margin, start=LEFT, end=WIDTH - RIGHT)
    marks = steps(first, last, most=6, least=across[0] == "epoch") if first < last else [first]
    parts = [_rule(vertical.pixel(tick.value), tick.label) for tick in ticks]
    parts += [
        text(horizontal.pixel(mark), HEIGHT - BOTTOM + 18, "middle", f"{mark:g}")
        for mark in marks
        if horizontal.low <= mark <= horizontal.high
    ]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "middle", across[0]))
    if reference is not None and bounds[0] <= reference.value <= bounds[1]:
        y = vertical.pixel(reference.value)
        parts.append(f'<path class="reference" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(text(LEFT + 4, y - 5, "start", reference.label))
    if moment is not None:
        parts.append(f'<path class="reference" d="M{horizontal.pixel(moment):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
    lines = "".join(_line(line, line.epochs or epochs, horizontal, vertical) for line in reversed(series))
    parts.append(_framed(lines, frame) if frame else lines)
    parts += _end_labels(series, horizontal, vertical)
    readouts = [
        " · ".join([f"{across[1]} {epoch:g}", *(f"{line.label} {form(line.at(epoch, epochs))}" for line in series)])
        for epoch in epochs
    ]
    places = json.dumps([round(horizontal.pixel(epoch), 1) for epoch in epochs])
    return Markup(
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{escape(describe)}" '
        f'data-x="{places}" data-readout="{escape(json.dumps(readouts, ensure_ascii=False))}">{"".join(parts)}</svg>'
    )


def reliability(bins: Sequence[tuple[float, float, int]], describe: str) -> Markup:
    """Accuracy against confidence: a dot per bin, its area the bin's count, its stem the distance from the diagonal."""
    low, high = 44.0, SQUARE - 12.0
    across, up = Axis(0, 1, low, high), Axis(0, 1, SQUARE - 44.0, 12.0)
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path class="rule" d="M{low} {up.pixel(share):.1f}H{high}"/>')
        parts.append(text(low - 8, up.pixel(share) + 4, "end", f"{100 * share:.0f}"))
        parts.append(text(across.pixel(share), up.start + 18, "middle", f"{100 * share:.0f}"))
    parts.append(f'<path class="reference" d="M{low} {up.start}L{high} {up.end}"/>')
    parts.append(text((low + high) / 2, SQUARE - 6, "middle", "confidence, %"))
    parts.append(f'<text transform="translate(13 {SQUARE / 2 - 16}) rotate(-90)" text-anchor="middle">right, %</text>')
    most = max((count for _, _, count in bins), default=0)
    for confidence, accuracy, count in bins:
        if count == 0:
            continue
        x, y = across.pixel(confidence), up.pixel(accuracy)
        radius = 3 + 7 * math.sqrt(count / most)
        parts.append(f'<path class="stem" d="M{x:.1f} {up.pixel(confidence):.1f}V{y:.1f}"/>')
        parts.append(
            f'<circle class="bin" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"><title>'
            f"{count} pictures: {100 * confidence:.1f} % sure, {100 * accuracy:.1f} % right</title></circle>"
        )
    return Markup(
        f'<svg class="chart square" role="img" viewBox="0 0 {SQUARE} {SQUARE}" aria-label="{escape(describe)}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class Point:
    """One point of a map: where it lies, which of the kinds it is, and what is said of it."""

    x: float
    y: float
    kind: int
    title: str


def scatter(points: Sequence[Point], describe: str) -> Markup:
    """Points at one scale in both directions, each in its kind's colour and shape; the axes mean nothing."""
    across, up = ([getattr(point, name) for point in points] for name in ("x", "y"))
    wide, tall = max(across) - min(across), max(up) - min(up)
    scale = min((WIDE - 2 * EDGE) / max(wide, 1e-9), 0.75 * WIDE / max(tall, 1e-9))
    height = round(max(tall * scale, 0.25 * WIDE)) + 2 * EDGE
    left, top = WIDE / 2 - scale * (max(across) + min(across)) / 2, height / 2 + scale * (max(up) + min(up)) / 2
    kinds = "".join(
        f'<path id="kind-{kind}" class="kind-{kind}" d="{shape(kind)}"/>' for kind in sorted({p.kind for p in points})
    )
    marks = "".join(
        f'<use href="#kind-{point.kind}" x="{left + scale * point.x:.1f}" y="{top - scale * point.y:.1f}">'
        f"<title>{escape(point.title)}</title></use>"
        for point in points
    )
    return Markup(
        f'<svg class="chart points" role="img" viewBox="0 0 {WIDE} {height}" aria-label="{escape(describe)}">'
        f"<defs>{kinds}</defs>{marks}</svg>"
    )


def shape(kind: int) -> str:
    """The outline of a kind's points, around 0."""
    return SHAPES[kind % len(SHAPES)]


def _rule(y: float, label: str) -> str:
    return f'<path class="rule" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>' + text(LEFT - 8, y + 4, "end", label)


def text(x: float, y: float, anchor: str, words: str, kind: str = "") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text{style} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(line: Series, epochs: Sequence[float], horizontal: Axis, vertical: Axis) -> str:
    """The line as one path, broken where values are missing; points that stand alone, and few points, become dots."""
    present = [math.isfinite(value) for value in line.values]
    path, dots = [], []
    for index, (epoch, value) in enumerate(zip(epochs, line.values, strict=True)):
        if not present[index]:
            continue
        before, after = index > 0 and present[index - 1], index + 1 < len(present) and present[index + 1]
        point = f"{horizontal.pixel(epoch):.1f} {vertical.pixel(value):.1f}"
        path.append(("L" if before else "M") + point)
        if len(epochs) <= 25 or not (before or after):
            x, y = point.split()
            dots.append(f'<circle cx="{x}" cy="{y}" r="2.6"/>')
    return f'<g class="line {line.kind}"><path d="{"".join(path)}"/>{"".join(dots)}</g>' if path else ""


def _framed(lines: str, name: str) -> str:
    """Lines cut off a little outside the bounds, so that no stroke along an edge is halved."""
    wide, tall = WIDTH - RIGHT - LEFT + 8, HEIGHT - BOTTOM - TOP + 6
    return (
        f'<clipPath id="{name}"><rect x="{LEFT - 4}" y="{TOP - 3}" width="{wide}" height="{tall}"/></clipPath>'
        f'<g clip-path="url(#{name})">{lines}</g>'
    )


def _end_labels(series: Sequence[Series], horizontal: Axis, vertical: Axis) -> list[str]:
    """Each line's name beside its last value, pushed apart where two would overlap.

    A line with epochs of its own may end early, or among many: a thin stroke leads from its end to its name.
    """
    ends = [(line, vertical.pixel(line.last)) for line in series if line.last is not None]
    places = apart([y for _, y in ends], LABEL, TOP + 8, HEIGHT - BOTTOM - 4)
    parts, right = [], WIDTH - RIGHT
    for (line, y), place in zip(ends, places, strict=True):
        if line.epochs:
            x = horizontal.pixel(line.epochs[-1])
            parts.append(f'<path class="leader {line.kind}" d="M{x:.1f} {y:.1f}H{right}L{right + 8} {place:.1f}"/>')
        parts.append(text(right + 10, place + 4, "start", line.short or line.label, f"label {line.kind}"))
    return parts
