"""Attention laid over pictures, layer by layer and head by head."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitlab.report import pictures
from vitlab.report.content import Look

PICTURE_ROOM, TILE_ROOM = 168, 96


@dataclass(frozen=True)
class Tile:
    """One map: its drawing, its largest weight and where that lies, and the share that is not on patches."""

    uri: str
    peak: float
    row: int
    column: int
    rest: float


@dataclass(frozen=True)
class Layer:
    """The mean over a layer's heads, and each head."""

    mean: Tile
    heads: tuple[Tile, ...]


@dataclass(frozen=True)
class Panel:
    """One picture with the maps of every layer."""

    uri: str
    backdrop: str  # the picture in grey, so that colour means attention only
    size: tuple[int, int]
    tile: tuple[int, int]
    truth: int
    guess: int
    probability: float
    grid: tuple[int, int]
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class Looks:
    """All panels on one kind of scale."""

    panels: tuple[Panel, ...]
    signed: bool
    legend: str
    rest: bool  # some attention lies outside the patches


def gather(looks: Sequence[Look]) -> Looks:
    """Draw every map; one negative weight anywhere gives all of them the scale with two sides."""
    signed = any(np.nanmin(look.maps) < -1e-6 * np.nanmax(np.abs(look.maps)) for look in looks if _known(look))
    return Looks(
        panels=tuple(_panel(look, signed) for look in looks),
        signed=signed,
        legend=pictures.legend_uri(signed),
        rest=any(bool((np.abs(np.nan_to_num(look.rest)) >= 0.0005).any()) for look in looks),
    )


def _known(look: Look) -> bool:
    return bool(np.isfinite(look.maps).any())


def _panel(look: Look, signed: bool) -> Panel:
    layers = [
        Layer(
            _tile(maps.mean(axis=0), float(rest.mean()), signed),
            tuple(_tile(weights, float(share), signed) for weights, share in zip(maps, rest, strict=True)),
        )
        for maps, rest in zip(look.maps, look.rest, strict=True)
    ]
    return Panel(
        uri=pictures.picture_uri(look.picture),
        backdrop=pictures.picture_uri(look.picture, gray=True),
        size=pictures.display_size(look.picture, PICTURE_ROOM),
        tile=pictures.display_size(look.picture, TILE_ROOM),
        truth=look.truth,
        guess=look.guess,
        probability=look.probability,
        grid=(look.maps.shape[2], look.maps.shape[3]),
        layers=tuple(layers),
    )


def _tile(weights: np.ndarray, rest: float, signed: bool) -> Tile:
    """Rows and columns count from 1, as in the text beside the map."""
    strongest = np.abs(np.nan_to_num(weights)).argmax()
    row, column = np.unravel_index(strongest, weights.shape)
    uri = pictures.map_uri(weights, signed)
    return Tile(uri, float(weights[row, column]), int(row) + 1, int(column) + 1, rest)
