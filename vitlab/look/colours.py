"""Colours of a map: safe for the colour-blind, even in lightness, see-through so that the picture stays visible."""

from dataclasses import dataclass

import numpy as np

QUIET = 0.5  # of the contrast of a picture under a map
FINEST = 8  # pixels that a patch has at least in an overlay
LEVELS = 255  # odd, so that a scale with two sides has a middle

# Each row is red, green, blue, alpha; lightness rises evenly along the rows (both ways from the middle when signed).
SEQUENTIAL = np.array(
    [(8, 6, 30, 150), (74, 22, 104, 175), (170, 45, 100, 195), (240, 120, 55, 210), (255, 215, 120, 225)], float
)
DIVERGING = np.array(
    [(125, 200, 255, 225), (40, 110, 205, 195), (12, 12, 16, 150), (200, 90, 20, 195), (255, 190, 110, 225)], float
)


def palette(signed: bool) -> np.ndarray:
    """The scale as uint8 (LEVELS, 4), interpolated between its anchors."""
    anchors = DIVERGING if signed else SEQUENTIAL
    places, knots = np.linspace(0, 1, LEVELS), np.linspace(0, 1, len(anchors))
    return np.stack([np.interp(places, knots, channel) for channel in anchors.T], axis=1).round().astype(np.uint8)


def levels(weights: np.ndarray, signed: bool, most: float | None = None, root: bool = False) -> np.ndarray:
    """Weights to places on the scale: 0 … most, or −most … +most when signed; by default the largest weight.

    On a root scale small weights stay visible beside large ones: a quarter of the largest lies half way up.
    """
    weights = np.nan_to_num(np.asarray(weights, float), posinf=0.0, neginf=0.0)
    share = weights / ((np.abs(weights).max() if most is None else most) or 1.0)
    share = rooted(share) if root else share
    place = (share + 1) / 2 if signed else share
    return (np.clip(place, 0, 1) * (LEVELS - 1)).round().astype(np.uint8)


def rooted(share: np.ndarray) -> np.ndarray:
    return np.sign(share) * np.sqrt(np.abs(share))


def is_signed(weights: np.ndarray) -> bool:
    """Whether some weights are negative, by more than rounding."""
    finite = weights[np.isfinite(weights)]
    return bool(finite.size) and bool(finite.min() < -1e-6 * np.abs(finite).max())


@dataclass(frozen=True)
class Scale:
    """The colours that several maps share: from 0, or from −most, to most; in proportion, or by the root."""

    signed: bool
    most: float
    root: bool
    clipped: bool = False  # some weights are stronger

    @classmethod
    def of(cls, maps: np.ndarray) -> "Scale":
        """A scale for all these maps: up to the largest weight but for the strongest two in a thousand."""
        strength = np.abs(maps)
        most = float(np.quantile(strength, 0.998)) if strength.size and strength.max() > 0 else 1.0
        signed = is_signed(maps)
        return cls(signed, most, root=not signed, clipped=bool(strength.size) and bool(strength.max() > most))

    def over(self, picture: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """A map over its picture: uint8 (y, x, 3)."""
        return overlay(picture, weights, self.signed, self.most, self.root)

    @property
    def word(self) -> str:
        return " (root scale)" if self.root else ""


COSINE = Scale(signed=True, most=1.0, root=False)


def grey(picture: np.ndarray) -> np.ndarray:
    """uint8 (c, y, x) → (y, x) in 0 … 1: lightness of a colour picture, the mean of any other number of channels."""
    shares = np.array([0.299, 0.587, 0.114]) if len(picture) == 3 else np.full(len(picture), 1 / len(picture))
    return np.tensordot(shares, picture / 255, axes=1)


def visible(picture: np.ndarray) -> np.ndarray:
    """uint8 (c, y, x) → uint8 (y, x, 3): colour as it is, any other number of channels as their grey mean."""
    if len(picture) == 3:
        return np.ascontiguousarray(picture.transpose(1, 2, 0))
    return np.repeat((grey(picture)[..., None] * 255).round().astype(np.uint8), 3, axis=2)


def overlay(
    picture: np.ndarray, weights: np.ndarray, signed: bool, most: float | None = None, root: bool = False
) -> np.ndarray:
    """A map (rows, columns) over the picture in quiet grey, at its own resolution or finer: uint8 (y, x, 3).

    The picture keeps half of its contrast, so that a weight has much the same colour over black and over white.
    """
    behind = 0.5 + QUIET * (grey(picture) - 0.5)
    finer = max(-(-FINEST * weights.shape[0] // behind.shape[0]), -(-FINEST * weights.shape[1] // behind.shape[1]), 1)
    behind = behind.repeat(finer, axis=0).repeat(finer, axis=1)
    height, width = behind.shape
    rows = (np.arange(height) + 0.5) * weights.shape[0] // height
    columns = (np.arange(width) + 0.5) * weights.shape[1] // width
    colours = palette(signed)[levels(weights, signed, most, root)][rows.astype(int)][:, columns.astype(int)] / 255
    strength = colours[..., 3:]
    return ((colours[..., :3] * strength + behind[..., None] * (1 - strength)) * 255).round().astype(np.uint8)
