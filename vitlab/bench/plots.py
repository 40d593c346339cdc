"""Curves on log-log paper as a standalone SVG file: a straight line is a power, its slope the exponent."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vitlab.report.charts import Axis
from vitlab.reproduce.charts import colour
from vitlab.reproduce.drawing import EDGE, RULE, SOFT, WIDTH, card, dot, heading, legend, text

LEFT, TOP, TALL = 70.0, 92.0, 270.0
GAP = 40.0
MOST = 6  # labels along the horizontal axis


@dataclass(frozen=True)
class Frame:
    """The curves that share one pair of axes: label → size → cost, and how a cost is written."""

    title: str
    lines: Mapping[str, Mapping[int, float]]
    write: Callable[[float], str]
    modelled: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # drawn instead of lines between the dots


def log_log(frames: Sequence[Frame], title: str, about: str, across: str) -> str:
    """One frame, or several side by side, with one legend below; `across` says what the sizes are."""
    wide = (WIDTH - 16.0) / len(frames)
    names = dict.fromkeys(name for frame in frames for name in frame.lines)
    labels = {name: colour(place) for place, name in enumerate(names)}
    parts: list[str] = []
    bottom = TOP + TALL
    for place, frame in enumerate(frames):
        left = LEFT + place * wide
        parts += drawn(frame, (left, (place + 1) * wide - GAP), labels, across)
    entries, bottom = legend(labels, bottom + 62)
    return card(bottom + 2, title, [*heading(title, about), *parts, *entries])


def drawn(frame: Frame, ends: tuple[float, float], labels: Mapping[str, str], across: str) -> list[str]:
    """Rules, ticks, lines and dots of one frame."""
    left, right = ends
    bottom = TOP + TALL
    sizes = sorted({size for line in frame.lines.values() for size in line})
    costs = [cost for lines in (frame.lines, frame.modelled) for line in lines.values() for cost in line.values()]
    if not sizes:
        return [text(left, TOP - 14, frame.title, weight="600"), text(left, TOP + 20, "nothing measured", fill=SOFT)]
    ticks = decades(min(costs), max(costs))
    up = Axis(math.log(ticks[0]), math.log(ticks[-1]), bottom, TOP)
    along = Axis(math.log(sizes[0]), math.log(max(sizes[-1], sizes[0] + 1)), left + 8, right - 8)
    parts = [text(left, TOP - 14, frame.title, weight="600")]
    for tick in ticks:
        y = up.pixel(math.log(tick))
        parts.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{RULE}"/>')
        parts.append(text(left - 8, y + 4.5, frame.write(tick), "end", SOFT))
    for size in sizes[:: -(-len(sizes) // MOST)]:
        parts.append(text(along.pixel(math.log(size)), bottom + 20, f"{size:,}", "middle", SOFT))
    parts.append(text((left + right) / 2, bottom + 40, across, "middle", SOFT))
    parts += [] if frame.modelled else guides(up, along)
    for label, line in frame.lines.items():
        dots, bends = (
            [(along.pixel(math.log(size)), up.pixel(math.log(cost))) for size, cost in sorted(shown.items())]
            for shown in (line, frame.modelled.get(label, line))
        )
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in bends)
        if path:
            parts.append(f'<path d="M{path}" fill="none" stroke="{labels[label]}" stroke-width="2"/>')
        parts += [dot(x, y, 3.2, labels[label]) for x, y in dots]
    return parts


def guides(up: Axis, along: Axis) -> list[str]:
    """Dashed lines of exponent 1 and 2 from the lower left corner to the frame's edge."""
    parts = []
    for power, words in ((1, "∝ n"), (2, "∝ n²")):
        end = min(along.high, along.low + (up.high - up.low) / power)
        x, y = along.pixel(end), up.pixel(up.low + power * (end - along.low))
        parts.append(
            f'<path d="M{along.start:.1f} {up.start:.1f}L{x:.1f} {y:.1f}" stroke="{EDGE}" stroke-dasharray="5 4"/>'
        )
        parts.append(
            text(x + 3, y + 4.5, words, fill=SOFT) if end == along.high else text(x - 4, y - 5, words, fill=SOFT)
        )
    return parts


def decades(low: float, high: float) -> list[float]:
    """Powers of ten around the values; where they span less than two, also their doubles and halves."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if high / low >= 100:
        return [10.0**power for power in range(first, last + 1)]
    steps = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
    below = [step for step in steps if step <= low * (1 + 1e-9)] or steps[:1]
    above = [step for step in steps if step >= high * (1 - 1e-9)] or steps[-1:]
    chosen = [step for step in steps if below[-1] <= step <= above[0]]
    return chosen if len(chosen) > 1 else [below[-1], below[-1] * 10]
