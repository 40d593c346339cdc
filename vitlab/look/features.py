"""What features say of pictures: which of them are alike, and a map on which alike pictures lie together."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

PERPLEXITY = 30.0  # how many neighbours a point of the map attends to, about
LEAST = 5  # points below which there is nothing to lay out
EARLY, STEPS = 100, 400  # steps with exaggerated attraction, and all
EXAGGERATION = 12.0


def alike(bank: Tensor, asked: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` rows of `bank` whose features lie nearest to each of `asked`: cosines and places, nearest first."""
    near, places = (F.normalize(asked, dim=-1) @ F.normalize(bank, dim=-1).mT).topk(min(count, len(bank)), dim=-1)
    return near, places


def affinities(features: Tensor, perplexity: float) -> Tensor:
    """p(j|i) ∝ exp(−β_i |f_i − f_j|²) in float64, with β_i such that 2^entropy of each row is the perplexity."""
    features = features.double()
    squares = torch.cdist(features, features).square()
    squares.fill_diagonal_(math.inf)
    squares -= squares.amin(dim=1, keepdim=True)  # the same shares, and no row that is all zeros
    low, high = (torch.full((len(features), 1), bound, dtype=torch.float64) for bound in (-60.0, 60.0))
    for _ in range(40):  # halving an interval of log β
        middle = (low + high) / 2
        shares = (-middle.exp() * squares).softmax(dim=1)
        wide = torch.special.entr(shares).sum(dim=1, keepdim=True) > math.log(perplexity)
        low, high = torch.where(wide, middle, low), torch.where(wide, high, middle)
    return shares


def tsne(features: Tensor, perplexity: float = PERPLEXITY) -> Tensor:
    """Places (n, 2) at which near points are those with like features (n, d) (van der Maaten & Hinton, 2008).

    Exact, from the first two principal components, without chance: min Σ p log(p / q), q ∝ 1 / (1 + |y_i − y_j|²).
    """
    count = len(features)
    if count < LEAST:
        return features.new_zeros(count, 2)
    units = F.normalize(features.double(), dim=-1)
    shares = affinities(units, min(perplexity, (count - 1) / 3))
    wanted = ((shares + shares.mT) / (2 * count)).float()
    exaggerated, places = EXAGGERATION * wanted, principal(units).float()
    speed, gains = torch.zeros_like(places), torch.ones_like(places)
    rate = max(count / EXAGGERATION / 4, 50.0)
    for step in range(STEPS):
        early = step < EARLY
        slope = gradient(places, exaggerated if early else wanted)
        gains = torch.where(slope * speed < 0, gains + 0.2, gains * 0.8).clamp(min=0.01)
        speed = (0.5 if early else 0.8) * speed - rate * gains * slope
        places = places + speed
    return places - places.mean(dim=0)


def gradient(places: Tensor, wanted: Tensor) -> Tensor:
    """4 Σ_j (p_ij − q_ij) (y_i − y_j) / (1 + |y_i − y_j|²)."""
    lengths = places.square().sum(dim=1)
    near = torch.addmm(lengths + 1, places, places.mT, alpha=-2).add_(lengths[:, None]).clamp_(min=1).reciprocal_()
    near.fill_diagonal_(0)
    force = torch.sub(wanted, near, alpha=1 / float(near.sum())).mul_(near)
    pulled = force @ F.pad(places, (0, 1), value=1.0)
    return 4 * (places * pulled[:, 2:] - pulled[:, :2])


def principal(points: Tensor) -> Tensor:
    """The first two principal components, tiny and with a fixed sign."""
    centred = points - points.mean(dim=0)
    if centred.shape[1] < 2:
        centred = F.pad(centred, (0, 2 - centred.shape[1]))
    _, axes = torch.linalg.eigh(centred.mT @ centred)
    axes = axes[:, -2:].flip(1)
    axes = axes * axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)).sign()
    found = centred @ axes
    return 1e-4 * found / found[:, 0].std().clamp(min=1e-12)
