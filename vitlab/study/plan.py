"""What a study is: an experiment, a space, how many seeds, and what is sought; kept with the trials."""

import hashlib
import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from vitlab.errors import BadInput, choose
from vitlab.experiment import Experiment
from vitlab.objectives import Supervised
from vitlab.settings import from_json, override, to_json
from vitlab.study.space import Choices, Dimension, assignments, read_space

Direction = Literal["maximize", "minimize"]
OBJECTIVES: Mapping[str, Direction] = {"accuracy": "maximize", "time": "minimize", "parameters": "minimize"}
PRUNERS = ("median", "hyperband", "none")
MOST = 10_000  # trials of one study
SEARCHED = 20  # trials of a search, unless --trials says otherwise


@dataclass(frozen=True)
class Task:
    """One trial to be: a point, empty where it is yet to be sampled, and the seeds to train it with."""

    point: Mapping[str, str]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """All that workers must agree on.

    In a grid each point and seed is a trial of its own. In a search a trial is a point, which it trains with every
    seed, one after another: its value is their mean, and it is pruned by the first seed's epochs.
    """

    name: str
    base: Experiment
    space: tuple[Dimension, ...]
    seeds: int = 1
    trials: int | None = None  # of a search; none: a grid
    objectives: tuple[str, ...] = ("accuracy",)
    prune: str = "none"
    grace: float = 30.0  # seconds without a sign of life after which a running trial is taken for lost

    def __post_init__(self) -> None:
        check_name(self.name)
        for name, least in (("seeds", 1), ("trials", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadInput(f"{name} must be {least} or more, not {value}")
        if not 0 < self.grace < math.inf:
            raise BadInput(f"grace must be more than 0 seconds, not {self.grace:g}")
        for name in self.objectives:
            choose(name, OBJECTIVES, "objective")
        if "accuracy" not in self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise BadInput("the objectives are accuracy, and time and parameters beside it, each named once")
        choose(self.prune, PRUNERS, "way to prune")
        if self.prune != "none" and (self.grid or self.objectives != ("accuracy",)):
            raise BadInput(
                f"prune={self.prune} needs a search for accuracy alone: a grid trains every point to its end, and "
                "several objectives do not say which trial falls behind"
            )
        if self.count > MOST:
            raise BadInput(f"{self.count:,} trials are too many for one study ({MOST:,}): search with --trials")
        check_judged(self.base)

    @property
    def grid(self) -> bool:
        return self.trials is None

    @property
    def names(self) -> list[str]:
        return [dimension.name for dimension in self.space]

    @property
    def count(self) -> int:
        if self.trials is not None:
            return self.trials
        return math.prod(len(each.values) for each in self.space if isinstance(each, Choices)) * self.seeds

    def points(self) -> list[dict[str, str]]:
        """Every point of the grid, the last setting changing fastest."""
        values = [each.values for each in self.space if isinstance(each, Choices)]
        return [dict(zip(self.names, chosen, strict=True)) for chosen in itertools.product(*values)]

    def tasks(self) -> list[Task]:
        """The trials: every point with the first seed, then with the second …; or as many open ones as are sought."""
        if self.trials is None:
            return [Task(point, (seed,)) for seed in range(self.seeds) for point in self.points()]
        return [Task({}, tuple(range(self.seeds)))] * self.trials

    def experiment(self, point: Mapping[str, str], seed: int) -> Experiment:
        return replace(override(self.base, assignments(point)), seed=self.base.seed + seed)

    def folder(self, point: Mapping[str, str], seed: int) -> str:
        """A run's folder, named by its settings; what a name cannot hold is told apart by a digest."""
        words = "-".join(f"{name}-{value}" for name, value in point.items())
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", words)
        if slug != words or len(slug) > 120:
            slug = f"{slug[:100]}-{hashlib.sha256(words.encode()).hexdigest()[:8]}"
        return f"{slug}-seed{self.base.seed + seed}"

    def to_json(self) -> dict[str, Any]:
        return {
            "base": to_json(self.base), "space": " ".join(map(str, self.space)), "seeds": self.seeds,
            "trials": self.trials, "objectives": list(self.objectives), "prune": self.prune, "grace": self.grace,
        }  # fmt: skip


def plan_of(name: str, given: Mapping[str, Any]) -> Plan:
    """The plan that `to_json` wrote."""
    where = f"the study {name}"
    try:
        base = from_json(Experiment, given["base"], where)
        rest = {key: given[key] for key in ("seeds", "trials", "prune", "grace")}
        return Plan(name, base, read_space(given["space"], base), objectives=tuple(given["objectives"]), **rest)
    except (KeyError, TypeError) as error:
        raise BadInput(f"{where} is damaged, or of another version: it lacks {error}") from None


def new_plan(name: str, base: Experiment, space: str, trials: int | None, prune: str, **more: Any) -> Plan:
    """A plan as the command line gives it: ranges, and a number of trials, make it a search; searches are pruned."""
    dimensions = read_space(space, base)
    searched = trials is not None or not all(isinstance(each, Choices) for each in dimensions)
    if prune == "auto":
        prune = "median" if searched and more.get("objectives", ("accuracy",)) == ("accuracy",) else "none"
    count = SEARCHED if searched and trials is None else trials
    return Plan(name, base, dimensions, trials=count, prune=prune, **more)


def check_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name):
        raise BadInput(f"'{name[:120]}' is no name for a study: use up to 100 letters, digits, - and _")


def check_judged(base: Experiment) -> None:
    """Settings are chosen by held-out pictures, never by the test part: there must be some, and labels."""
    if base.data.validation <= 0:
        raise BadInput(
            "this recipe holds no pictures out (validation=0), and settings are not chosen on the test part: "
            "add for example validation=0.1"
        )
    if not isinstance(base.objective, Supervised):
        raise BadInput(
            "a study compares accuracies of runs that learn from labels: give a recipe with objective=supervised"
        )
    if base.training.epochs < 1:
        raise BadInput("a study needs at least one epoch: with epochs=0 nothing is measured")
