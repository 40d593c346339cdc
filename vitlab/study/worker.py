"""A worker: takes a trial, trains its runs, writes down what they gave, and goes on until none is left."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from typing import Any, NoReturn

import optuna
import torch
from optuna.exceptions import UpdateFinishedTrialError

from vitlab import interrupt
from vitlab.engine.loop import Stopped
from vitlab.engine.progress import Progress
from vitlab.engine.run import InUse, Run
from vitlab.engine.storage import write_json
from vitlab.errors import BadInput, shorten
from vitlab.given import Loaded, check_that_it_builds
from vitlab.lab import train_in
from vitlab.study.ledger import Fate, Ledger, Slot, point_of
from vitlab.study.plan import Plan
from vitlab.study.space import called
from vitlab.study.store import Kept, Unreachable, answered

PAUSE = 1.0  # seconds between two looks at what other workers do


class Pruned(Exception):
    """The trial falls behind the others; its run says so and stays where it is."""


class Overtaken(Exception):
    """Another worker took this trial for lost, and has it now."""


class Watched(Progress):
    """Shows nothing; after an epoch it ends a run whose trial another worker has, or one that falls behind."""

    def __init__(self, run: Run, epochs: int, overtaken: threading.Event, trial: optuna.Trial | None):
        super().__init__(epochs, quiet=True)
        self.run, self.overtaken, self.trial = run, overtaken, trial
        self.told = False

    def epoch(self, line: Mapping[str, Any]) -> None:
        if self.overtaken.is_set():
            raise Overtaken
        if self.trial is None or line["epoch"] == self.epochs:
            return
        for past in [line] if self.told else self.run.metrics():  # at first a resumed run's earlier epochs, too
            answered(partial(self.report, self.trial, past))
        if answered(self.trial.should_prune):
            facts = {name: line[name] for name in ("epoch", "validation_accuracy")}
            note = f"pruned after epoch {facts['epoch']} at {facts['validation_accuracy']:.2%} of held-out pictures"
            write_json(self.run.folder / "pruned.json", {"study": self.trial.study.study_name, "why": note} | facts)
            raise Pruned(note)

    def report(self, trial: optuna.Trial, line: Mapping[str, Any]) -> None:
        try:
            trial.report(line["validation_accuracy"], line["epoch"])
        except UpdateFinishedTrialError:
            raise Overtaken from None
        self.told = True


@dataclass
class Worker:
    """Works through a study in one process."""

    kept: Kept
    runs: Path  # the study's own folder
    device: torch.device
    data: Path | None = None
    tell: Callable[[str], None] = print

    @property
    def plan(self) -> Plan:
        return self.kept.plan

    @cached_property
    def pictures(self) -> Loaded:
        return Loaded(self.data, self.device)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.kept)

    def work(self) -> None:
        """Run trials until every task is settled, waiting for those that others run: they may be lost."""
        self.pictures.of(self.plan.base)  # pictures that are not here are no fault of a trial
        while True:
            slots = self.ledger.reconcile()
            taken = self.ledger.take(slots)
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
        with ledger.beating(number) as overtaken:
            try:
                if why := self.unfit(point):
                    ledger.close(number, "unfit", why)
                    return
                judged = [trial if self.plan.prune != "none" else None] + [None] * (len(seeds) - 1)
                pairs = zip(seeds, judged, strict=True)
                found = [figures(self.train(point, seed, overtaken, judge), seed) for seed, judge in pairs]
                values = {key: fmean(each[key] for each in found) for key in ("accuracy", "seconds", "parameters")}
                values["time"] = values["seconds"]
                told = ledger.complete(number, found, [values[objective] for objective in self.plan.objectives])
                result = f"validation accuracy {values['accuracy']:.2%}, trained in {values['seconds']:.3g} s"
                self.tell(f"{name}: {result if told else 'taken over by another worker'}")
            except Pruned as verdict:
                run = self.run_of(point, seeds[0])
                ledger.prune(number, [figures(run, seeds[0])], run.metrics()[-1]["validation_accuracy"])
                self.tell(f"{name}: {verdict}")
            except Overtaken:
                self.tell(f"{name}: taken over by another worker")
            except (Stopped, KeyboardInterrupt):
                self.stop(number)
            except Unreachable:
                raise
            except (BadInput, RuntimeError, MemoryError) as problem:
                if interrupt.came():  # and code that it met midway made this of it
                    self.stop(number)
                (fate, go_on), why = self.blame(problem), shorten(str(problem) or "out of memory", 200)
                ledger.close(number, fate, why)
                self.tell(f"{name}: failed: {why}")
                if not go_on:
                    raise BadInput(why) from None

    def unfit(self, point: Mapping[str, str]) -> str:
        """Why a point that a search drew builds no model: a width, say, that the heads do not divide."""
        if self.plan.grid:
            return ""  # there it was asked for, and is told as failed
        try:
            experiment = self.plan.experiment(point, 0)
            check_that_it_builds(experiment, self.pictures.of(experiment).card)
        except BadInput as problem:
            return shorten(str(problem), 200)
        return ""

    def stop(self, number: int) -> NoReturn:
        """Hand a trial back."""
        self.ledger.close(number, "stopped")
        raise Stopped("stopped, nothing is lost; go on with the same command") from None

    def blame(self, problem: Exception) -> tuple[Fate, bool]:
        """What becomes of a trial that an exception ended, and whether this worker can go on."""
        if isinstance(problem.__cause__, OSError):  # the disk's fault
            return "stopped", False
        if isinstance(problem, torch.OutOfMemoryError | MemoryError):  # perhaps others took it: try again
            return "lost", True
        if isinstance(problem, RuntimeError) and self.device.type == "cuda":  # this process has lost its GPU
            return "lost", False
        return "failed", True

    def run_of(self, point: Mapping[str, str], seed: int) -> Run:
        return Run(self.runs / self.plan.folder(point, seed))

    def train(self, point: Mapping[str, str], seed: int, overtaken: threading.Event, judge: optuna.Trial | None) -> Run:
        """The finished run of a point and a seed; where another process holds its folder, it is waited for."""
        experiment, run = self.plan.experiment(point, seed), self.run_of(point, seed)
        prepared = self.pictures.of(experiment)
        progress = Watched(run, experiment.training.epochs, overtaken, judge)
        while True:
            try:
                train_in(run.folder, experiment, prepared, self.device, progress=progress)
            except InUse:
                time.sleep(0.5)
            else:
                (run.folder / "pruned.json").unlink(missing_ok=True)  # gone on with after all
                return run


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
