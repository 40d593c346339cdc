"""How a cost grows with a size: fitted exponents, and where one curve crosses another."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vitlab.sample import student

MOST, LEAST = 5, 3  # sizes that a fit takes, the largest ones
FLAT = 1.5  # a cost below so many times that of the smallest size is mostly overhead


@dataclass(frozen=True)
class Fit:
    """cost ≈ factor · size^exponent, by least squares of the logarithms; margin is half of the 95 % interval."""

    exponent: float
    margin: float
    low: int  # the smallest and the largest size that were fitted
    high: int
    flat: bool = False  # overhead hides the growth: the true exponent is not below this one

    def __str__(self) -> str:
        return f"{self.exponent:.2f} ± {self.margin:.2f}"


def fit(costs: Mapping[int, float]) -> Fit | None:
    """The exponent over the largest sizes, without those that cost little more than the smallest; None of too few."""
    largest = sorted(costs)[-MOST:]
    if len(largest) < LEAST:
        return None
    grown = [size for size in largest if costs[size] >= FLAT * costs[min(costs)]]
    flat = len(grown) < LEAST
    sizes = largest if flat else grown
    across, up = [math.log(size) for size in sizes], [math.log(costs[size]) for size in sizes]
    exponent, margin = slope(across, up)
    return Fit(exponent, margin, sizes[0], sizes[-1], flat)


def slope(across: Sequence[float], up: Sequence[float]) -> tuple[float, float]:
    """b = Σ(x − x̄)(y − ȳ) / Σ(x − x̄)² and t(n − 2) · √(Σ residual² / (n − 2) / Σ(x − x̄)²), for n ≥ 3."""
    count = len(across)
    middle, height = sum(across) / count, sum(up) / count
    spread = sum((x - middle) ** 2 for x in across)
    steep = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True)) / spread
    left = sum((y - height - steep * (x - middle)) ** 2 for x, y in zip(across, up, strict=True))
    return steep, student(count - 2) * math.sqrt(left / (count - 2) / spread)


@dataclass(frozen=True)
class Crossing:
    """Where the first curve falls below the second for good: a size, or None with what is true in the whole range."""

    size: float | None
    always: bool = False  # below from the smallest size on
    low: int = 0  # the range that both were measured in
    high: int = 0


def crossing(first: Mapping[int, float], second: Mapping[int, float]) -> Crossing | None:
    """Straight lines between the measured sizes on log-log paper; None where no two sizes are shared."""
    sizes = sorted(first.keys() & second.keys())
    if len(sizes) < 2:
        return None
    lead = {size: math.log(first[size] / second[size]) for size in sizes}  # negative: the first is cheaper
    if lead[sizes[-1]] >= 0:
        return Crossing(None, False, sizes[0], sizes[-1])
    for before, after in reversed(list(pairwise(sizes))):
        if lead[before] >= 0:
            share = lead[before] / (lead[before] - lead[after])
            place = math.exp(math.log(before) + share * math.log(after / before))
            return Crossing(place, False, sizes[0], sizes[-1])
    return Crossing(None, True, sizes[0], sizes[-1])
