"""What a map measures: how far a head looks, how widely it spreads, how alike tokens are."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.model import Shape
from vitlab.model.layout import Layout


def distances(layout: Layout, shape: Shape) -> Tensor:
    """(patches, patches): how far the centres of two patches lie apart, in pixels."""
    centres = []
    for grid in layout.grids:
        y = (torch.arange(grid.rows) + 0.5) * (shape.height / grid.rows)
        x = (torch.arange(grid.columns) + 0.5) * (shape.width / grid.columns)
        centres.append(torch.cartesian_prod(y, x))
    places = torch.cat(centres)
    return torch.cdist(places, places)


def distance(weights: Tensor, apart: Tensor) -> Tensor:
    """(b, h, n, n) → (b, h): Σⱼ |Aᵢⱼ|·dᵢⱼ / Σⱼ |Aᵢⱼ| over patches j, averaged over patches i (as ViT's figure 11)."""
    patches = len(apart)
    among = weights[..., -patches:, -patches:].abs()
    return ((among * apart).sum(-1) / among.sum(-1).clamp(min=1e-30)).mean(-1)


def entropy(weights: Tensor) -> Tensor:
    """(b, h, n, n) → (b, h): −Σⱼ pᵢⱼ log₂ pᵢⱼ in bits, p = |A| / Σ|A|, averaged over the tokens i that look."""
    shares = weights.abs() / weights.abs().sum(-1, keepdim=True).clamp(min=1e-30)
    return -torch.special.xlogy(shares, shares).sum(-1).mean(-1) / torch.log(torch.tensor(2.0))


def similarity(tokens: Tensor, looking: Tensor) -> Tensor:
    """(b, n, d), (b, n) → (b, n): the cosine of each token with the one that looks (or the mean of those that do)."""
    return F.cosine_similarity(tokens, looking.to(tokens)[:, None] @ tokens, dim=-1)


def alikeness(tokens: Tensor) -> Tensor:
    """(b, p, d) → (b,): the mean cosine over pairs of patches; near 1, the patches say all the same."""
    count = tokens.shape[1]
    summed = F.normalize(tokens, dim=-1).sum(dim=1)
    return (summed.square().sum(-1) - count) / max(count * (count - 1), 1)
