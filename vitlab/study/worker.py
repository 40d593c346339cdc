"""A worker: takes a trial, trains its runs, writes down what they gave, and goes on until none is left."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError

from vitlab.data.prepared import Data, Prepared
from vitlab.engine.loop import Stopped
from vitlab.engine.progress import Progress
from vitlab.engine.run import InUse, Run
from vitlab.engine.storage import write_json
from vitlab.errors import BadInput, shorten
from vitlab.experiment import Experiment
from vitlab.lab import load_data, train_in
from vitlab.study.ledger import Ledger, Slot, point_of
from vitlab.study.plan import Plan
from vitlab.study.space import called
from vitlab.study.store import Kept, Unreachable, answered

PAUSE = 1.0  # seconds between two looks at what other workers do


class Pruned(Exception):
    """The trial falls behind the others; its run says so and stays where it is."""


class Overtaken(Exception):
    """Another worker took this trial for lost, and has it now."""


class Watched(Progress):
    """Shows nothing, and hands every epoch's metrics on."""

    def __init__(self, epochs: int, watch: Callable[[Mapping[str, Any]], None]):
        super().__init__(epochs, quiet=True)
        self.watch = watch

    def epoch(self, line: Mapping[str, Any]) -> None:
        self.watch(line)


@dataclass
class Worker:
    """Works through a study in one process."""

    kept: Kept
    runs: Path  # the study's own folder
    device: torch.device
    data: Path | None = None
    tell: Callable[[str], None] = print
    pictures: dict[Data, Prepared] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.kept.plan

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.kept)

    def work(self) -> None:
        """Run trials until every task is settled, waiting for those that others run: they may be lost."""
        self.prepared(self.plan.base)  # pictures that are not here are no fault of a trial
        while True:
            slots = self.ledger.reconcile()
            taken = self.ledger.take()
            if taken is not None:
                self.run(*taken)
            elif all(slot.settled is not None for slot in slots):
                return
            else:
                time.sleep(min(PAUSE, self.plan.grace / 6))

    def run(self, slot: Slot, trial: optuna.Trial) -> None:
        """Train a trial, and close it whatever happens; only what is wrong with this place ends the worker."""
        point, number = point_of(answered(lambda: self.kept.storage.get_trial(trial._trial_id))), trial._trial_id
        seeds, ledger = slot.task.seeds, self.ledger
        name = called(point) + (f", seed {seeds[0]}" if len(seeds) == 1 and self.plan.seeds > 1 else "")
        found: list[dict[str, Any]] = []
        with ledger.beating(number) as overtaken:
            try:
                for seed in seeds:
                    watch = self.watcher(trial, overtaken.is_set, judge=seed == seeds[0])
                    found.append(figures(self.train(point, seed, watch), seed))
            except Pruned as verdict:
                run = self.run_of(point, seeds[0])
                ledger.prune(number, [figures(run, seeds[0])], run.metrics()[-1]["validation_accuracy"])
                self.tell(f"{name}: {verdict}")
                return
            except Overtaken:
                self.tell(f"{name}: taken over by another worker")
                return
            except (Stopped, KeyboardInterrupt):
                ledger.close(number, "stopped")
                raise Stopped("stopped, nothing is lost; go on with the same command") from None
            except Unreachable:
                raise
            except (BadInput, RuntimeError, MemoryError) as problem:
                if isinstance(problem.__cause__, OSError):  # the disk's fault, not the settings'
                    ledger.close(number, "stopped")
                    raise
                why = shorten(str(problem) or "out of memory", 200)
                ledger.close(number, "failed", why)
                self.tell(f"{name}: failed: {why}")
                return
            values = {key: fmean(each[key] for each in found) for key in ("accuracy", "seconds", "parameters")}
            values["time"] = values["seconds"]
            told = ledger.complete(number, found, [values[objective] for objective in self.plan.objectives])
        result = f"{values['accuracy']:.2%} of held-out pictures, {values['seconds']:.3g} s of training"
        self.tell(f"{name}: {result if told else 'taken over by another worker'}")

    def run_of(self, point: Mapping[str, str], seed: int) -> Run:
        return Run(self.runs / self.plan.folder(point, seed))

    def train(self, point: Mapping[str, str], seed: int, watch: Callable[[Run], Callable[..., None]]) -> Run:
        """The finished run of a point and a seed; where another process holds its folder, it is waited for."""
        experiment, run = self.plan.experiment(point, seed), self.run_of(point, seed)
        prepared = self.prepared(experiment)
        progress = Watched(experiment.training.epochs, watch(run))
        while True:
            try:
                train_in(run.folder, experiment, prepared, self.device, progress=progress)
            except InUse:
                time.sleep(0.5)
            else:
                (run.folder / "pruned.json").unlink(missing_ok=True)  # gone on with after all
                return run

    def prepared(self, experiment: Experiment) -> Prepared:
        """The pictures, on the device for the next run that wants them."""
        if experiment.data not in self.pictures:
            self.pictures[experiment.data] = load_data(experiment, self.data).on(self.device)
        return self.pictures[experiment.data]

    def watcher(
        self, trial: optuna.Trial, overtaken: Callable[[], bool], judge: bool
    ) -> Callable[[Run], Callable[..., None]]:
        """What is done after each epoch of a run: stop if another worker has the trial, or if it falls behind."""

        def of(run: Run) -> Callable[..., None]:
            told: set[int] = set()

            def watch(line: Mapping[str, Any]) -> None:
                if overtaken():
                    raise Overtaken
                if not judge or self.plan.prune == "none":
                    return
                for past in run.metrics():  # a resumed run's earlier epochs, too
                    if past["epoch"] not in told:
                        answered(lambda: self.report(trial, past))  # noqa: B023 (called at once)
                        told.add(past["epoch"])
                last = line["epoch"] == self.plan.base.training.epochs
                if not last and answered(trial.should_prune):
                    note = (
                        f"pruned after epoch {line['epoch']} at {line['validation_accuracy']:.2%} of held-out pictures"
                    )
                    facts = {key: line[key] for key in ("epoch", "validation_accuracy")}
                    write_json(run.folder / "pruned.json", {"study": self.plan.name, "why": note} | facts)
                    raise Pruned(note)

            return watch

        return of

    def report(self, trial: optuna.Trial, line: Mapping[str, Any]) -> None:
        try:
            trial.report(line["validation_accuracy"], line["epoch"])
        except UpdateFinishedTrialError:
            raise Overtaken from None


def figures(run: Run, seed: int) -> dict[str, Any]:
    """What a study keeps of one run: its accuracy on held-out pictures, its cost and its curve.

    The accuracy on the test part is kept as well, for the one that is chosen; nothing is chosen by it.
    """
    curve = [
        (line["epoch"], line["seconds"], line["validation_accuracy"])
        for line in run.metrics()
        if "validation_accuracy" in line
    ]
    if not curve:
        raise BadInput("no picture was held out, so there is no figure to compare: use a larger validation or limit")
    result = run.result if run.finished else {}
    where = run.environment
    return {
        "seed": seed,
        "folder": run.name,
        "accuracy": curve[-1][2],
        "seconds": result.get("train_seconds", curve[-1][1]),
        "parameters": result.get("parameters", sum(weight.numel() for weight in run.build().parameters())),
        "test_accuracy": result.get("test_accuracy"),
        "device": where["device"],
        "threads": where["threads"],
        "curve": curve,
    }
