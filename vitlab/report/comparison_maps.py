"""What the runs of a comparison look at: the same pictures, one scale for all maps of a kind."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitlab.data.prepared import Normalise, unit
from vitlab.data.rows import Pictures
from vitlab.errors import BadInput
from vitlab.look import Inside, heat, inside
from vitlab.look.colours import Scale
from vitlab.look.heat import KINDS, NAMES, shares
from vitlab.report import pictures
from vitlab.report.comparison_runs import Compared

SHOWN = 6
ROOM = 112


@dataclass(frozen=True)
class Cell:
    """One run's map of a picture, and what the run says of it."""

    run: Compared
    uri: str
    guess: int
    probability: float


@dataclass(frozen=True)
class Row:
    """One test picture."""

    uri: str
    width: int
    height: int
    index: int
    truth: int
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """All maps of one kind, as shares of each map's total."""

    kind: str
    name: str
    scale: Scale
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Maps:
    runs: tuple[Compared, ...]
    tables: tuple[Table, ...]
    left_out: tuple[tuple[Compared, str], ...]  # and why


def gather(runs: Sequence[Compared], test: Pictures, device: torch.device) -> Maps | None:
    """Look at one test picture of each of the first classes with every run; nothing where no run has maps."""
    labels = runs[0].evaluation.labels
    chosen = runs[0].evaluation.first_of_each_class(SHOWN)
    seen: dict[Compared, Inside] = {}
    left_out = []
    for run in runs:
        normalised = Normalise(run.card, torch.device("cpu"))(unit(test[chosen]))
        try:
            network = run.run.model().to(device)
        except BadInput as reason:
            if run.run.weights.exists():  # what cannot be read is a fault, not a kind of model
                raise
            left_out.append((run, str(reason)))
            continue
        try:
            looked = inside(network, normalised)
            if not any(stream.attention.shape[1] for stream in looked.streams):
                raise BadInput("it has no blocks, so there is no attention")
            seen[run] = looked
        except BadInput as reason:
            left_out.append((run, str(reason)))
    if not seen:
        return None
    tables = tuple(table(kind, seen, test[chosen], chosen, labels[chosen].tolist()) for kind in KINDS)
    return Maps(tuple(seen), tables, tuple(left_out))


def table(kind: str, seen: dict[Compared, Inside], shown: Tensor, chosen: list[int], truths: list[int]) -> Table:
    """Maps of one kind; the scale holds all but the strongest two weights in a thousand."""
    laid = {run: shares(heat(looked, kind)).numpy() for run, looked in seen.items()}
    scale = Scale.of(np.concatenate([np.ravel(maps) for maps in laid.values()]))
    rows = []
    for place, (index, truth) in enumerate(zip(chosen, truths, strict=True)):
        picture = shown[place].numpy()
        width, height = pictures.display_size(picture, ROOM)
        cells = []
        for run, maps in laid.items():
            drawn = pictures.pixels_uri(scale.over(picture, maps[place]))
            guess = int(run.evaluation.guesses[index])
            cells.append(Cell(run, drawn, guess, float(run.evaluation.probabilities[index, guess])))
        rows.append(Row(pictures.picture_uri(picture), width, height, index, truth, tuple(cells)))
    return Table(kind, NAMES[kind], scale, tuple(rows))
