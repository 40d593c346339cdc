"""Pictures read anew at moved places, all of a batch at once."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.chance import uniform


def resample(
    pictures: Tensor,
    rows: list[Tensor],
    beyond: Literal["zeros", "border"] = "zeros",
    *,
    moved: Tensor | None = None,
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Read each picture (b, c, y, x) where its matrix says, bilinear, with zeros beyond the edge or the edge itself.

    The two rows, each (3, b), give x and y in grid_sample's axes, which run from −1 to 1 on both sides; `moved`
    (b, 2, y, x) is added to each pixel's x and y. The result has the same size, or `size`.
    """
    matrices = torch.stack(rows).permute(2, 0, 1).to(pictures.dtype)
    wanted = [*pictures.shape[:2], *(size or pictures.shape[2:])]
    places = F.affine_grid(matrices, wanted, align_corners=False)
    if moved is not None:
        places = places + moved.permute(0, 2, 3, 1)
    return F.grid_sample(pictures, places, mode="bilinear", padding_mode=beyond, align_corners=False)


def cuts(
    pictures: Tensor, low: float, high: float, generator: torch.Generator, size: tuple[int, int] | None = None
) -> Tensor:
    """A part of each picture, `low` to `high` of its area and sides in a ratio of 3:4 to 4:3, at its size or `size`."""
    drawn = uniform(generator, 4, len(pictures), batch=1)
    area = low + (high - low) * drawn[0]
    ratio = ((drawn[1] * 2 - 1) * math.log(4 / 3)).exp().clamp(area, 1 / area)  # no side longer than the picture's
    half = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()])  # of height and width
    centre = (1 - half) * (drawn[2:] * 2 - 1)
    nothing = torch.zeros_like(area)
    rows = [torch.stack([half[1], nothing, centre[1]]), torch.stack([nothing, half[0], centre[0]])]
    return resample(pictures, rows, beyond="border", size=size)
