"""A picture file → a uint8 tensor of the wanted size and channels, the same way for training and prediction."""

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from vitlab.data.words import one_line, shown
from vitlab.errors import BadInput

SUFFIXES = (
    ".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm",
)  # fmt: skip
# Recognised by content, whatever the suffix says; formats that start another program, such as EPS, stay out.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "PPM", "WEBP")
GREY = frozenset(("1", "L", "LA", "La"))
QUARTER_TURNED = frozenset((5, 6, 7, 8))  # the EXIF orientations that swap height and width
ORIENTATION = 0x0112


class Room:
    """So many pixels are decoded at a time, by all threads together; a picture that is larger, alone."""

    def __init__(self, most: int):
        self.most, self.left, self.changed = most, most, threading.Condition()

    @contextmanager
    def taken(self, pixels: int) -> Iterator[None]:
        wanted = min(pixels, self.most)
        with self.changed:
            self.changed.wait_for(lambda: self.left >= wanted)
            self.left -= wanted
        try:
            yield
        finally:
            with self.changed:
                self.left += wanted
                self.changed.notify_all()


class Hush:
    """Keeps the words of a library in C off the terminal, while any thread asks for it."""

    def __init__(self) -> None:
        self.asked, self.terminal, self.lock = 0, -1, threading.Lock()

    @contextmanager
    def kept(self) -> Iterator[None]:
        self.turn(1)
        try:
            yield
        finally:
            self.turn(-1)

    def turn(self, step: int) -> None:
        with self.lock, suppress(OSError):  # there may be no terminal
            self.asked += step
            if self.asked == 1 and step == 1:
                self.terminal = os.dup(2)
                with open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), 2)
            elif not self.asked and self.terminal >= 0:
                os.dup2(self.terminal, 2)
                os.close(self.terminal)
                self.terminal = -1


ROOM, HUSH = Room(2**26), Hush()
DECODED = threading.local()  # what each thread found in the picture that it decoded last
logging.getLogger("PIL").addHandler(logging.NullHandler())  # what is wrong with a file is said once, by us
# Of Pillow's 16 MB blocks, glibc keeps those that are freed for each thread, gigabytes in all; larger ones go back.
Image.core.set_block_size(2**26)


def is_picture(name: str) -> bool:
    """By its name alone."""
    return Path(name).suffix.casefold() in SUFFIXES


@dataclass(frozen=True)
class Header:
    """What a picture file says of itself before its pixels are read."""

    height: int
    width: int
    grey: bool
    transparent: bool


def read_picture(path: Path, channels: int, height: int, width: int) -> Tensor:
    """Read a picture as uint8 (c, y, x): upright, over white, scaled to cover the size and cropped at the centre."""
    with _reading(path):
        return torch.from_numpy(decode(path, channels, height, width))


def read_shown(path: Path, height: int, width: int, most: int = 1024) -> np.ndarray:
    """What `read_picture` takes of a picture, at its own resolution: uint8 (c, y, x), grey or colour as the file is.

    A side longer than `most` pixels is made smaller.
    """
    with _reading(path), _opened(path) as opened:
        picture = _upright(opened, grey=_is_grey(opened))
        scale = min(picture.width / width, picture.height / height)
        scale = min(scale, most / max(width, height))
        size = max(round(width * scale), 1), max(round(height * scale), 1)
        return _pixels(ImageOps.fit(picture, size, Image.Resampling.BICUBIC))


def read_size(path: Path) -> tuple[int, int]:
    """Height and width of a picture file, as seen upright."""
    with _reading(path):
        header = read_header(path)
        return header.height, header.width


class Unreadable(Exception):
    """A file that cannot be read as a picture, with the reason."""


@contextmanager
def silent_pillow() -> Iterator[None]:
    """Keep Pillow's warnings about odd files off the terminal; it is set once, outside any thread pool."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """A file that cannot be read is the user's to mend."""
    with silent_pillow():
        try:
            yield
        except Unreadable as error:
            raise BadInput(f"{shown(path)} cannot be read as a picture: {error}") from None


def read_header(path: Path | bytes) -> Header:
    """Read the size, as seen upright, and whether the picture is grey or transparent."""
    with _opened(path) as picture:
        width, height = picture.size
        if picture.getexif().get(ORIENTATION) in QUARTER_TURNED:
            width, height = height, width
        return Header(height, width, _is_grey(picture), picture.has_transparency_data)


def decode(path: Path | bytes, channels: int, height: int, width: int) -> np.ndarray:
    """Decode the first frame to uint8 (c, y, x)."""
    DECODED.brightest = 0
    if channels not in (1, 3):
        raise BadInput(f"a picture file gives 1 channel or 3, not {channels}")
    with _opened(path) as opened:
        picture = _upright(opened, grey=channels == 1)
        if picture.size != (width, height):
            picture = ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)
        return _pixels(picture)


def brightest() -> int:
    """The largest value of the picture that this thread decoded last, where that has 16 bits; else 0."""
    return int(getattr(DECODED, "brightest", 0))


def _upright(opened: Image.Image, grey: bool) -> Image.Image:
    """The right way up, over white where it is transparent, in 8 bits of grey or of colour."""
    ImageOps.exif_transpose(opened, in_place=True)  # a copy would take as much memory again
    picture = _eight_bits(opened)
    if picture.has_transparency_data:
        layer = picture if picture.mode == "RGBA" else picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return picture.convert("L" if grey else "RGB")


def _pixels(picture: Image.Image) -> np.ndarray:
    """uint8 (c, y, x)."""
    pixels = np.array(picture)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


@contextmanager
def _opened(path: Path | bytes) -> Iterator[Image.Image]:
    """A picture in a file, or in the bytes of one."""
    try:
        with Image.open(BytesIO(path) if isinstance(path, bytes) else path, formats=FORMATS) as picture:
            if Image.MAX_IMAGE_PIXELS and picture.width * picture.height > Image.MAX_IMAGE_PIXELS:
                raise Unreadable(f"{picture.width}×{picture.height} pixels are too many")
            hush = HUSH.kept() if picture.format == "TIFF" else nullcontext()
            with ROOM.taken(picture.width * picture.height), hush:
                yield picture
    except (Unreadable, BadInput):
        raise
    except Image.DecompressionBombError:
        raise Unreadable("its pixels are far too many") from None
    except Image.UnidentifiedImageError:
        raise Unreadable("no picture format is recognised") from None
    except OSError as error:
        raise Unreadable(error.strerror.lower() if error.strerror else one_line(error)) from None
    except Exception as error:  # Pillow's readers raise almost anything on a broken file
        raise Unreadable(one_line(error)) from None


def _is_grey(picture: Image.Image) -> bool:
    if picture.mode in ("P", "PA"):
        colours = np.array(picture.getpalette("RGB") or [0, 0, 0]).reshape(-1, 3)
        return bool((colours == colours[:, :1]).all())
    return picture.mode in GREY or picture.mode.startswith("I")


def _eight_bits(picture: Image.Image) -> Image.Image:
    """Bring 16-bit grey values to 8 bits, 65535 → 255; Pillow's own conversion would clip them."""
    if picture.mode == "F":
        raise Unreadable("its pixels are floating-point numbers")
    if not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture)
    least, most = int(values.min()), int(values.max())
    if least < 0 or most > 65535:
        raise Unreadable("its pixels are 32-bit numbers")
    DECODED.brightest = most
    rows = [((some.astype(np.int32) + 128) // 257).astype(np.uint8) for some in np.array_split(values, 64) if len(some)]
    return Image.fromarray(np.concatenate(rows))
