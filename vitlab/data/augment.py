"""Batched augmentation on the training device, drawn from an explicit generator: no per-picture Python."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from vitlab.chance import below, uniform
from vitlab.data.geometry import resample
from vitlab.data.trivial import trivial
from vitlab.errors import BadInput


@dataclass(frozen=True)
class Augment:
    """x ← erase(grey(hue(colour(affine(trivial(crop(flip(x)))))))), each drawn for each picture; all off by default."""

    flip: bool = False  # mirror half the pictures left to right
    by_turns: bool = False  # where pictures are mirrored: each in every second epoch, not by chance (Jordan, 2024)
    crop: int = 0  # pad by this many pixels and crop back to size at random
    trivial: bool = False  # one change of 14, of a random strength (Müller & Hutter, 2021)
    rotate: float = 0.0  # turn by up to this many degrees either way
    translate: float = 0.0  # shift by up to this share of the side
    scale: float = 0.0  # grow or shrink by up to this share
    shear: float = 0.0  # slant by up to this many degrees
    bend: float = 0.0  # bend like rubber: move 5×5 points by up to this share of the side (after Simard et al., 2003)
    colour: float = 0.0  # change brightness, contrast and saturation by up to this share
    hue: float = 0.0  # where there are three channels, turn the hues by up to this share of the circle either way
    grey: float = 0.0  # share of pictures that lose their colour
    erase: float = 0.0  # share of pictures in which a rectangle is replaced by noise (Zhong et al., 2020)

    def __post_init__(self) -> None:
        for name in ("crop", "rotate", "translate", "shear", "bend", "colour", "hue"):
            if getattr(self, name) < 0:
                raise BadInput(f"{name} must be 0 or more, not {getattr(self, name)}")
        if not (0 <= self.erase <= 1 and 0 <= self.grey <= 1 and 0 <= self.scale < 1):
            raise BadInput(
                f"grey, erase and scale are shares between 0 and 1, not {self.grey}, {self.erase} and {self.scale}"
            )

    @property
    def moves(self) -> bool:
        return bool(self.rotate or self.translate or self.scale or self.shear or self.bend)

    def __call__(self, pictures: Tensor, generator: Generator, turn: Tensor | None = None) -> Tensor:
        """Float pictures (b, c, y, x) in 0 … 1 → changed pictures of the same shape, in 0 … 1.

        `turn` (b,) says which pictures are mirrored now, where they are by turns.
        """
        if self.flip:
            chosen = draw(pictures, generator) < 0.5 if turn is None else turn.view(-1, 1, 1, 1)
            pictures = torch.where(chosen, pictures.flip(-1), pictures)
        if self.crop:
            pictures = shift(pictures, self.crop, generator)
        if self.trivial:
            pictures = trivial(pictures, generator)
        if self.moves:
            pictures = self.affine(pictures, generator)
        if self.colour:
            pictures = self.recolour(pictures, generator)
        if self.hue and pictures.shape[1] == 3:
            pictures = turn_hues(pictures, (uniform(generator, len(pictures)) * 2 - 1) * self.hue)
        if self.grey:
            colourless = pictures.mean(dim=1, keepdim=True).expand_as(pictures)
            pictures = torch.where(draw(pictures, generator) < self.grey, colourless, pictures)
        if self.erase:
            pictures = self.cut_out(pictures, generator)
        return pictures

    def affine(self, pictures: Tensor, generator: Generator) -> Tensor:
        """Turn, scale, slant and shift about the centre, and bend, bilinear, with zeros beyond the edge."""
        batch, _, height, width = pictures.shape

        def either_way(most: float) -> Tensor:
            return (uniform(generator, batch) * 2 - 1) * most

        angle, slant = either_way(math.radians(self.rotate)), either_way(math.radians(self.shear)).tan()
        size = 1 / (1 + either_way(self.scale))
        # grid_sample's axes run from −1 to 1 on both sides, so a rectangle needs its aspect put back.
        aspect = width / height
        rows = [
            torch.stack(
                [
                    size * angle.cos(),
                    size * (slant * angle.cos() - angle.sin()) / aspect,
                    either_way(2 * self.translate),
                ]
            ),
            torch.stack(
                [
                    size * angle.sin() * aspect,
                    size * (slant * angle.sin() + angle.cos()),
                    either_way(2 * self.translate),
                ]
            ),
        ]
        return resample(pictures, rows, moved=self.bent(pictures, generator) if self.bend else None)

    def bent(self, pictures: Tensor, generator: Generator) -> Tensor:
        """How far from its place each pixel is read (b, 2, y, x): a smooth surface through 5×5 random points."""
        points = uniform(generator, len(pictures), 2, 5, 5, dtype=pictures.dtype)
        size = list(pictures.shape[-2:])
        return F.interpolate((points * 4 - 2) * self.bend, size=size, mode="bicubic", align_corners=True)

    def recolour(self, pictures: Tensor, generator: Generator) -> Tensor:
        """Brightness multiplies, contrast stretches about the mean, saturation about the grey."""
        brightness, contrast, saturation = (1 + (draw(pictures, generator) * 2 - 1) * self.colour for _ in range(3))
        pictures = pictures * brightness
        mean = pictures.mean(dim=(1, 2, 3), keepdim=True)
        pictures = mean + (pictures - mean) * contrast
        if pictures.shape[1] > 1:
            grey = pictures.mean(dim=1, keepdim=True)
            pictures = grey + (pictures - grey) * saturation
        return pictures.clamp(0, 1)

    def cut_out(self, pictures: Tensor, generator: Generator) -> Tensor:
        """Noise in a rectangle of 2 % to 25 % of the picture, sides in a ratio of 1:3 to 3:1, in `erase` of them."""
        height, width = pictures.shape[-2:]
        area = 0.02 + 0.23 * draw(pictures, generator)
        ratio = ((draw(pictures, generator) * 2 - 1) * math.log(3)).exp()
        inside = rectangle(pictures, (area * ratio).sqrt() * height, (area / ratio).sqrt() * width, generator)
        chosen = draw(pictures, generator) < self.erase
        noise = uniform(generator, *pictures.shape, dtype=pictures.dtype)
        return torch.where(inside & chosen, noise, pictures)


def turn_hues(pictures: Tensor, turns: Tensor) -> Tensor:
    """Each picture's colours turned about the grey axis by `turns` (b,) of the circle, red towards green, within 0 … 1.

    A rotation about (1, 1, 1) is a circulant matrix: each channel a·itself + b·one neighbour + c·the other.
    """
    steps = torch.arange(3, device=pictures.device) / 3
    shares = (1 + 2 * (2 * math.pi * (turns[:, None] - steps)).cos()) / 3  # of the channel 0, 1, 2 steps before
    shares = shares.to(pictures.dtype)[:, :, None, None, None]
    turned = torch.stack([pictures.roll(step, dims=1) for step in range(3)], dim=1)
    return (shares * turned).sum(dim=1).clamp(0, 1)


def draw(pictures: Tensor, generator: Generator) -> Tensor:
    """One uniform number per picture, shaped (b, 1, 1, 1)."""
    return uniform(generator, len(pictures), 1, 1, 1, dtype=pictures.dtype)


def shift(pictures: Tensor, padding: int, generator: Generator) -> Tensor:
    """Pad with zeros and crop each picture at its own place: one gather for the batch."""
    batch, channels, height, width = pictures.shape
    device = pictures.device
    padded = F.pad(pictures, (padding,) * 4)
    top, left = below(2 * padding + 1, generator, 2, batch, 1, batch=1)
    rows = (top + torch.arange(height, device=device))[:, None, :, None]
    columns = (left + torch.arange(width, device=device))[:, None, None, :]
    places = (rows * padded.shape[-1] + columns).expand(-1, channels, -1, -1)
    return padded.flatten(2).gather(2, places.flatten(2)).view(batch, channels, height, width)


def rectangle(pictures: Tensor, tall: Tensor, wide: Tensor, generator: Generator) -> Tensor:
    """Mask (b, 1, y, x) of rectangles of the given heights and widths, centred anywhere, cut off at the edge."""
    height, width = pictures.shape[-2:]
    y = torch.arange(height, device=pictures.device).view(1, 1, -1, 1) + 0.5
    x = torch.arange(width, device=pictures.device).view(1, 1, 1, -1) + 0.5
    centre_y, centre_x = draw(pictures, generator) * height, draw(pictures, generator) * width
    return ((y - centre_y).abs() < tall / 2) & ((x - centre_x).abs() < wide / 2)
