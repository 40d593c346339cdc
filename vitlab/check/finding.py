"""What a probe is, and what it finds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from vitlab.check.subject import Subject

Verdict = Literal["fine", "mistake", "warning", "unknown"]


@dataclass(frozen=True)
class Picture:
    """Evidence to look at: numbers on the picture's grid, or pixels themselves."""

    title: str
    rows: tuple[tuple[float, ...], ...]
    kind: Literal["map", "picture", "bars"] = "map"  # weights from 0, pixels of any range, or one row of bars


@dataclass(frozen=True)
class Finding:
    """The answer to a probe's question: what was measured, what it means, what it costs and how to mend it."""

    verdict: Verdict
    measured: str
    meaning: str = ""
    cost: str = ""
    remedy: str = ""
    evidence: tuple[Picture, ...] = ()


def fine(measured: str, *evidence: Picture) -> Finding:
    return Finding("fine", measured, evidence=evidence)


def unknown(why: str) -> Finding:
    """The probe could not answer; this is never counted as a pass."""
    return Finding("unknown", why)


def ends_the_program(measured: str) -> Finding:
    return Finding(
        "mistake",
        measured,
        "The model ends or crashes the program that uses it.",
        "Nothing after it is run.",
        "Raise an exception instead of calling exit; look at native code and at recursion.",
    )


@dataclass(frozen=True)
class Probe:
    """One question to a model, asked from outside."""

    name: str
    question: str
    threshold: str  # where the line is drawn, and why there
    ask: Callable[[Subject], Finding]
    of_batches: bool = False  # asked of the loaders, where there are any


@dataclass(frozen=True)
class Asked:
    """A probe's answer with the time it took."""

    finding: Finding
    seconds: float


@dataclass(frozen=True)
class Report:
    """All answers about one model; `trouble` says why there are none."""

    target: str
    model: str = ""  # its class
    shape: tuple[int, ...] = ()  # channels, height, width
    classes: int = 0
    weights: int = 0
    asked: Mapping[str, Asked] = field(default_factory=dict)
    trouble: str = ""

    def named(self, verdict: Verdict) -> dict[str, Finding]:
        return {name: asked.finding for name, asked in self.asked.items() if asked.finding.verdict == verdict}

    @property
    def healthy(self) -> bool:
        """No mistake was found, and there was a model to look at; warnings and open questions are allowed."""
        return not self.trouble and not self.named("mistake")

    @property
    def seconds(self) -> float:
        return sum(asked.seconds for asked in self.asked.values())
