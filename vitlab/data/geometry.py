"""Pictures read anew at moved places, all of a batch at once."""

import torch
import torch.nn.functional as F
from torch import Tensor


def resample(pictures: Tensor, rows: list[Tensor]) -> Tensor:
    """Read each picture (b, c, y, x) where its matrix says, bilinear, with zeros beyond the edge.

    The two rows, each (3, b), give x and y in grid_sample's axes, which run from −1 to 1 on both sides.
    """
    matrices = torch.stack(rows).permute(2, 0, 1).to(pictures.dtype)
    places = F.affine_grid(matrices, list(pictures.shape), align_corners=False)
    return F.grid_sample(pictures, places, mode="bilinear", padding_mode="zeros", align_corners=False)
