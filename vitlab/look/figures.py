"""The drawings of a look: heads, layers, a contact sheet, measures, positions, and whether the maps mean anything."""

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from vitlab.data.words import counted
from vitlab.errors import shorten
from vitlab.look import drawing
from vitlab.look.colours import COSINE, Scale, visible
from vitlab.look.drawing import INK, LINES, RULE, SOFT
from vitlab.look.heat import KINDS, NAMES, heat, shares
from vitlab.look.inside import Seen
from vitlab.look.measures import distances
from vitlab.look.positions import Places, some
from vitlab.look.shown import Look
from vitlab.look.trust import RANDOM, Trust
from vitlab.look.words import apart, name_of, percent, said, sentence, target_words
from vitlab.model import Shape

NEGATIVE = " Some weights are negative: blue is subtracted, orange added."
CLASSES = 8  # that the lens shows, the likeliest
NAME = 18  # letters of a class that there is room for


def grid_maps(stream: Seen, rows: Tensor) -> list[np.ndarray]:
    """(…, n) → (…, rows, columns) on each of a stream's grids."""
    return [laid.numpy() for laid in stream.layout.on_grids(rows)]


def draw_heads(
    look: Look, place: int, stream: Seen, grid: int, chosen: tuple[Sequence[int], Sequence[int] | None]
) -> Figure:
    """Layers (down) and heads (across) of one picture on one grid; with no heads chosen, their mean comes first."""
    layers, heads = chosen
    rows = stream.attention[place]  # (layers, heads, n)
    several = rows.shape[1] > 1 and heads is None
    columns = [("mean of heads", rows.mean(dim=1))] if several else []
    columns += [(f"head {head + 1}", rows[:, head]) for head in (range(rows.shape[1]) if heads is None else heads)]
    maps = {(layer, title): grid_maps(stream, row[layer])[grid] for title, row in columns for layer in layers}
    scale = Scale.of(np.stack(list(maps.values())))
    picture = look.shown[place].pixels
    page = drawing.sheet(len(layers), len(columns) + 1.3, picture.shape[1] / picture.shape[2])
    words = f"Attention {stream.looking}{where(look, stream, grid)}; one scale for all maps." + NEGATIVE * scale.signed
    drawing.heading(page.figure, title_of(look, place), words)
    page.put((0, 0), visible(picture), title="picture")
    for down, layer in enumerate(layers):
        for across, (title, row) in enumerate(columns):
            page.put(
                (down, across + 1.3), scale.over(picture, maps[layer, title]), title=title if down == 0 else "",
                below=apart(stream, row[layer]), beside=f"layer {layer + 1}" if across == 0 else "",
            )  # fmt: skip
    bar = page.bar(0, len(columns) + 1.3, len(layers))
    drawing.colour_bar(bar, scale, f"attention weight{scale.word}", even=1 / stream.layout.tokens)
    return page.figure


def title_of(look: Look, place: int) -> str:
    shown = look.shown[place]
    return f"{shown.name}: {said(look, place)}" + (f" · {shown.note}" if shown.note else "")


def where(look: Look, stream: Seen, grid: int) -> str:
    """Which stream and grid, where there are several."""
    grids = stream.layout.grids
    own = f"its {grids[grid].rows}×{grids[grid].columns} patches" if len(grids) > 1 else ""
    words = ", ".join(part for part in (name_of(look, stream), own) if part)
    return f" ({words})" if words else ""


def draw_layers(look: Look, place: int, stream: Seen, grid: int) -> Figure:
    """Layer by layer: tokens that grow alike, where attention goes, and what the head would say."""
    similar = grid_maps(stream, stream.similarity[place])[grid]
    attention = grid_maps(stream, stream.attention[place].mean(dim=1))[grid]
    lens = look.lens[place].softmax(dim=-1).numpy()  # (layers + 1, classes)
    best = sorted(np.argsort(-lens.max(axis=0), kind="stable")[:CLASSES])
    picture = look.shown[place].pixels
    ratio = picture.shape[1] / picture.shape[2]
    steps = len(similar)
    has_lens = len(lens) == steps  # a join's own blocks come after those that the lens looks behind
    page = drawing.sheet(2, steps, ratio, left=1.25, top=0.75, right=1.4, below=0.12)
    lens_height = 0.17 * len(best) + 0.25 if has_lens else 0.0
    width, height = page.figure.get_size_inches()
    page.figure.set_size_inches(width, height + lens_height + 0.2)
    words = f"Layer by layer{where(look, stream, grid)}, from the tokens that enter to the answer."
    drawing.heading(page.figure, title_of(look, place), words)
    scale = Scale.of(attention)
    for step in range(steps):
        name = f"block {step}" if step else "input"
        upper, lower = ("", "") if step else ("likeness to the\ntoken that looks", "attention,\nmean of heads")
        page.put((0, step), COSINE.over(picture, similar[step]), title=name, beside=upper, upright=True)
        seen = scale.over(picture, attention[step - 1]) if step else visible(picture)
        page.put((1, step), seen, beside=lower, upright=True)
    drawing.colour_bar(page.bar(0, steps), COSINE, "cosine")
    drawing.colour_bar(page.bar(1, steps), scale, f"weight{scale.word}", even=1 / stream.layout.tokens)
    if has_lens:
        rows = lens_height / (page.tile[1] + page.gap[1])
        draw_lens(page.axes(2.08, 0, rows, steps), lens[:, best], [look.classes[label] for label in best])
    return page.figure


