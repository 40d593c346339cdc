"""The page's sections about curves: what attention costs by tokens, and what an epoch costs by size."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vitlab.bench.attention import FUSED, LINFORMER
from vitlab.bench.fit import FLAT, LEAST, MOST, Crossing, crossing, fit
from vitlab.bench.growth import AXES
from vitlab.bench.plots import Frame, log_log
from vitlab.bench.points import Cost, Point, curves

FITTED = f"""An exponent is fitted by least squares to the logarithms of the {MOST} largest sizes measured, of those that cost at
least {FLAT:g} times the smallest one: below that, overhead hides the growth. Where fewer than {LEAST} do, all {MOST} are taken, and the
figure is *mostly overhead*. ± is its 95 % interval, from how far the points lie off the line.
"""  # noqa: E501


def time_words(milliseconds: float) -> str:
    """Three digits in the unit that suits."""
    if milliseconds < 1:
        return f"{milliseconds * 1e3:.3g} µs"
    return f"{milliseconds:.3g} ms" if milliseconds < 999.5 else f"{milliseconds / 1e3:,.3g} s"


def memory_words(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= 0.9995 * size:
            return f"{count / size:,.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def fit_words(costs: Mapping[int, float]) -> str:
    """An exponent and its range, or why there is none."""
    found = fit(costs)
    if found is None:
        return "too few sizes"
    return f"{found} ({found.low:,} … {found.high:,}{', mostly overhead' * found.flat})"


def crossing_words(points: Sequence[Point], cost: Cost = "milliseconds") -> str:
    """Where Linformer overtakes fused softmax, in one sentence."""
    lines = curves(points, cost)
    found = crossing(lines.get(LINFORMER, {}), lines.get(FUSED, {}))
    what = "time" if cost == "milliseconds" else "memory"
    if found is None:
        return f"In {what}, Linformer and fused softmax share too few sizes for a crossing."
    return f"In {what}, " + place_words(found)


def place_words(found: Crossing) -> str:
    if found.size is not None:
        return f"Linformer overtakes fused softmax at about {round(found.size, -1):,.0f} tokens."
    if found.always:
        return f"Linformer is below fused softmax from {found.low:,} tokens on: the curves do not cross in the range."
    return f"Linformer does not overtake fused softmax up to {found.high:,} tokens: not crossed in the range."


def attention_lines(points: Sequence[Point]) -> list[str]:
    """What the curves come to, for the terminal."""
    times, memories = curves(points, "milliseconds"), curves(points, "memory")
    lines = [
        f"{kind}: exponent of time {fit_words(times[kind])}, of memory {fit_words(memories[kind])}" for kind in times
    ]
    return [*lines, crossing_words(points), crossing_words(points, "memory")]


def attention_section(record: Mapping[str, Any], points: Sequence[Point]) -> tuple[list[str], str]:
    """A record as Markdown and its chart."""
    config = record["config"]
    times, memories = curves(points, "milliseconds"), curves(points, "memory")
    about = f"{record['device']}; batch {config['batch']}, width {config['width']}, {config['heads']} heads"
    chart = log_log(
        [Frame("forward + backward", times, time_words), Frame("peak memory", memories, memory_words)],
        "What attention costs as tokens grow", f"{about}, {config['precision']}", "tokens",
    )  # fmt: skip
    lines = [
        f"Batch {config['batch']}, width {config['width']}, {config['heads']} heads, {config['precision']}.",
        "", crossing_words(points), crossing_words(points, "memory"), "",
        "| kind | time grows with tokens to the power | memory grows with tokens to the power |", "|---|---:|---:|",
        *(f"| {kind} | {fit_words(times[kind])} | {fit_words(memories[kind])} |" for kind in times), "",
    ]  # fmt: skip
    sizes = sorted({point.size for point in points})
    cells = {(point.series, point.size): cell(point) for point in points}
    lines += [f"| tokens | {' | '.join(times)} |", "|---:|" + "---:|" * len(times)]
    lines += [f"| {size:,} | {' | '.join(cells.get((kind, size), '') for kind in times)} |" for size in sizes]
    notes = [f"- {point.series} at {point.size:,} tokens was {point.note}." for point in points if point.note]
    return [*lines, "", *notes, *[""] * bool(notes)], chart


def cell(point: Point) -> str:
    if point.milliseconds is None:
        return "left out"
    return f"{time_words(point.milliseconds)}<br>{memory_words(point.memory or 0)}"


def growth_lines(points: Sequence[Point]) -> list[str]:
    return [
        f"{axis}: {', '.join(f'{size:,} {time_words(line[size])}' for size in line)}; exponent {fit_words(line)}"
        for axis, line in curves(points, "milliseconds").items()
    ]


def growth_section(record: Mapping[str, Any], points: Sequence[Point]) -> tuple[list[str], str]:
    """A record as Markdown and its chart."""
    config = record["config"]
    lines_of = curves(points, "milliseconds")
    relative = {
        axis: {size // config["base"][axis]: cost for size, cost in line.items()} for axis, line in lines_of.items()
    }
    chart = log_log(
        [Frame("time per epoch", relative, time_words)],
        "What an epoch costs as one thing is doubled", f"{record['device']}; {config['words']}", "times the base",
    )  # fmt: skip
    made = [f"Base: {config['words']}; {config['setting']}.", "", *growth_table(lines_of)]
    return [*made, ""], chart


def growth_table(lines_of: Mapping[str, Mapping[int, float]]) -> Iterable[str]:
    most = max(len(line) for line in lines_of.values())
    yield f"| doubled | {' | '.join(f'×{2**power}' for power in range(most))} | time grows with it to the power |"
    yield "|---|" + "---:|" * (most + 1)
    for axis in (axis for axis in AXES if axis in lines_of):
        line = lines_of[axis]
        cells = [f"{size:,}: {time_words(line[size])}" for size in sorted(line)]
        cells += [""] * (most - len(cells))
        yield f"| {axis} | {' | '.join(cells)} | {fit_words(line)} |"
