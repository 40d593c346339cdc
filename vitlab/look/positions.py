"""What a model knows of places: the table it adds to its tokens, and how alike it makes two places."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.model import Network
from vitlab.model.layout import Layout
from vitlab.model.positions import Position, Table


@dataclass(frozen=True, eq=False)
class Places:
    """The positions of one stream."""

    layout: Layout
    table: Tensor | None  # (n, d), where positions are added
    similarity: Tensor  # (n, n): cosine of two places

    def among(self, number: int) -> Tensor:
        """(patches, patches): the similarity among the patches of one grid."""
        first = self.layout.extra + sum(grid.tokens for grid in self.layout.grids[:number])
        own = slice(first, first + self.layout.grids[number].tokens)
        return self.similarity[own, own]


def places(network: Network) -> list[Places]:
    """The positions of each stream that has any."""
    found = []
    for module in network.modules():
        position, layout = getattr(module, "positions", None), getattr(module, "layout", None)
        if isinstance(position, Table) and layout is not None:
            table = position.table.detach().cpu().float()
            found.append(Places(layout, table, F.cosine_similarity(table[:, None], table[None], dim=-1)))
        elif isinstance(position, Position) and position.rotation is not None and layout is not None:
            # What turning leaves of the product of a vector with itself, averaged over its pairs: mean cos(θᵢ − θⱼ).
            turned = torch.cat([position.rotation.cosine, position.rotation.sine], dim=1).cpu()
            found.append(Places(layout, None, turned @ turned.T / (turned.shape[1] / 2)))
    return found


def some(count: int, most: int = 16) -> np.ndarray:
    """Rows or columns of a grid that a drawing of all places shows: all, or so many that lie evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
