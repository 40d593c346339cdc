"""Two trained models on the same test pictures: the exact McNemar test, and the difference with its interval."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Literal

from vitlab.engine.evaluation import Evaluation
from vitlab.report import words

LEVEL = 0.95
CAVEAT = (
    "A paired test on the same pictures says whether these two trained models differ, not whether their settings do: "
    "that takes several seeds of each."
)


@dataclass(frozen=True)
class Paired:
    """The pictures by which of two models is right on them."""

    both: int
    gained: int  # only the second is right
    lost: int  # only the first is right
    neither: int
    differing: int  # the answers are not the same, whoever is right
    among: int = 1  # comparisons that are made at once

    @property
    def count(self) -> int:
        return self.both + self.gained + self.lost + self.neither

    @property
    def difference(self) -> float:
        """The second's accuracy less the first's."""
        return (self.gained - self.lost) / self.count

    @cached_property
    def p_value(self) -> float:
        """Two-sided exact McNemar test, no mid-p: min(1, 2·P(X ≤ min(gained, lost))), X ~ Bin(gained + lost, ½)."""
        flips = self.gained + self.lost
        ways, total = 1, 0  # C(flips, k), and their sum so far: whole numbers, so nothing is rounded
        for k in range(min(self.gained, self.lost) + 1):
            total += ways
            ways = ways * (flips - k) // (k + 1)
        return min(1.0, 2 * total / 2**flips)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """95 % score interval of the difference (Tango, 1998): every Δ that `score` does not refuse."""
        bound = NormalDist().inv_cdf((1 + LEVEL) / 2)
        low = _crossing(lambda delta: self.score(delta) - bound, -1.0, self.difference)
        high = _crossing(lambda delta: self.score(delta) + bound, self.difference, 1.0)
        return low, high

    def score(self, delta: float) -> float:
        """z(Δ) = (b − c − nΔ) / √(n(2q + Δ(1 − Δ))), q the likeliest share of `lost` if the difference is Δ.

        q = (√(B² − 4AC) − B) / 2A, A = 2n, B = −b − c + (2n − b + c)Δ, C = −cΔ(1 − Δ) (Tango, 1998).
        """
        b, c, n = self.gained, self.lost, self.count
        first, second, third = 2 * n, -b - c + (2 * n - b + c) * delta, -c * delta * (1 - delta)
        share = (math.sqrt(max(second**2 - 4 * first * third, 0.0)) - second) / (2 * first)
        variance = n * (2 * share + delta * (1 - delta))
        off = b - c - n * delta
        return off / math.sqrt(variance) if variance > 1e-15 * n else math.copysign(math.inf, off) if off else 0.0

    @property
    def sign(self) -> Literal[-1, 0, 1]:
        """1 or −1 where test and interval agree that the second is better or worse, else 0.

        Of several comparisons one may seem clear by chance, so the test of each is as much stricter (Bonferroni).
        """
        return 0 if self.p_value >= (1 - LEVEL) / self.among else self.alone

    @property
    def alone(self) -> Literal[-1, 0, 1]:
        """The sign, were it the only comparison."""
        low, high = self.interval
        if low <= 0 <= high or self.p_value >= 1 - LEVEL:
            return 0
        return 1 if low > 0 else -1


def pair(first: Evaluation, second: Evaluation, among: int = 1) -> Paired:
    """Count the same pictures by who reads them right; `among` so many comparisons."""
    one, two = first.guesses == first.labels, second.guesses == second.labels
    both, gained, lost = (int(kind.sum()) for kind in (one & two, ~one & two, one & ~two))
    differing = int((first.guesses != second.guesses).sum())
    return Paired(both, gained, lost, first.count - both - gained - lost, differing, among)


def sentence(found: Paired, first: str, second: str) -> str:
    """What the comparison says, of models with these names."""
    if not found.differing:
        return f"{second} gives the same answer as {first} to each of the {words.grouped(found.count)} pictures."
    low, high = (points(bound) for bound in found.interval)
    level = f"95{words.NARROW_SPACE}% interval"
    verdict = {
        0: f"the two cannot be told apart on these {words.grouped(found.count)} pictures",
        1: f"{second} is better than {first} on these pictures",
        -1: f"{second} is worse than {first} on these pictures",
    }[found.sign]
    if found.alone and not found.sign:
        verdict = f"one of {found.among} comparisons may show as much by chance, so the two are not told apart"
    return (
        f"{second} is right on {_pictures(found.gained)} that {first} gets wrong and wrong on "
        f"{words.grouped(found.lost)} that {first} gets right: {points(found.difference)} points "
        f"({level} {low} to {high}), p{words.NARROW_SPACE}{probability(found.p_value)}; {verdict}."
    )


def points(share: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    text = f"{100 * share:+.2f}".replace("-", "−")
    return "0.00" if text in ("+0.00", "−0.00") else text


def probability(value: float) -> str:
    """A p-value after its sign, on one line: "= 0.012", "< 0.001"."""
    if value < 0.001:
        return f"<{words.NARROW_SPACE}0.001"
    return f"={words.NARROW_SPACE}{value:.3f}" if value < 0.1 else f"={words.NARROW_SPACE}{value:.2f}"


def _pictures(count: int) -> str:
    return f"{words.grouped(count)} picture{'s' * (count != 1)}"


def _crossing(falling: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that falls from low to high passes 0, by halving; the end that is nearer where it does not."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2