def draw_lens(axes: Axes, shares: np.ndarray, names: list[str]) -> None:
    """What the head would say after each block: a class a row, a block a column."""
    axes.imshow(shares.T, cmap="Blues", vmin=0, vmax=1.15, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(names)), [shorten(name, NAME) for name in names], color=INK)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for step, row in enumerate(shares):
        for place, share in enumerate(row):
            if share >= 0.01:
                colour = "white" if share > 0.6 else INK
                axes.text(step, place, f"{100 * share:.0f} %", ha="center", va="center", fontsize=6.5, color=colour)
    axes.set_title("what the head would say", loc="left", color=SOFT, fontsize=7, pad=3)


def draw_contact(look: Look) -> Figure:
    """A picture a row: itself, its attention, rollout and relevance, as shares of each map, all on one scale."""
    maps = {kind: shares(heat(look, kind)).numpy() for kind in KINDS}
    scale = Scale.of(np.stack(list(maps.values())))
    ratio = float(np.mean([shown.pixels.shape[1] / shown.pixels.shape[2] for shown in look.shown]))
    page = drawing.sheet(len(look.shown), 4, ratio, side=1.15, left=0.12, top=0.75, right=2.7, below=0.1)
    drawing.heading(
        page.figure, "Where it looks",
        f"{sentence(look.looking)}, mean of heads; relevance is for {target_words(look)}. One scale for all maps."
        + NEGATIVE * scale.signed,
    )  # fmt: skip
    for row, shown in enumerate(look.shown):
        page.put((row, 0), visible(shown.pixels), title="picture" if row == 0 else "")
        for column, kind in enumerate(KINDS, start=1):
            title = NAMES[kind] if row == 0 else ""
            page.put((row, column), scale.over(shown.pixels, maps[kind][row]), title=title)
        beside = page.axes(row, 4.05)
        beside.axis("off")
        guess = look.guesses[row]
        beside.text(0, 0.66, shorten(look.classes[guess], NAME), fontsize=9, weight="bold", va="center")
        beside.text(0, 0.5, percent(float(look.probabilities[row, guess])), color=SOFT, va="center")
        if shown.truth is not None and shown.truth != guess:
            truth = shorten(f"truly {look.classes[shown.truth]}", NAME)
            beside.text(0, 0.36, truth, color=LINES[1], fontsize=7, va="center")
        beside.text(0, 0.22, shorten(shown.name, 20), color=SOFT, fontsize=6.5, va="center")
    bar = page.bar(0, 4, len(look.shown), beyond=2.0)
    drawing.colour_bar(bar, scale, f"share of map{scale.word}", even=1 / maps[KINDS[0]][0].size)
    return page.figure


def draw_measures(look: Look) -> Figure:
    """For each head: how far it looks and how widely, layer by layer; and how alike the patches grow."""
    page = drawing.sheet(len(look.attending), 3, 0.72, side=2.35, left=0.45, top=0.85, right=0.75, below=0.8)
    over = counted(len(look.shown), "picture")
    words = f"A dot is a head, its mean over {over}; dashed: a head without a preference."
    drawing.heading(page.figure, "Which heads look near, which look far", words)
    for row, stream in enumerate(look.attending):
        even, most = float(distances(stream.layout, look.shape).mean()), float(np.log2(stream.layout.tokens))
        far, wide, last = (page.axes(row, column * 1.12) for column in range(3))
        dots(far, stream.distance.mean(dim=0).numpy(), "mean distance, pixels", even)
        dots(wide, stream.entropy.mean(dim=0).numpy(), "entropy, bits", most)
        far.text(0, 1.16, name_of(look, stream), transform=far.transAxes, weight="bold")
        alike = stream.alikeness.mean(dim=0).numpy()
        last.plot(range(len(alike)), alike, color=LINES[0], marker="o", markersize=3, linewidth=1.2)
        framed(last, "likeness between patches, cosine", "after block (0: input)", (min(0.0, float(alike.min())), 1.02))
    return page.figure


def dots(axes: Axes, values: np.ndarray, label: str, limit: float) -> None:
    """One column of dots a layer, and the line that a head without a preference would lie on."""
    layers, heads = values.shape
    spread = np.linspace(-0.18, 0.18, heads) if heads > 1 else np.zeros(1)
    for head in range(heads):
        axes.plot(
            np.arange(1, layers + 1) + spread[head], values[:, head], "o", markersize=3.6, alpha=0.85,
            color=LINES[0], markeredgewidth=0,
        )  # fmt: skip
    axes.axhline(limit, color=SOFT, linewidth=0.8, linestyle=(0, (3, 2)))
    framed(axes, label, "layer", (0, max(limit, float(values.max()), 1e-3) * 1.12))
    axes.set_xlim(0.5, layers + 0.5)


