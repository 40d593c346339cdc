"""A study on the page: accuracy against cost, and the runs whose models its points open."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.page.engine import Engine, open_engine
from vitlab.report.comparison_cost import duration
from vitlab.study.advice import CAVEAT, Advice, advise, figure, unready
from vitlab.study.command import find
from vitlab.study.results import Point, Results, pareto, read_results
from vitlab.study.space import short

COSTS = ("seconds", "parameters")


@dataclass(frozen=True, eq=False)
class Studio:
    """A study's points; a model is opened when it is asked for."""

    results: Results
    advice: Advice
    folder: Path  # of the study's runs
    data: Path | None

    @cached_property
    def fronts(self) -> dict[str, list[Point]]:
        return {cost: pareto(self.results.points, cost) for cost in COSTS}

    @cached_property
    def order(self) -> list[Point]:
        """The recommended point, those on a front, the others, the most accurate first."""
        ranked = sorted(self.results.points, key=lambda point: -point.accuracy)
        on_front = [point for point in ranked if any(point in front for front in self.fronts.values())]
        return list(dict.fromkeys([self.advice.chosen, *on_front, *ranked]))

    @property
    def best(self) -> list[Point]:
        """The recommended point and those on a front."""
        return [p for p in self.order if p is self.advice.chosen or any(p in front for front in self.fronts.values())]

    @cached_property
    def runs(self) -> dict[str, Run]:
        """By name, the runs of all points that are on this machine, in that order."""
        names = [ran.folder for point in self.order for ran in point.runs]
        runs = [Run(self.folder / name) for name in names]
        return {run.name: run for run in runs if (run.folder / "experiment.json").exists()}

    def open(self, name: str) -> Engine:
        run = self.runs[name]
        try:
            return open_engine(run, name, self.data)
        except BadInput as problem:  # which is read in a browser: no place on this machine's disk
            raise BadInput(str(problem).replace(str(run.folder), name)) from None

    def opened(self, points: Collection[Point]) -> Iterator[Engine]:
        """The model of each point's first run that is here and can be shown."""
        for point in points:
            for ran in point.runs:
                if ran.folder in self.runs:
                    try:
                        yield self.open(ran.folder)
                    except BadInput:  # its figures are shown all the same
                        continue
                    break

    def first(self) -> Engine:
        """The recommended model, or the next that can be shown."""
        for engine in self.opened(self.order):
            return engine
        raise BadInput(f"no run of {self.results.plan.name} that the page can show is in {self.folder}")

    def facts(self, names: Collection[str]) -> dict[str, Any]:
        """What the page shows of the study; `names` are the models that it can open."""
        return {
            "name": self.results.plan.name, "evidence": self.advice.evidence, "caveat": CAVEAT,
            "devices": self.results.devices, "points": [self.point(point, names) for point in self.results.points],
        }  # fmt: skip

    def point(self, point: Point, names: Collection[str]) -> dict[str, Any]:
        return {
            "name": point.name, "settings": {name: short(value) for name, value in point.settings.items()},
            "accuracy": point.accuracy, "margin": self.results.margin(point), "figure": figure(self.results, point),
            "seconds": point.seconds, "time": duration(point.seconds), "parameters": point.parameters,
            "fronts": [cost for cost in COSTS if point in self.fronts[cost]], "chosen": point is self.advice.chosen,
            "runs": [{"seed": ran.seed, "accuracy": ran.accuracy, "model": ran.folder if ran.folder in names else None}
                     for ran in point.runs],
        }  # fmt: skip


def open_studio(study: str, storage: str | None, data: Path | None) -> Studio:
    """The study of that name in runs, or in a folder that is named."""
    path = Path(study)
    folder = path if len(path.parts) > 1 else Path("runs") / path
    kept = find(folder.name, storage, folder.parent)
    results = read_results(kept)
    advice = advise(results)
    if advice is None:
        raise unready(folder.name)
    return Studio(results, advice, folder, data)
