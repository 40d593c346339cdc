"""Arrays as PNG data URIs: pictures as they are, and maps as see-through colours to lay over them."""

import base64
import io

import numpy as np
from PIL import Image

LEVELS = 33  # odd, so that a scale with two sides has a middle
LARGEST_SIDE = 64

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


def levels(weights: np.ndarray, signed: bool) -> np.ndarray:
    """Weights to places on the scale: 0 … largest weight, or −largest … +largest when signed; NaN counts as 0."""
    weights = np.nan_to_num(np.asarray(weights, float), posinf=0.0, neginf=0.0)
    share = weights / (np.abs(weights).max() or 1.0)
    place = (share + 1) / 2 if signed else np.clip(share, 0, 1)
    return (place * (LEVELS - 1)).round().astype(np.uint8)


def map_uri(weights: np.ndarray, signed: bool) -> str:
    """A map of (rows, columns) weights as a PNG of one pixel per patch, see-through, to stretch over its picture."""
    image = Image.fromarray(levels(weights, signed))
    image.putpalette(palette(signed).tobytes(), "RGBA")
    return _uri(image)


def legend_uri(signed: bool) -> str:
    """The scale itself, one pixel per level."""
    return map_uri(np.linspace(-1 if signed else 0, 1, LEVELS)[None], signed)


def picture_uri(picture: np.ndarray, gray: bool = False) -> str:
    """A uint8 (c, y, x) picture, made smaller by a whole factor when its longer side is over LARGEST_SIDE."""
    channels = picture if len(picture) in (1, 3) else picture.mean(axis=0, keepdims=True).round().astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(channels[0] if len(channels) == 1 else channels.transpose(1, 2, 0)))
    factor = -(-max(image.size) // LARGEST_SIDE)
    image = image.reduce(factor) if factor > 1 else image
    return _uri(image.convert("L") if gray else image)


def display_size(picture: np.ndarray, room: int) -> tuple[int, int]:
    """Width and height on the page: a whole multiple of the picture's own where it fits in the room."""
    height, width = picture.shape[1:]
    scale = room // max(height, width) or room / max(height, width)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _uri(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