def framed(axes: Axes, label: str, below: str, limits: tuple[float, float]) -> None:
    axes.set_title(label, loc="left", color=INK)
    axes.set_xlabel(below)
    axes.set_ylim(*limits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(length=2, width=0.5)
    axes.grid(axis="y", color=RULE, linewidth=0.5)
    axes.set_axisbelow(True)


def draw_trust(trust: Trust, words: str = "", bands: bool = False) -> Figure:
    """The class's probability as patches go and as they come, in each map's order and at random."""
    page = drawing.sheet(1, 2, 0.78, side=3.0, left=0.6, top=0.85, right=1.55, below=0.45)
    drawing.heading(page.figure, "Do the maps mean anything?", words or trust_words(trust.count))
    shares = 100 * trust.shares.numpy()
    for column, (test, hint) in enumerate((("deletion", "lower is better"), ("insertion", "higher is better"))):
        axes = page.axes(0, column * 1.08)
        ends = {}
        for number, (kind, curves) in enumerate(trust.curves.items()):
            each = getattr(curves, test).numpy() * 100
            values = each.mean(axis=0)
            colour = LINES[3] if kind == RANDOM else LINES[number]
            dashes = (0, (3, 1.5)) if kind == RANDOM else "-"
            axes.plot(shares, values, color=colour, linewidth=1.5, linestyle=dashes)
            if bands:
                axes.fill_between(shares, each.min(axis=0), each.max(axis=0), color=colour, alpha=0.15, linewidth=0)
            ends[NAMES.get(kind, kind)] = (colour, float(values.mean()))
        framed(axes, f"{test} ({hint})", f"patches {verb(test)}, %", (0, 102))
        axes.set_ylabel("probability of the class, %" if column == 0 else "")
        axes.set_xlim(0, 100)
        if column == 1:
            ordered = sorted(ends.items(), key=lambda item: -item[1][1])
            for place, (name, (colour, _)) in enumerate(ordered):
                axes.text(1.04, 0.9 - 0.1 * place, name, transform=axes.transAxes, color=colour, fontsize=8)
    return page.figure


def trust_words(count: int) -> str:
    return f"Mean over {counted(count, 'picture')}. A map that tells what matters beats random order."


def verb(test: str) -> str:
    return "taken away" if test == "deletion" else "put back"


def draw_positions(found: Places, shape: Shape, number: int = 0) -> Figure:
    """The table that is added to the tokens, and for every patch how alike its place is to all others."""
    grid, similar = found.layout.grids[number], found.among(number).numpy()
    rows, columns = some(grid.rows), some(grid.columns)
    side = max(0.24, 3.4 / max(len(rows), len(columns)))
    ratio = shape.height / shape.width
    tile = side / max(ratio, 1), side * min(ratio, 1)
    table_width = 2.6 if found.table is not None else 0.0
    left = 0.6 + table_width + (0.7 if table_width else 0)
    width, height = left + len(columns) * (tile[0] + 0.03) + 1.0, 0.95 + len(rows) * (tile[1] + 0.03) + 0.35
    figure = drawing.new_figure(width, height)
    drawing.heading(
        figure, "What it knows of places",
        "Each small map: how alike a patch's place is to every other." if found.table is not None
        else "Rotary positions: how far turning leaves two places alike; each small map is one patch against all.",
    )  # fmt: skip
    if found.table is not None:
        high = len(rows) * (tile[1] + 0.03)
        axes = figure.add_axes((0.6 / width, 0.35 / height, table_width / width, high / height))
        most = Scale.of(found.table.numpy()).most
        axes.imshow(found.table.numpy(), cmap="PuOr", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.set_xlabel("feature")
        axes.set_ylabel("token")
        axes.tick_params(length=2, width=0.5)
        axes.set_title(f"the table, −{most:.2g} to {most:.2g}", loc="left", color=SOFT, fontsize=7)
    colours = mpl.colormaps["RdBu_r"]
    for down, row in enumerate(rows):
        for across, column in enumerate(columns):
            laid = similar[row * grid.columns + column].reshape(grid.rows, grid.columns)
            corner = left + across * (tile[0] + 0.03), 0.95 + down * (tile[1] + 0.03)
            drawing.put_picture(figure, colours((laid + 1) / 2)[..., :3], corner, tile)
    bar = figure.add_axes(((width - 0.75) / width, 0.35 / height, 0.11 / width, min(2.2, height - 1.3) / height))
    scale = mpl.cm.ScalarMappable(mpl.colors.Normalize(-1, 1), mpl.colormaps["RdBu_r"])
    made = figure.colorbar(scale, cax=bar)
    made.outline.set_visible(False)
    made.set_label("cosine", color=SOFT)
    bar.tick_params(length=2, width=0.5)
    return figure
