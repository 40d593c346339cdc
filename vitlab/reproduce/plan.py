"""What a reproduction is: a report's experiment as written, its variants, and what the report concludes from them."""

from dataclasses import dataclass, replace
from typing import Literal

from vitlab.engine.optimisers import AdamW, Schedule
from vitlab.experiment import Training


@dataclass(frozen=True)
class Variant:
    """One row of a report's table: changes to the recipe, written as on the command line."""

    name: str  # unique in its group, such as "as written"
    settings: tuple[str, ...] = ()
    words: str = ""  # what is changed, for a reader of the table
    reported: float | None = None  # test accuracy that the report gives, 0 … 1
    first: tuple[str, ...] = ()  # changes for what is learned before, whose weights are then carried over
    group: str = ""  # variants are compared with the first of their group
    small: tuple[str, ...] = ()  # further changes of the small version
    small_first: tuple[str, ...] = ()  # the same, for what is learned before

    @property
    def title(self) -> str:
        return f"{self.group}, {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Claim:
    """A conclusion of the report: one variant is better than others."""

    words: str
    better: str
    worse: tuple[str, ...]  # names of variants
    group: str = ""


@dataclass(frozen=True)
class Reproduction:
    """An experiment of a report; the recipe beside it is the experiment as written."""

    report: str  # R0 … R4
    title: str
    reading: str  # what a reader should know of it, in plain words: the mistake, why it matters, what was chosen here
    variants: tuple[Variant, ...]
    claims: tuple[Claim, ...] = ()
    place: int = 0  # among the experiments of its report
    seeds: int = 5
    curve: Literal["accuracy", "loss", "validation_accuracy"] = "accuracy"  # what the chart shows for each epoch
    small: tuple[str, ...] = ()  # changes that make every variant train in seconds on two cores


def plain_training(training: Training, learning_rate: float) -> Training:
    """Training as all five reports do it: Adam at one rate from first to last step, no decay, no clipping."""
    optimiser, schedule = AdamW(learning_rate=learning_rate, weight_decay=0.0), Schedule(warmup=0.0, decay="none")
    return replace(training, clip=0.0, graph=True, optimiser=optimiser, schedule=schedule)
