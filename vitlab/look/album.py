"""All drawings of a look, as PNG and SVG files in one folder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

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
    """The layers and heads that are drawn, counted from 1; all, where none is named."""

    layer: int | None = None
    head: int | None = None

    def within(self, stream: Seen) -> tuple[Sequence[int] | None, Sequence[int] | None]:
        """The places to draw of this stream."""
        layers, heads = stream.attention.shape[1:3]
        for name, number, count in (("layer", self.layer, layers), ("head", self.head, heads)):
            if number is not None and not 1 <= number <= count:
                raise BadInput(f"no {name} {number}: this model has {count} of them, counted from 1")
        return self.layer and [self.layer - 1], self.head and [self.head - 1]  # type: ignore[return-value]


def draw_album(look: Look, network: Network, trust: Trust, folder: Path, choice: Choice) -> list[Path]:
    """Heads and layers of every picture, the contact sheet, measures, positions and the test of the maps."""
    if len(look.shown) > MOST:
        raise BadInput(f"{len(look.shown)} pictures are too many to draw at a time: choose up to {MOST}")
    streams = [stream for stream in look.streams if stream.attention.shape[1]]
    if not streams:
        raise BadInput("this model has no blocks, so there is no attention to look at")
    chosen = [choice.within(stream) for stream in streams]
    files: list[Path] = []

    def keep(figure: Figure, name: str) -> None:
        files.extend(drawing.save(figure, folder, name))

    with drawing.styled():
        keep(figures.draw_contact(look), "contact")
        for place, name in enumerate(file_names(look)):
            for number, (stream, (layers, heads)) in enumerate(zip(streams, chosen, strict=True)):
                which = f"-{number + 1}" if len(streams) > 1 else ""
                drawn = figures.draw_heads(look, place, stream, layers, heads)
                for grid, figure in enumerate(drawn):
                    keep(figure, f"{name}-heads{which}{f'-grid{grid + 1}' if len(drawn) > 1 else ''}")
                if choice == Choice():
                    keep(figures.draw_layers(look, place, stream), f"{name}-layers{which}")
        keep(figures.draw_measures(look), "measures")
        keep(figures.draw_trust(trust), "trust")
        known = places(network)
        for number, found in enumerate(known):
            keep(figures.draw_positions(found, look.shape), f"positions{f'-{number + 1}' if len(known) > 1 else ''}")
    return files


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
