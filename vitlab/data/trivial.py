"""TrivialAugment (Müller & Hutter, 2021): each picture gets one change, of a strength drawn evenly; all in batch."""

import math

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from vitlab.chance import below
from vitlab.data.geometry import resample

# The paper's wide space. Geometry moves pixels, blends go from a duller picture through the own one to beyond it, and
# the rest map values. Each is drawn as often as every other.
GEOMETRY = ("shear-x", "shear-y", "translate-x", "translate-y", "rotate")
BLENDS = ("brightness", "saturation", "contrast", "sharpness")
VALUES = ("posterise", "solarise", "autocontrast", "equalise")
CHANGES = ("identity", *GEOMETRY, *BLENDS, *VALUES)
LEVELS = 31  # strengths from 0 to 1


def trivial(pictures: Tensor, generator: Generator) -> Tensor:
    """Float pictures (b, c, y, x) in 0 … 1 → each with one change of random strength."""
    count = len(pictures)
    kind = below(len(CHANGES), generator, count)
    strength = below(LEVELS, generator, count) / (LEVELS - 1)
    sign = below(2, generator, count) * 2 - 1
    return change(pictures, kind, strength, sign)


def change(pictures: Tensor, kind: Tensor, strength: Tensor, sign: Tensor) -> Tensor:
    """The change numbered `kind` in CHANGES to each picture, by its strength in 0 … 1 and its sign, −1 or 1."""
    pictures = warp(pictures, kind, strength * sign)
    pictures = blend(pictures, kind, 1 + 0.99 * strength * sign)
    return map_values(pictures, kind, strength)


def chosen(kind: Tensor, name: str) -> Tensor:
    return kind == CHANGES.index(name)


def warp(pictures: Tensor, kind: Tensor, amount: Tensor) -> Tensor:
    """Slant by up to 0.99, shift by up to 32 pixels, turn by up to 135°, about the centre; zeros come in."""
    height, width = pictures.shape[-2:]
    shear_x, shear_y, left, up, turn = (torch.where(chosen(kind, name), amount, 0.0) for name in GEOMETRY)
    angle, aspect = turn * math.radians(135), width / height
    # grid_sample's axes run from −1 to 1 on both sides, so a rectangle needs its aspect put back.
    rows = [
        torch.stack([angle.cos(), (0.99 * shear_x - angle.sin()) / aspect, 32 * left * 2 / width]),
        torch.stack([(0.99 * shear_y + angle.sin()) * aspect, angle.cos(), 32 * up * 2 / height]),
    ]
    return resample(pictures, rows)


def blend(pictures: Tensor, kind: Tensor, factor: Tensor) -> Tensor:
    """dull + factor · (x − dull): dull is black, the grey picture, its mean grey, or the smoothed picture."""
    grey = grey_of(pictures)
    dull = {
        "brightness": torch.zeros_like(pictures),
        "saturation": grey.expand_as(pictures),
        "contrast": grey.mean(dim=(1, 2, 3), keepdim=True).expand_as(pictures),
        "sharpness": smooth(pictures),
    }
    for name, without in dull.items():
        blended = (without + factor.view(-1, 1, 1, 1) * (pictures - without)).clamp(0, 1)
        pictures = torch.where(chosen(kind, name).view(-1, 1, 1, 1), blended, pictures)
    return pictures


def map_values(pictures: Tensor, kind: Tensor, strength: Tensor) -> Tensor:
    """Fewer bits, light turned to dark, values stretched to 0 … 1, or spread evenly, each channel on its own."""
    strength = strength.view(-1, 1, 1, 1)
    values = (pictures * 255).round()
    step = 2 ** (strength * 6).round()  # 8 bits down to 2
    least, most = values.amin(dim=(2, 3), keepdim=True), values.amax(dim=(2, 3), keepdim=True)
    stretched = (values - least) * 255 / (most - least).clamp(min=1)
    mapped = {
        "posterise": (values / step).floor() * step,
        "solarise": torch.where(values >= 255 * (1 - strength), 255 - values, values),
        "autocontrast": torch.where(most > least, stretched, values),
        "equalise": equalise(values),
    }
    for name, new in mapped.items():
        pictures = torch.where(chosen(kind, name).view(-1, 1, 1, 1), new / 255, pictures)
    return pictures


def grey_of(pictures: Tensor) -> Tensor:
    """(b, 1, y, x): the weights of ITU-R 601 for three channels, the mean for any other number."""
    if pictures.shape[1] != 3:
        return pictures.mean(dim=1, keepdim=True)
    red, green, blue = pictures.split(1, dim=1)
    return 0.299 * red + 0.587 * green + 0.114 * blue


def smooth(pictures: Tensor) -> Tensor:
    """Each pixel 5/13 of itself and 1/13 of each of its eight neighbours; the outermost stay as they are."""
    if min(pictures.shape[-2:]) < 3:
        return pictures
    inner = F.avg_pool2d(pictures, 3, stride=1) * 9 / 13 + pictures[..., 1:-1, 1:-1] * 4 / 13
    out = pictures.clone()
    out[..., 1:-1, 1:-1] = inner
    return out


def equalise(values: Tensor) -> Tensor:
    """Whole values 0 … 255 → a map that spreads each channel's histogram evenly, as Pillow's ImageOps.equalize."""
    flat = values.flatten(2).flatten(0, 1).long()  # (b·c, pixels)
    histogram = torch.zeros(len(flat), 256, dtype=torch.long, device=values.device)
    histogram.scatter_add_(1, flat, torch.ones_like(flat))
    last = histogram.gather(1, flat.amax(dim=1, keepdim=True))  # pixels of the lightest value, which stay so
    step = (flat.shape[1] - last) // 255
    before = histogram.cumsum(dim=1) - histogram
    table = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=values.device))
    return table.gather(1, flat).view(values.shape).to(values.dtype)
