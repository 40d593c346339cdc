"""A study's charts as inline SVG: the effect of a setting, and accuracy against cost with its front."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from vitlab.report.charts import BOTTOM, HEIGHT, LEFT, TOP, Axis, steps, text
from vitlab.report.words import NARROW_SPACE

WIDTH, RIGHT = 460, 20
DIGITS = (1, 2, 5)


@dataclass(frozen=True)
class Dot:
    """A mean accuracy and half its interval, at a place along the axis: a value's rank, or a number."""

    x: float
    accuracy: float
    margin: float | None
    title: str
    kind: str = ""  # chosen, front, pruned or none of them


@dataclass(frozen=True)
class Accuracies:
    """The vertical axis: shares from low to high, with room for the intervals."""

    low: float
    high: float
    marks: tuple[float, ...]

    @property
    def axis(self) -> Axis:
        return Axis(self.low, self.high, HEIGHT - BOTTOM, TOP)


def accuracies(dots: Sequence[Dot]) -> Accuracies:
    """An axis that holds every dot; its interval only as far as it does not flatten all the rest."""
    values = [dot.accuracy for dot in dots]
    low, high = min(values), max(values)
    room = max(high - low, 0.01)
    ends = [dot.accuracy + sign * min(dot.margin or 0.0, room) for dot in dots for sign in (-1, 1)]
    marks = steps(max(min(ends) - 0.03 * room, 0.0), min(max(ends) + 0.03 * room, 1.0), most=5)
    return Accuracies(marks[0], marks[-1], tuple(marks))


def effect(name: str, labels: Sequence[str], dots: Sequence[Dot], scale: Accuracies, joined: bool) -> Markup:
    """A mean for each value, with its interval; values that are numbers are joined by a line."""
    across = Axis(-0.5, max(len(labels) - 0.5, 0.5), LEFT, WIDTH - RIGHT)
    marks = [(across.pixel(place), label) for place, label in enumerate(labels)]
    drawn = [_dot(dot, across.pixel(dot.x), scale) for dot in dots]
    if joined:
        path = "L".join(f"{across.pixel(dot.x):.1f} {scale.axis.pixel(dot.accuracy):.1f}" for dot in dots)
        drawn.insert(0, f'<path class="through" d="M{path}"/>')
    return _chart(f"accuracy against {name}", name, marks, scale, drawn)


def cloud(name: str, dots: Sequence[Dot], scale: Accuracies, log: bool, front: Sequence[Dot] = ()) -> Markup:
    """A dot for each point along an axis of numbers; the front is a line of steps through its points."""
    place = math.log10 if log else float
    xs = [place(dot.x) for dot in dots]
    room = 0.04 * (max(xs) - min(xs)) or 0.1
    across = Axis(min(xs) - room, max(xs) + room, LEFT, WIDTH - RIGHT)
    low, high = min(dot.x for dot in dots), max(dot.x for dot in dots)
    inside = [mark for mark in decades(low, high) if low <= mark <= high] if log else []
    values = inside if len(inside) > 1 else [mark for mark in steps(low, high, 4) if low <= mark <= high]
    marks = [(across.pixel(place(mark)), amount(mark)) for mark in values]
    drawn = []
    if front:
        ends = [(across.pixel(place(dot.x)), scale.axis.pixel(dot.accuracy)) for dot in front]
        path = f"M{ends[0][0]:.1f} {ends[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in ends[1:])
        drawn.append(f'<path class="through" d="{path}H{WIDTH - RIGHT}"/>')
    drawn += [_dot(dot, across.pixel(place(dot.x)), scale) for dot in sorted(dots, key=lambda dot: dot.kind)]
    return _chart(f"accuracy against {name}", name, marks, scale, drawn)


def decades(low: float, high: float) -> list[float]:
    """Round numbers on a logarithmic axis: 1, 2 and 5 of each power of ten, or the powers alone where they are many."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    digits = DIGITS if len(powers) <= 3 else (1,)
    return [digit * 10.0**power for power in powers for digit in digits]


def amount(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{NARROW_SPACE}{unit}"
    return f"{value:g}" if value >= 0.001 or value == 0 else f"{value:.0e}".replace("e-0", "e-").replace("-", "−")


def _dot(dot: Dot, x: float, scale: Accuracies) -> str:
    y = scale.axis.pixel(dot.accuracy)
    whisker = ""
    if dot.margin is not None:
        ends = [min(max(dot.accuracy + sign * dot.margin, scale.low), scale.high) for sign in (-1, 1)]
        low, high = (scale.axis.pixel(end) for end in ends)
        whisker = f'<path class="whisker" d="M{x:.1f} {low:.1f}V{high:.1f}"/>'
    radius = 6 if dot.kind == "chosen" else 4
    return (
        f'<g class="dot-of {dot.kind}">{whisker}<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{escape(dot.title)}</title></circle></g>"
    )


def _chart(
    describe: str, name: str, marks: Sequence[tuple[float, str]], scale: Accuracies, drawn: Sequence[str]
) -> Markup:
    parts = []
    for mark in scale.marks:
        y = scale.axis.pixel(mark)
        parts.append(f'<path class="rule" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(text(LEFT - 8, y + 4, "end", f"{round(100 * mark, 6):g}{NARROW_SPACE}%"))
    parts += [text(x, HEIGHT - BOTTOM + 18, "middle", label) for x, label in marks]
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "middle", name))
    return Markup(
        f'<svg class="chart study" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-label="{escape(describe)}">'
        f"{''.join(parts)}{''.join(drawn)}</svg>"
    )
