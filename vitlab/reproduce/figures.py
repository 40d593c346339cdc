"""Figures of a reproduction: the rows of a table, and verdicts on claims."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vitlab.reproduce.plan import Claim, Reproduction, Variant
from vitlab.sample import Difference, Sample, difference, of_several


@dataclass(frozen=True)
class Row:
    """One variant of a record: what the report says of it and what was measured here."""

    variant: Variant
    accuracy: Sample  # on the test part
    train_accuracy: Sample
    base: str  # the first variant of its group, with which it is compared
    difference: Difference | None  # to the base; none for the base itself, nor while the base has not been run
    settings: tuple[str, ...]  # as they were given to the runs
    first: tuple[str, ...]  # the same, for what was learned before
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
                first=tuple(entry.get("first", {}).get("settings", ())),
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
    """Confirmed by a clear lead over every `worse`, refuted by one that is clearly ahead, else not settled.

    One of several that is ahead by chance is no refutation: these intervals hold all at once. A lead over every one
    needs no such allowance.
    """
    samples = {row.name: row.accuracy for row in rows if row.group == claim.group}
    if claim.better not in samples:
        return Verdict(claim, "not run yet", {})
    found = {name: difference(samples[claim.better], samples[name]) for name in claim.worse if name in samples}
    signs = [measured.sign for measured in found.values()]
    at_once = of_several(len(claim.worse))
    if any(difference(samples[claim.better], samples[name], at_once).sign < 0 for name in found):
        return Verdict(claim, "refuted", found)
    if len(found) < len(claim.worse):
        return Verdict(claim, "not run yet", found)
    return Verdict(claim, "confirmed" if set(signs) == {1} else "not settled by these seeds", found)
