"""Figures over seeds: means and differences with their 95 % intervals, the rows of a table, verdicts on claims."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from statistics import NormalDist, fmean, stdev
from typing import Any, Literal

from vitlab.reproduce.plan import Claim, Reproduction, Variant

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
        """s, the standard deviation over seeds; one seed has none."""
        return stdev(self.values) if self.count > 1 else None

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


def difference(first: Sample, second: Sample) -> Difference:
    """Welch's x̄₁ − x̄₂ ± t(ν) · √(v₁ + v₂), v = s² / n, ν = (v₁ + v₂)² / (v₁² / (n₁ − 1) + v₂² / (n₂ − 1))."""
    value = first.mean - second.mean
    if first.deviation is None or second.deviation is None:
        return Difference(value, None)
    one, two = first.deviation**2 / first.count, second.deviation**2 / second.count
    if one + two == 0:
        return Difference(value, 0.0)
    share = one / (one + two)  # ν in shares, so that tiny variances do not vanish when squared
    freedom = 1 / (share**2 / (first.count - 1) + (1 - share) ** 2 / (second.count - 1))
    return Difference(value, student(freedom) * math.sqrt(one + two))


@cache
def student(freedom: float) -> float:
    """t with P(|T| ≤ t) = LEVEL, for T of Student's distribution with these degrees of freedom (at least 1)."""
    normal = NormalDist().inv_cdf((1 + LEVEL) / 2)
    if freedom > 1e7:
        return normal
    low, high = normal, 13.0  # t falls from 12.71 at one degree of freedom to the normal's 1.96
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < LEVEL else (low, middle)
    return high


def _inside(bound: float, freedom: float) -> float:
    """P(|T| ≤ t) = 2 Γ((ν + 1) / 2) / (√π Γ(ν / 2)) · ∫ cos^(ν − 1) θ dθ over 0 … arctan(t / √ν), by Simpson's rule."""
    step = math.atan(bound / math.sqrt(freedom)) / PANELS
    heights = [math.cos(index * step) ** (freedom - 1) for index in range(PANELS + 1)]
    integral = step / 3 * (heights[0] + heights[-1] + 4 * sum(heights[1::2]) + 2 * sum(heights[2:-1:2]))
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    return 2 * scale * integral


@dataclass(frozen=True)
class Row:
    """One variant of a record: what the report says of it and what was measured here."""

    variant: Variant
    accuracy: Sample  # on the test part
    train_accuracy: Sample
    base: str  # the first variant of its group, with which it is compared
    difference: Difference | None  # to the base; none for the base itself, nor while the base has not been run
    settings: tuple[str, ...]  # as they were given to the runs
    parameters: int
    count: int  # test pictures
    epochs: int
    together: int  # runs that shared the device while these trained
    seconds: float  # of training, all seeds: their part of the device's time
    compile_seconds: float
    device: str
    date: str
    versions: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.variant.name

    @property
    def group(self) -> str:
        return self.variant.group

    @property
    def reported(self) -> float | None:
        return self.variant.reported


def table(reproduction: Reproduction, record: Mapping[str, Any]) -> list[Row]:
    """The variants that have been run, in the plan's order; `missing` names the others."""
    entries = {(entry["group"], entry["name"]): entry for entry in record["variants"] if entry["runs"]}
    samples = {key: Sample(tuple(run["test_accuracy"] for run in entry["runs"])) for key, entry in entries.items()}
    bases: dict[str, str] = {}
    rows = []
    for variant in reproduction.variants:
        base = bases.setdefault(variant.group, variant.name)
        key = variant.group, variant.name
        if key not in entries:
            continue
        entry, against = entries[key], samples.get((variant.group, base))
        runs, together = entry["runs"], entry["together"]
        rows.append(
            Row(
                variant,
                samples[key],
                Sample(tuple(run["train_accuracy"] for run in runs)),
                base=base,
                difference=difference(samples[key], against) if against and variant.name != base else None,
                settings=tuple(entry["settings"]),
                parameters=runs[0]["parameters"],
                count=runs[0]["count"],
                epochs=runs[0]["epochs"],
                together=together,
                seconds=sum(run["train_seconds"] for run in runs) / together,
                compile_seconds=sum(run["compile_seconds"] for run in runs) / together,
                device=entry["device"],
                date=entry["date"][:10],
                versions=entry["versions"],
            )
        )
    return rows


def missing(reproduction: Reproduction, rows: list[Row]) -> list[Variant]:
    """The plan's variants without a row."""
    done = {row.variant for row in rows}
    return [variant for variant in reproduction.variants if variant not in done]


@dataclass(frozen=True)
class Verdict:
    """What the seeds say to a claim, and the difference between `better` and each of `worse` that has been run."""

    claim: Claim
    word: Literal["confirmed", "refuted", "not settled by these seeds", "not run yet"]
    differences: Mapping[str, Difference]


def verdict(claim: Claim, rows: list[Row]) -> Verdict:
    """Confirmed by a clear lead over every `worse`, refuted by one that is clearly ahead, else not settled."""
    samples = {row.name: row.accuracy for row in rows if row.group == claim.group}
    if claim.better not in samples:
        return Verdict(claim, "not run yet", {})
    found = {name: difference(samples[claim.better], samples[name]) for name in claim.worse if name in samples}
    signs = [measured.sign for measured in found.values()]
    if -1 in signs:
        return Verdict(claim, "refuted", found)
    if len(found) < len(claim.worse):
        return Verdict(claim, "not run yet", found)
    return Verdict(claim, "not settled by these seeds" if 0 in signs else "confirmed", found)
