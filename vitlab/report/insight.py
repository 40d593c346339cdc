"""What a look says beyond single maps: whether they mean anything, which heads look far, what is known of places."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

from vitlab.data.words import counted
from vitlab.look.colours import palette
from vitlab.look.heat import NAMES
from vitlab.look.inside import Inside
from vitlab.look.measures import distances
from vitlab.look.positions import Places, some
from vitlab.look.trust import BETTER, RANDOM, Trust
from vitlab.look.words import name_of
from vitlab.report import charts, pictures, words

STYLES = {"attention": "run-3", "rollout": "run-2", "relevance": "run-4", RANDOM: "second"}
SHORT = {"attention": "attention", "rollout": "rollout", "relevance": "relevance", RANDOM: "random"}
GAP = 3  # pixels between two small maps


@dataclass(frozen=True)
class Verdict:
    """One kind of map against random order: the leads in points, with half their intervals."""

    name: str
    leads: tuple[tuple[float, float], ...]  # deletion, insertion
    words: str


@dataclass(frozen=True)
class Tested:
    drawings: tuple[tuple[str, Markup], ...]
    verdicts: tuple[Verdict, ...]
    sentence: str


def tested(trust: Trust) -> Tested:
    """The curves, and what they say of each kind of map."""
    verdicts = []
    for kind, name in NAMES.items():
        verdicts.append(Verdict(name, tuple(trust.leads(kind).values()), trust.verdict(kind)))
    good = [each.name for each in verdicts if each.words == BETTER]
    ranks = f"{words.joined(good)} {'ranks' if len(good) == 1 else 'rank'}" if good else "no map ranks"
    clearly = "" if good else "clearly "
    sentence = f"On {counted(trust.count, 'picture')}, {ranks} patches {clearly}better than random order in both tests."
    shares = [round(100 * float(share), 2) for share in trust.shares]
    drawings = []
    for test, hint in (("deletion", "lower is better"), ("insertion", "higher is better")):
        series = [
            charts.Series(SHORT[kind], STYLES[kind], getattr(curves, test).mean(dim=0).tolist())
            for kind, curves in trust.curves.items()
        ]
        drawing = charts.curves(
            shares, series, f"The class's probability in the {test} test. {sentence}",
            form=words.percent, bounds=(0.0, 1.0),
            ticks=[charts.Tick(tick, f"{100 * tick:g}{words.NARROW_SPACE}%") for tick in (0, 0.25, 0.5, 0.75, 1)],
            across=(f"patches {'taken away' if test == 'deletion' else 'put back'}, %", "patches, %:"),
        )  # fmt: skip
        drawings.append((f"{test.capitalize()}, {hint}", drawing))
    return Tested(tuple(drawings), tuple(verdicts), sentence)


@dataclass(frozen=True)
class Heads:
    """How far and how widely the heads of one stream look."""

    name: str
    drawings: tuple[tuple[str, Markup], ...]
    sentence: str


def heads(seen: Inside) -> list[Heads]:
    found = []
    for stream in seen.attending:
        far, wide = stream.distance.mean(dim=0).numpy(), stream.entropy.mean(dim=0).numpy()
        even, most = float(distances(stream.layout, seen.shape).mean()), float(np.log2(stream.layout.tokens))
        drawings = (
            ("Mean distance, pixels", dots(far, even, "Mean attention distance per head")),
            ("Entropy, bits", dots(wide, most, "Attention entropy per head")),
        )
        found.append(Heads(name_of(seen, stream), drawings, heads_sentence(far, even)))
    return found


def heads_sentence(far: np.ndarray, even: float) -> str:
    """Which head looks nearest and which farthest."""
    near, wide = (np.unravel_index(place, far.shape) for place in (far.argmin(), far.argmax()))
    evenly = f"an even look over the picture gives {even:.1f} (dotted)"
    if far.size == 1 or np.ptp(far) < 0.02 * even:
        return f"All heads look about equally far, {far.mean():.1f} pixels; {evenly}."
    nearest = f"Head {near[1] + 1} of layer {near[0] + 1} looks nearest, {far.min():.1f} pixels on average"
    farthest = f"head {wide[1] + 1} of layer {wide[0] + 1} farthest, {far.max():.1f}"
    return f"{nearest}, and {farthest}; {evenly}."


def dots(values: np.ndarray, limit: float, describe: str) -> Markup:
    """A dot a head over its layer, and a line where a head without a preference would lie."""
    layers, count = values.shape
    top = max(limit, float(values.max()), 1e-3) * 1.1
    marks = charts.steps(0.0, top, most=5)
    up = charts.Axis(0.0, marks[-1], charts.HEIGHT - charts.BOTTOM, charts.TOP)
    right = charts.WIDTH - 20
    along = charts.Axis(0.5, layers + 0.5, charts.LEFT, right)
    parts = []
    for mark in marks:
        y = up.pixel(mark)
        parts.append(f'<path class="rule" d="M{charts.LEFT} {y:.1f}H{right}"/>')
        parts.append(f'<text x="{charts.LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    y = up.pixel(limit)
    parts.append(f'<path class="reference" d="M{charts.LEFT} {y:.1f}H{right}"/>')
    every = max(-(-layers // 12), 1)
    for layer in range(layers):
        x = along.pixel(layer + 1)
        if layer % every == 0:
            parts.append(
                f'<text x="{x:.1f}" y="{charts.HEIGHT - charts.BOTTOM + 18}" text-anchor="middle">{layer + 1}</text>'
            )
        spread = min(10.0, 0.7 * (along.pixel(2) - along.pixel(1)) / max(count, 1))
        for head in range(count):
            place = x + (head - (count - 1) / 2) * spread
            parts.append(
                f'<circle class="bin" cx="{place:.1f}" cy="{up.pixel(values[layer, head]):.1f}" r="4"><title>layer '
                f"{layer + 1}, head {head + 1}: {values[layer, head]:.3g}</title></circle>"
            )
    middle = (charts.LEFT + right) / 2
    parts.append(f'<text x="{middle:.1f}" y="{charts.HEIGHT - 5}" text-anchor="middle">layer</text>')
    return Markup(
        f'<svg class="chart" role="img" viewBox="0 0 {charts.WIDTH} {charts.HEIGHT}" aria-label="{escape(describe)}">'
        f"{''.join(parts)}</svg>"
    )


@dataclass(frozen=True)
class Mosaic:
    """For each patch a small map: how alike its place is to every other's."""

    uri: str
    width: int
    height: int
    words: str


