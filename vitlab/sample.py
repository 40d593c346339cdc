"""Accuracies over seeds: means and differences with their 95 % intervals."""

import math
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist, fmean, stdev
from typing import Literal

LEVEL = 0.95  # of every interval
PANELS = 400  # of Simpson's rule; the error is far below the last digit shown


@dataclass(frozen=True)
class Sample:
    """One accuracy per seed: x̄ ± t(n − 1) · s / √n."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError("a sample needs at least one value")

    @property
    def count(self) -> int:
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        return fmean(self.values)

    @cached_property
    def deviation(self) -> float | None:
        """s, the standard deviation over seeds; one seed has none, and of values that are no numbers it is none."""
        if self.count < 2:
            return None
        return stdev(self.values) if all(map(math.isfinite, self.values)) else math.nan

    @cached_property
    def margin(self) -> float | None:
        """Half the width of the mean's interval; one seed has none."""
        return None if self.deviation is None else student(self.count - 1) * self.deviation / math.sqrt(self.count)

    @cached_property
    def margin_of_one_more(self) -> float | None:
        """Half the width of the interval for one more run: t(n − 1) · s · √(1 + 1 / n)."""
        if self.deviation is None:
            return None
        return student(self.count - 1) * self.deviation * math.sqrt(1 + 1 / self.count)


@dataclass(frozen=True)
class Difference:
    """The mean of one sample less that of another, with half the width of its interval where both have a spread."""

    value: float
    margin: float | None

    @property
    def sign(self) -> Literal[-1, 0, 1]:
        """1 or −1 where the whole interval lies on one side of 0, else 0: no clear difference."""
        if self.margin is None or abs(self.value) <= self.margin:
            return 0
        return 1 if self.value > 0 else -1


def difference(first: Sample, second: Sample, level: float = LEVEL) -> Difference:
    """Welch's x̄₁ − x̄₂ ± t(ν) · √(v₁ + v₂), v = s² / n, ν = (v₁ + v₂)² / (v₁² / (n₁ − 1) + v₂² / (n₂ − 1))."""
    value = first.mean - second.mean
    if first.deviation is None or second.deviation is None:
        return Difference(value, None)
    one, two = first.deviation**2 / first.count, second.deviation**2 / second.count
    if one + two == 0:
        return Difference(value, 0.0)
    share = one / (one + two)  # ν in shares, so that tiny variances do not vanish when squared
    freedom = 1 / (share**2 / (first.count - 1) + (1 - share) ** 2 / (second.count - 1))
    return Difference(value, student(freedom, level) * math.sqrt(one + two))


@cache
def student(freedom: float, level: float = LEVEL) -> float:
    """t with P(|T| ≤ t) = level, for T of Student's distribution with these degrees of freedom (at least 1)."""
    low = NormalDist().inv_cdf((1 + level) / 2)
    if freedom > 1e7:
        return low
    high = 2 * low  # t falls to the normal's as the degrees of freedom grow
    while _inside(high, freedom) < level:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < level else (low, middle)
    return high


def of_several(count: int) -> float:
    """The level of each of `count` intervals at which all of them hold at once (Bonferroni)."""
    return 1 - (1 - LEVEL) / max(count, 1)


def of_pairs(count: int) -> float:
    """The same for the intervals of all pairs of `count` means."""
    return of_several(count * (count - 1) // 2)


def _inside(bound: float, freedom: float) -> float:
    """P(|T| ≤ t) = 2 Γ((ν + 1) / 2) / (√π Γ(ν / 2)) · ∫ cos^(ν − 1) θ dθ over 0 … arctan(t / √ν), by Simpson's rule."""
    step = math.atan(bound / math.sqrt(freedom)) / PANELS
    heights = [math.cos(index * step) ** (freedom - 1) for index in range(PANELS + 1)]
    integral = step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]))
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 2 * scale * integral
