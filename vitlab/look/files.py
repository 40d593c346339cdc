"""Pictures to look at, by name: files, and pictures of a run's test part as test:17."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from vitlab.data import Part, read_picture, read_shown
from vitlab.data.pictures import read_size
from vitlab.data.prepared import Card, Normalise, seem_swapped, unit
from vitlab.data.words import shown as printable
from vitlab.errors import BadInput
from vitlab.look.shown import Shown

TEST = re.compile(r"test:(\d+)")


def read_named(
    names: Sequence[Path | str], card: Card, test: Callable[[], Part], invert: bool = False
) -> tuple[Tensor, tuple[Shown, ...]]:
    """Pictures (b, c, y, x) as the model of this card takes them, and as people see them."""
    if not names:
        raise BadInput("no picture given to look at")
    part: Part | None = None
    read, shown = [], []
    for name in names:
        number = TEST.fullmatch(str(name))
        if number:
            part = part or test()
            pixels, picture = from_test(part, int(number[1]))
        elif str(name).startswith("test:") and not Path(name).exists():
            raise BadInput(f"'{name}' names no test picture: write test: and its number, such as test:17")
        else:
            pixels, picture = from_file(card, Path(name))
            if not invert and seem_swapped(pixels, card):
                picture = noted(picture, "dark and light seem swapped (--invert)")
        if invert:
            negative = replace(picture, pixels=255 - picture.pixels)
            pixels, picture = 255 - pixels, noted(negative, "dark and light swapped")
        read.append(pixels)
        shown.append(picture)
    return Normalise(card, torch.device("cpu"))(unit(torch.stack(read))), told_apart(shown, names)


def noted(picture: Shown, note: str) -> Shown:
    return replace(picture, note=f"{picture.note}, {note}" if picture.note else note)


def told_apart(shown: list[Shown], names: Sequence[Path | str]) -> tuple[Shown, ...]:
    """Files that share a name are called by their paths as given."""
    times = Counter(picture.name for picture in shown)
    return tuple(
        picture if times[picture.name] == 1 else replace(picture, name=printable(name))
        for picture, name in zip(shown, names, strict=True)
    )


def from_test(test: Part, number: int) -> tuple[Tensor, Shown]:
    if number >= len(test):
        raise BadInput(f"no test:{number}: the test part has {len(test):,} pictures, the first is test:0")
    pixels = test.pictures[number]
    return pixels, Shown(pixels.numpy(), f"test:{number}", truth=int(test.labels[number]))


def from_file(card: Card, path: Path) -> tuple[Tensor, Shown]:
    """A picture file, fitted to the model's size; and what of it was taken, as it is."""
    pixels = read_picture(path, card.channels, card.height, card.width)
    whole, (height, width) = read_shown(path, card.height, card.width), read_size(path)
    note = ""
    if (height, width) != (card.height, card.width):
        note = f"resized from {height}×{width} to {card.height}×{card.width}"
        if height * card.width != width * card.height:
            scale = min(width / card.width, height / card.height)
            note += f", of it only the middle {round(card.height * scale)}×{round(card.width * scale)}"
    return pixels, Shown(whole, printable(path.name), note=note)
