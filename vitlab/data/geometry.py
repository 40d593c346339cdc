"""Pictures read anew at moved places, all of a batch at once."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.chance import uniform


def resample(
    pictures: Tensor, rows: list[Tensor], beyond: Literal["zeros", "border"] = "zeros", moved: Tensor | None = None
) -> Tensor:
    """Read each picture (b, c, y, x) where its matrix says, bilinear, with zeros beyond the edge or the edge itself.

    The two rows, each (3, b), give x and y in grid_sample's axes, which run from −1 to 1 on both sides; `moved`
    (b, 2, y, x) is added to each pixel's x and y.
    """
    matrices = torch.stack(rows).permute(2, 0, 1).to(pictures.dtype)
    places = F.affine_grid(matrices, list(pictures.shape), align_corners=False)
    if moved is not None:
        places = places + moved.permute(0, 2, 3, 1)
    return F.grid_sample(pictures, places, mode="bilinear", padding_mode=beyond, align_corners=False)


def cuts(pictures: Tensor, low: float, high: float, generator: torch.Generator, window: Tensor | None = None) -> Tensor:
    """A part of each picture, of `low` to `high` of its area and sides in a ratio of 3:4 to 4:3, at the whole size.

    `window` (4, b) lays it smaller: the centre's y and x and the half height and width, in grid_sample's axes; what
    then surrounds it is not to be looked at.
    """
    drawn = uniform(generator, 4, len(pictures), batch=1)
    area = low + (high - low) * drawn[0]
    ratio = ((drawn[1] * 2 - 1) * math.log(4 / 3)).exp().clamp(area, 1 / area)  # no side longer than the picture's
    half = torch.stack([(area * ratio).sqrt(), (area / ratio).sqrt()])  # of height and width
    centre = (1 - half) * (drawn[2:] * 2 - 1)
    if window is not None:
        half = half / window[2:]
        centre = centre - half * window[:2]
    nothing = torch.zeros_like(area)
    rows = [torch.stack([half[1], nothing, centre[1]]), torch.stack([nothing, half[0], centre[0]])]
    return resample(pictures, rows, beyond="border")
