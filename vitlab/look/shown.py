"""A look: what a model did with some pictures, and the pictures themselves, ready to be drawn."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.look.inside import Inside, inside
from vitlab.model import Network


@dataclass(frozen=True, eq=False)
class Shown:
    """A picture as people see it: at its own resolution, with its name and, where it is known, its class."""

    pixels: np.ndarray  # uint8 (c, y, x)
    name: str
    truth: int | None = None
    note: str = ""


@dataclass(frozen=True, eq=False)
class Look(Inside):
    """All maps of a model on b pictures (see `Inside`), beside the pictures."""

    pictures: Tensor  # (b, c, y, x) as the model took them
    shown: tuple[Shown, ...]
    classes: tuple[str, ...]

    @property
    def guesses(self) -> list[int]:
        return [int(guess) for guess in self.logits.argmax(dim=-1)]

    @property
    def probabilities(self) -> Tensor:
        return self.logits.softmax(dim=-1)


def look(
    network: Network,
    pictures: Tensor,
    *,
    token: str | None = None,
    target: Tensor | int | None = None,
    shown: tuple[Shown, ...] | None = None,
    classes: tuple[str, ...] | None = None,
) -> Look:
    """Look at one picture (c, y, x) or many (b, c, y, x), normalised as in training; another size is made to fit."""
    pictures, note = fitted(network, pictures[None] if pictures.dim() == 3 else pictures)
    seen = inside(network, pictures, token, target)
    named = classes or tuple(str(number) for number in range(seen.logits.shape[1]))
    if shown is None:
        shown = tuple(Shown(to_show(picture), f"picture {i + 1}", note=note) for i, picture in enumerate(pictures))
    return Look(**vars(seen), pictures=pictures, shown=shown, classes=named)


def fitted(network: Network, pictures: Tensor) -> tuple[Tensor, str]:
    """Pictures of the network's size, and what was done to make them so."""
    shape = network.shape
    if pictures.dim() != 4 or not len(pictures) or pictures.shape[1] != shape.channels or not pictures.numel():
        given = "×".join(map(str, pictures.shape))
        raise BadInput(f"this model looks at pictures of {shape}, or many of them, and was given {given}")
    if not pictures.is_floating_point():
        raise BadInput(
            "pictures are given as the model learned them, normalised floats; vitlab.load_pictures makes them"
        )
    if not bool(pictures.isfinite().all()):
        raise BadInput("the pictures hold values that are no numbers (NaN or infinite)")
    height, width = pictures.shape[2:]
    if (height, width) == (shape.height, shape.width):
        return pictures, ""
    resized = F.interpolate(pictures, (shape.height, shape.width), mode="bilinear", antialias=True)
    return resized, f"resized from {height}×{width} to {shape.height}×{shape.width}"


def to_show(picture: Tensor) -> np.ndarray:
    """A normalised picture as uint8, its darkest value black and its brightest white."""
    low, high = picture.min(), picture.max()
    return ((picture - low) / (high - low).clamp(min=1e-12) * 255).round().to(torch.uint8).cpu().numpy()
