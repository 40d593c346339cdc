"""The charts of a reproduction as standalone SVG files, and the sinusoidal position tables as pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from markupsafe import escape
from PIL import Image

from vitlab.model.positions import sinusoids
from vitlab.report.charts import Axis, steps
from vitlab.reproduce.drawing import (
    LETTER,
    RULE,
    SOFT,
    WIDTH,
    Scale,
    broken,
    card,
    diamond,
    dot,
    end_labels,
    heading,
    legend,
    rules,
    scale,
    text,
)
from vitlab.sample import Sample

# After Okabe and Ito, and Tol: told apart by readers who see red and green alike. The first is for the base.
COLOURS = ("#1f2328", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#8a8a2b")
DASHES = ("", "6 3", "2 3")  # for lines beyond the colours
POINTS = 250  # of a line, at most
LEFT, TOP, TALL = 62.0, 64.0, 290.0
SMALL = 190.0  # height of a frame among several
WIDE = 0.05  # a band wider than this may leave the frame
# Blue, white and red for −1 … 1, after ColorBrewer's RdBu.
BELOW_AND_ABOVE = np.array([(33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43)], float)


@dataclass(frozen=True)
class Line:
    """A variant's course over two epochs or more: the mean over seeds, and the lowest and highest seed."""

    label: str
    place: int  # in the plan: the choice of colour
    epochs: Sequence[float]
    means: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]

    @property
    def late(self) -> list[float]:
        """What the vertical axis must show: means, and bands unless they are wide, after a fifth of the training."""
        found = []
        for at, *values in zip(self.epochs, self.means, self.lows, self.highs, strict=True):
            if at >= 0.2 * self.epochs[-1]:
                found += values if values[2] - values[1] < WIDE else values[:1]
        return found


@dataclass(frozen=True)
class Panel:
    """The lines that share one frame."""

    title: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Mark:
    """A variant's test accuracy over seeds, where it has been run, and what the report says of it."""

    label: str
    sample: Sample | None
    reported: float | None = None


@dataclass(frozen=True)
class Track:
    """Marks joined by a line, one for each place along the horizontal axis."""

    label: str
    marks: Sequence[Mark]


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def curves(panels: Sequence[Panel], title: str, *, is_share: bool) -> str:
    """Lines against epoch: one frame with labels at the lines' ends, or several small ones with a legend below."""
    alone, columns = len(panels) == 1, min(len(panels), 3)
    labels = {line.label: colour(line.place) for panel in panels for line in panel.lines}
    right = 34 + LETTER * max(map(len, labels)) if alone else 16.0
    tall, head = (TALL, TOP) if alone else (SMALL, TOP + 24)
    wide = (WIDTH - right) / columns
    parts, about = [], "mean over seeds, with a band from the lowest to the highest seed"
    if all(line.lows == line.highs for panel in panels for line in panel.lines):
        about = "one seed, or seeds that agree"
    for index, panel in enumerate(panels):
        row, column = divmod(index, columns)
        top, left = head + row * (tall + 76), LEFT + column * wide
        across = Axis(*_epochs(panel), left, (column + 1) * wide)
        ends = [line.means[-1] for line in panel.lines]
        up = scale(ends, [line.late for line in panel.lines], top + tall, top, is_share=is_share)
        parts += [_clip(across, up, f"frame{index}"), *rules(up, across.start, across.end)]
        parts += _epoch_labels(across, top + tall)
        parts += [_curve(line, across, up, f"frame{index}") for line in reversed(panel.lines)]
        if alone:
            about += up.note
            parts += end_labels(
                [(line.label, colour(line.place), line.means[-1]) for line in panel.lines], up, across.end
            )
        else:
            parts.append(text(left, top - 10, panel.title, weight="600"))
    bottom = head + math.ceil(len(panels) / columns) * (tall + 76) - 18
    if not alone:
        entries, bottom = legend(labels, bottom + 8)
        parts += entries
    return card(bottom, title, [*heading(title, about), *parts])