def mosaics(known: Sequence[Places]) -> list[Mosaic]:
    return [mosaic(places, number) for places in known for number in range(len(places.layout.grids))]


def mosaic(places: Places, number: int) -> Mosaic:
    grid, similar = places.layout.grids[number], places.among(number).numpy()
    rows, columns = some(grid.rows), some(grid.columns)
    colours = palette(signed=True)
    solid = (colours[:, :3] * (colours[:, 3:] / 255) + 127 * (1 - colours[:, 3:] / 255)).round().astype(np.uint8)
    side = max(560 // max(len(rows) * grid.rows, len(columns) * grid.columns), 1)  # pixels of a patch
    high, wide = grid.rows * side + GAP, grid.columns * side + GAP
    page = np.full((len(rows) * high - GAP, len(columns) * wide - GAP, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for across, column in enumerate(columns):
            laid = similar[row * grid.columns + column].reshape(grid.rows, grid.columns)
            levels = ((np.clip(laid, -1, 1) + 1) / 2 * (len(solid) - 1)).round().astype(int)
            drawn = solid[levels].repeat(side, axis=0).repeat(side, axis=1)
            page[down * high : (down + 1) * high - GAP, across * wide : (across + 1) * wide - GAP] = drawn
    rotary = "rotary positions, which turn queries and keys"
    kind = rotary if places.table is None else "the table that is added to the tokens"
    return Mosaic(
        pictures.pixels_uri(page), page.shape[1], page.shape[0], f"From {kind}; {grid.rows}×{grid.columns} patches."
    )
