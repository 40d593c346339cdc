"""Arrays as PNG data URIs."""

import base64
import io

import numpy as np
from PIL import Image

from vitlab.look.colours import levels, palette

LARGEST_SIDE = 64


def map_uri(weights: np.ndarray, signed: bool) -> str:
    """A map of (rows, columns) weights as a PNG of one pixel per patch, see-through, to stretch over its picture."""
    image = Image.fromarray(levels(weights, signed))
    image.putpalette(palette(signed).tobytes(), "RGBA")
    return _uri(image)


def picture_uri(picture: np.ndarray, gray: bool = False, largest: int = LARGEST_SIDE) -> str:
    """A uint8 (c, y, x) picture, made smaller by a whole factor when its longer side is over `largest`."""
    channels = picture if len(picture) in (1, 3) else picture.mean(axis=0, keepdims=True).round().astype(np.uint8)
    image = Image.fromarray(np.ascontiguousarray(channels[0] if len(channels) == 1 else channels.transpose(1, 2, 0)))
    factor = -(-max(image.size) // largest)
    image = image.reduce(factor) if factor > 1 else image
    return _uri(image.convert("L") if gray else image)


def pixels_uri(pixels: np.ndarray) -> str:
    """uint8 (y, x, 3) as it is."""
    return _uri(Image.fromarray(pixels))


def display_size(picture: np.ndarray, room: int) -> tuple[int, int]:
    """Width and height on the page: a whole multiple of the picture's own where it fits in the room."""
    height, width = picture.shape[1:]
    scale = room // max(height, width) or room / max(height, width)
    return max(round(width * scale), 1), max(round(height * scale), 1)


def _uri(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