def _epochs(panel: Panel) -> tuple[float, float]:
    first = min(line.epochs[0] for line in panel.lines)
    last = max(line.epochs[-1] for line in panel.lines)
    return first, last


def _epoch_labels(across: Axis, bottom: float) -> list[str]:
    marks = [mark for mark in steps(across.low, across.high, 5, least=1) if across.low <= mark <= across.high]
    parts = [text(across.pixel(mark), bottom + 20, f"{mark:g}", "middle", SOFT) for mark in marks]
    return [*parts, text((across.start + across.end) / 2, bottom + 40, "epoch", "middle", SOFT)]


def _clip(across: Axis, up: Scale, name: str) -> str:
    """One clipping frame for each part of the scale, a little wider than the part so that no stroke is cut in half."""
    frames = [
        f'<clipPath id="{name}-{number}"><rect x="{across.start:.1f}" y="{part.end - 3:.1f}" '
        f'width="{across.end - across.start + 3:.1f}" height="{part.start - part.end + 6:.1f}"/></clipPath>'
        for number, part in enumerate(up.parts)
    ]
    return f"<defs>{''.join(frames)}</defs>"


def _curve(line: Line, across: Axis, up: Scale, name: str) -> str:
    """The band from the lowest to the highest seed and the mean over it, once in every part of the scale it enters."""
    every = math.ceil(len(line.epochs) / POINTS)
    shown = sorted({*range(0, len(line.epochs), every), len(line.epochs) - 1})
    shade, dash = colour(line.place), DASHES[line.place // len(COLOURS) % len(DASHES)]
    parts = []
    for number, part in enumerate(up.parts):
        if not any(part.low <= line.means[index] <= part.high for index in shown):
            continue

        def course(values: Sequence[float], order: Sequence[int], part: Axis = part) -> str:
            return "L".join(
                f"{across.pixel(line.epochs[index]):.1f} {part.pixel(values[index]):.1f}" for index in order
            )

        parts.append(f'<g clip-path="url(#{name}-{number})"><title>{escape(line.label)}</title>')
        parts.append(
            f'<path class="band" d="M{course(line.lows, shown)}L{course(line.highs, shown[::-1])}z" fill="{shade}" '
            f'fill-opacity="0.13"/><path class="line" d="M{course(line.means, shown)}" fill="none" stroke="{shade}" '
            f'stroke-width="2" stroke-linejoin="round"{f" stroke-dasharray={dash!r}" if dash else ""}/></g>'
        )
    return "".join(parts)


def study(places: Sequence[str], tracks: Sequence[Track], title: str) -> str:
    """Test accuracy at each place along the horizontal axis, with intervals; a line joins the marks of a track."""
    many, bottom = len(tracks) > 1, TOP + TALL
    right = WIDTH - (34 + LETTER * max(len(track.label) for track in tracks) if many else 30)
    marks = [mark for track in tracks for mark in track.marks]
    up = _scale_of(marks, bottom, TOP)
    columns = Axis(-0.5, len(places) - 0.5, LEFT, right)
    parts = [*heading(title, _about(marks) + up.note), *rules(up, LEFT, right)]
    parts += [text(columns.pixel(at), bottom + 20, place, "middle") for at, place in enumerate(places)]
    for index, track in enumerate(tracks):
        shade = colour(index if many else 2)
        aside = (index - (len(tracks) - 1) / 2) * min(10.0, 70.0 / len(tracks))
        points = [(columns.pixel(at) + aside, mark) for at, mark in enumerate(track.marks)]
        path = "L".join(f"{x:.1f} {up.pixel(mark.sample.mean):.1f}" for x, mark in points if mark.sample)
        if path:
            parts.append(
                f'<path class="line" d="M{path}" fill="none" stroke="{shade}" stroke-width="1.5" opacity="0.5">'
                f"<title>{escape(track.label)}</title></path>"
            )
        parts += [_upright(x, mark, up, shade, seeds=not many) for x, mark in points]
    if many:
        last = [(index, track.label, track.marks[-1].sample) for index, track in enumerate(tracks)]
        parts += end_labels([(label, colour(at), sample.mean) for at, label, sample in last if sample], up, right)
    return card(bottom + 58, title, [*parts, *_key(marks, bottom + 44, colour(2), seeds=not many)])


def frames(places: Sequence[str], tracks: Sequence[Track], title: str) -> str:
    """As a study, but each place has a frame and a scale of its own, for places that lie far apart."""
    columns = min(len(places), 3)
    wide, bottom = (WIDTH - 16.0) / columns, TOP
    parts = []
    for at, place in enumerate(places):
        row, column = divmod(at, columns)
        top, left, right = TOP + 24 + row * (SMALL + 44), LEFT + column * wide, (column + 1) * wide
        bottom = top + SMALL
        marks = [track.marks[at] for track in tracks]
        up = _scale_of(marks, bottom, top)
        across = Axis(-0.7, len(marks) - 0.3, left, right)
        parts += [text(left, top - 10, place, weight="600"), *rules(up, left, right)]
        base = marks[0].sample
        if base:
            y = up.pixel(base.mean)
            parts.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{SOFT}" stroke-dasharray="4 4"/>')
        parts += [
            _upright(across.pixel(index), mark, up, colour(index), seeds=True) for index, mark in enumerate(marks)
        ]
    labels = {track.label: colour(index) for index, track in enumerate(tracks)}
    entries, bottom = legend(labels, bottom + 26)
    every = [mark for track in tracks for mark in track.marks]
    about = f"{_about(every)}; each frame has its own scale, the dashed line is the mean of {tracks[0].label}"
    return card(
        bottom + 22, title, [*heading(title, about), *parts, *entries, *_key(every, bottom + 8, SOFT, seeds=True)]
    )


def far_apart(tracks: Sequence[Track]) -> bool:
    """Whether the places of a study differ so much that its tracks would lie on top of each other."""
    columns = [
        [mark.sample.mean for mark in marks if mark.sample]
        for marks in zip(*(track.marks for track in tracks), strict=True)
    ]
    spans = [max(means) - min(means) for means in columns if means]
    every = [mean for means in columns for mean in means]
    return len(spans) > 1 and max(every) - min(every) > 4 * sorted(spans)[len(spans) // 2]


def _about(marks: Sequence[Mark]) -> str:
    counts = sorted({mark.sample.count for mark in marks if mark.sample})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "no"
    return f"after the last epoch, {seeds} seed{'s' * (counts != [1])}"


def _upright(x: float, mark: Mark, up: Scale, shade: str, *, seeds: bool) -> str:
    """A mark on a vertical scale."""
    parts = [] if mark.reported is None else [diamond(x, up.pixel(mark.reported))]
    if mark.sample is None:
        return "".join(parts)
    if seeds:
        parts += [dot(x, up.pixel(value), 3.2, shade, 0.25) for value in mark.sample.values]
    if mark.sample.margin is not None:
        low, high = (up.pixel(mark.sample.mean + side * mark.sample.margin) for side in (-1, 1))
        parts.append(
            f'<path class="interval" d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8m-8 {high - low:.1f}h8" '
            f'stroke="{shade}" stroke-width="1.8"/>'
        )
    return "".join([*parts, dot(x, up.pixel(mark.sample.mean), 4.4, shade)])


def ranges(marks: Sequence[tuple[str, Mark]], title: str) -> str:
    """A row for each variant, under its group's name: the seeds, the mean with its interval, the report's figure."""
    groups = list(dict.fromkeys(group for group, _ in marks))
    left = 40 + LETTER * max(len(mark.label) for _, mark in marks)
    across = _scale_of([mark for _, mark in marks], left, WIDTH - 150, most=6)
    parts, y = [], TOP + 6
    for group in groups:
        if len(groups) > 1:
            parts.append(text(18, y + 15, group, weight="600"))
            y += 27
        for at, mark in enumerate(mark for owner, mark in marks if owner == group):
            parts += _level(y + 12, left, mark, across, colour(0 if at == 0 else 2))
            y += 27
    lines = []
    for part, ticks in zip(across.parts, across.ticks, strict=True):
        for tick in ticks:
            lines.append(f'<path d="M{part.pixel(tick):.1f} {TOP:.1f}V{y + 6:.1f}" stroke="{RULE}"/>')
            lines.append(text(part.pixel(tick), y + 25, across.label(tick), "middle", SOFT))
    lines += broken(across, lambda x: f"M{x - 5:.1f} {y + 11:.1f}l4 -10M{x + 1:.1f} {y + 11:.1f}l4 -10")
    every = [mark for _, mark in marks]
    head = heading(title, _about(every) + across.note)
    return card(y + 66, title, [*head, *lines, *parts, *_key(every, y + 52, colour(2), seeds=True)])


def _level(y: float, left: float, mark: Mark, across: Scale, shade: str) -> list[str]:
    """A mark on a horizontal scale, with its label before it and its figures behind."""
    parts = [text(left - 16, y + 4.5, mark.label, "end")]
    if mark.reported is not None:
        parts.append(diamond(across.pixel(mark.reported), y))
    if mark.sample is None:
        return [*parts, text(WIDTH - 18, y + 4.5, "not run yet", "end", SOFT)]
    parts += [dot(across.pixel(value), y, 3.2, shade, 0.25) for value in mark.sample.values]
    words = f"{100 * mark.sample.mean:.2f} %"
    if mark.sample.margin is not None:
        low, high = (across.pixel(mark.sample.mean + side * mark.sample.margin) for side in (-1, 1))
        ends = f"M{low:.1f} {y - 4:.1f}v8M{high:.1f} {y - 4:.1f}v8"
        parts.append(
            f'<path class="interval" d="M{low:.1f} {y:.1f}H{high:.1f}{ends}" stroke="{shade}" stroke-width="1.8"/>'
        )
        words = f"{100 * mark.sample.mean:.2f} ± {100 * mark.sample.margin:.2f} %"
    return [*parts, dot(across.pixel(mark.sample.mean), y, 4.4, shade), text(WIDTH - 18, y + 4.5, words, "end")]


def _scale_of(marks: Sequence[Mark], start: float, end: float, most: int = 5) -> Scale:
    """A scale that holds every seed, interval and reported figure."""
    ends, shown = [], []
    for mark in marks:
        if mark.sample:
            edge = mark.sample.margin or 0.0
            ends.append(mark.sample.mean)
            shown.append([*mark.sample.values, max(mark.sample.mean - edge, 0.0), min(mark.sample.mean + edge, 1.0)])
        if mark.reported is not None:
            ends.append(mark.reported)
            shown.append([mark.reported])
    return scale(ends, shown, start, end, most=most)


def _key(marks: Sequence[Mark], y: float, shade: str, *, seeds: bool) -> list[str]:
    """What the signs mean, of those that are drawn."""
    intervals = any(mark.sample and mark.sample.margin is not None for mark in marks)
    signs = [(dot(0, 0, 4.4, shade), "mean with its 95 % interval" if intervals else "one seed, no interval")]
    if seeds and intervals:
        signs.append((dot(0, 0, 3.2, shade, 0.35), "one seed"))
    if any(mark.reported is not None for mark in marks):
        signs.append((diamond(0, 0), "the report's figure"))
    parts, x = [], 26.0
    for sign, words in signs:
        parts += [f'<g transform="translate({x:.1f} {y - 4.5:.1f})">{sign}</g>', text(x + 13, y, words, fill=SOFT)]
        x += 44 + LETTER * len(words)
    return parts


def sinusoidal_table(positions: int, width: int, factor: int) -> Image.Image:
    """S[t, i] as a picture, t from left to right and i from top to bottom: −1 is blue, 0 white, 1 red."""
    table = sinusoids(torch.arange(positions), width).double().numpy().T
    knots = np.linspace(-1, 1, len(BELOW_AND_ABOVE))
    colours = np.stack([np.interp(table, knots, channel) for channel in BELOW_AND_ABOVE.T], axis=-1)
    return Image.fromarray(colours.round().astype(np.uint8).repeat(factor, axis=0).repeat(factor, axis=1))
