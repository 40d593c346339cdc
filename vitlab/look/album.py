"""All drawings of a look, as PNG and SVG files in one folder."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from vitlab.data.words import counted
from vitlab.engine.storage import make_folder, write
from vitlab.errors import BadInput
from vitlab.look import drawing, figures
from vitlab.look.inside import Seen
from vitlab.look.positions import places
from vitlab.look.shown import Look
from vitlab.look.trust import Trust
from vitlab.model import Network

MOST = 64  # pictures that are drawn at a time


@dataclass(frozen=True)
class Choice:
    """The layer and the head that are drawn, counted from 1; all, where none is named."""

    layer: int | None = None
    head: int | None = None

    def check(self, look: Look) -> None:
        """Refuse what cannot be drawn: too many pictures, no attention, a layer or head that no stream has."""
        if len(look.shown) > MOST:
            raise BadInput(f"{len(look.shown)} pictures are too many to draw at a time: choose up to {MOST}")
        if not look.attending:
            raise BadInput("this model has no blocks, so there is no attention to look at")
        for name, number, axis in (("layer", self.layer, 1), ("head", self.head, 2)):
            most = max(stream.attention.shape[axis] for stream in look.attending)
            if number is not None and not 1 <= number <= most:
                raise BadInput(f"no {name} {number}: this model has {counted(most, name)}, counted from 1")

    def within(self, stream: Seen) -> tuple[list[int], list[int] | None] | None:
        """The layers and heads of this stream to draw, no head for all with their mean; none if it has not these."""
        layers, heads = stream.attention.shape[1:3]
        if (self.layer or 1) > layers or (self.head or 1) > heads:
            return None
        return [self.layer - 1] if self.layer else list(range(layers)), [self.head - 1] if self.head else None


def draw_album(look: Look, network: Network, trust: Trust, folder: Path, choice: Choice) -> list[Path]:
    """Heads and layers of every picture, the contact sheet, measures, positions and the test of the maps.

    Everything is drawn before anything is written, so that a failure leaves the folder as it was.
    """
    choice.check(look)
    files: dict[str, bytes] = {}
    with drawing.styled():
        for name, figure in drawn(look, network, trust, choice):
            files |= {f"{name}.{kind}": drawing.rendered(figure, kind) for kind in drawing.METADATA}
    make_folder(folder)
    for name, content in files.items():
        write(folder / name, content)
    return [folder / name for name in files]


def drawn(look: Look, network: Network, trust: Trust, choice: Choice) -> Iterator[tuple[str, Figure]]:
    """Every figure with its name."""
    yield "contact", figures.draw_contact(look)
    for place, name in enumerate(file_names(look)):
        for number, stream in enumerate(look.attending):
            chosen = choice.within(stream)
            for grid in range(len(stream.layout.grids)):
                which = numbered(number, len(look.attending)) + numbered(grid, len(stream.layout.grids))
                if chosen:
                    yield f"{name}-heads{which}", figures.draw_heads(look, place, stream, grid, chosen)
                if choice == Choice():
                    yield f"{name}-layers{which}", figures.draw_layers(look, place, stream, grid)
    yield "measures", figures.draw_measures(look)
    yield "trust", figures.draw_trust(trust)
    known = [(found, grid) for found in places(network) for grid in range(len(found.layout.grids))]
    for number, (found, grid) in enumerate(known):
        yield f"positions{numbered(number, len(known))}", figures.draw_positions(found, look.shape, grid)


def numbered(number: int, count: int) -> str:
    return f"-{number + 1}" if count > 1 else ""


def file_names(look: Look) -> list[str]:
    """A name for each picture that a file can have, and no two the same."""
    names: list[str] = []
    for shown in look.shown:
        stem = re.sub(r"[^\w-]+", "-", Path(shown.name).stem if "." in shown.name else shown.name).strip("-")[:60]
        stem = stem or "picture"
        number = 2
        name = stem
        while name in names:
            name, number = f"{stem}-{number}", number + 1
        names.append(name)
    return names
