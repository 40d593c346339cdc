"""Runs the reports' experiments and keeps a record of each, variant by variant, so that it can stop and go on."""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from vitlab.engine.loop import Stopped
from vitlab.engine.run import Run
from vitlab.engine.storage import make_folder, read_json, write
from vitlab.errors import BadInput, choose
from vitlab.experiment import Experiment
from vitlab.given import check_same, find_device
from vitlab.processes import choose_workers, shared_gpu
from vitlab.recipes import recipe, reproductions
from vitlab.reproduce.page import write_page
from vitlab.reproduce.plan import Reproduction, Variant
from vitlab.reproduce.workers import Task, work_through
from vitlab.settings import from_json, override, to_json

KEPT = (
    "seed", "test_accuracy", "count", "train_seconds", "compile_seconds", "epochs", "images_per_second", "parameters",
)  # fmt: skip
NEEDED = {"name", "group", "settings", "config", "runs", "together", "device", "date", "versions"}
CURVES = ("epoch", "loss", "accuracy", "validation_loss", "validation_accuracy")


def chosen(wanted: Sequence[str]) -> list[str]:
    """Names of experiments, of reports (r1: all of R1's) or all → the experiments, in the reports' order."""
    known = reproductions()
    reports = {plan.report.lower() for plan in known.values()}
    for name in wanted:
        choose(name.lower(), {"all", *reports, *known}, "experiment")
    words = {name.lower() for name in wanted}
    return [name for name, plan in known.items() if words & {"all", plan.report.lower(), name}]


def settings_of(plan: Reproduction, variant: Variant, small: bool) -> list[str]:
    """The changes to the recipe that make a variant, full or small."""
    return [*plan.small, *variant.settings, *variant.small] if small else list(variant.settings)


def first_of(plan: Reproduction, variant: Variant, small: bool) -> list[str]:
    """The changes that make what is learned before a variant; none where nothing is."""
    if not variant.first:
        return []
    return [*plan.small, *variant.first, *variant.small_first] if small else list(variant.first)


@dataclass(eq=False)
class Job:
    """A variant to train: its experiment, and its run for each seed."""

    name: str
    variant: Variant
    settings: list[str]
    experiment: Experiment
    runs: list[Run]
    first: Experiment | None = None  # what is learned before, anew for each seed
    starts: list[Run] = field(default_factory=list)  # and where

    @property
    def key(self) -> tuple[Experiment, Experiment | None]:
        """Jobs that share it give the same figures."""
        return self.experiment, self.first

    @property
    def finished(self) -> bool:
        """Whether every seed is trained, and with these very settings."""
        finished = [run.finished for run in self.runs]
        if all(finished):
            for seed, run in enumerate(self.runs):
                check_same(run, replace(self.experiment, seed=seed))
        return all(finished)

    def tasks(self, data: Path | None, device: str) -> list[Task]:
        tasks = [
            Task(run.folder, replace(self.experiment, seed=seed), data, device) for seed, run in enumerate(self.runs)
        ]
        if not self.starts:
            return tasks
        return [replace(task, first=start.folder) for task, start in zip(tasks, self.starts, strict=True)]

    def first_tasks(self, data: Path | None, device: str) -> list[Task]:
        """What is still to be learned before."""
        return [
            Task(start.folder, replace(self.first, seed=seed), data, device)
            for seed, start in enumerate(self.starts)
            if self.first is not None and not start.finished
        ]


@dataclass(frozen=True)
class Entry:
    """A variant in a record: its experiment, and all that is written of it."""

    experiment: Experiment
    facts: dict[str, Any]
    first: Experiment | None = None

    @property
    def key(self) -> tuple[Experiment, Experiment | None]:
        return self.experiment, self.first

    @property
    def seeds(self) -> int:
        """How many were trained, each from the first step on: once what is learned before was the same for all."""
        runs = self.facts["runs"]
        return len(runs) if self.first is None else min(len(self.facts["first"].get("runs", [])), len(runs))


@dataclass
class Reproducer:
    """Where the runs, the records and the pictures are, how many seeds to train, and how many runs at once."""

    runs: Path
    records: Path
    small: bool = False
    seeds: int | None = None  # left out: as many as each plan says, one when small
    workers: int | None = None  # left out: chosen by the device
    minutes: float | None = None  # begin no further run after so many
    data: Path | None = None
    device: str = "auto"
    tell: Callable[[str], None] = print
    began: float = field(default_factory=time.monotonic)
    at_once: int = field(default=1, init=False)
    entries: dict[str, dict[tuple[str, str], Entry]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for name in ("seeds", "workers"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise BadInput(f"{name} must be 1 or more, not {getattr(self, name)}")

    def reproduce(self, names: Sequence[str]) -> bool:
        """Train what is missing of these experiments, and write their records and page; whether all is done."""
        make_folder(self.records)
        self.entries = {name: self.read(name) for name in reproductions()}
        where = find_device(self.device)
        with shared_gpu(where) as shared:
            self.at_once = self.workers or choose_workers(shared)
            try:
                return self.train([job for name in names for job in self.jobs(name) if not self.is_kept(job)], where)
            except (Stopped, KeyboardInterrupt):
                raise Stopped("stopped, nothing is lost; go on with the same command") from None
            finally:
                self.write_page()

    def train(self, jobs: list[Job], where: torch.device) -> bool:
        """Train the different experiments among the jobs; those that are the same share their runs."""
        same: dict[tuple[Experiment, Experiment | None], list[Job]] = {}
        for job in jobs:
            if not self.keep_if_trained(job):
                same.setdefault(job.key, []).append(job)
        firsts = {task.folder: task for job, *_ in same.values() for task in job.first_tasks(self.data, where.type)}
        tasks = [task for first, *_ in same.values() for task in first.tasks(self.data, where.type)]
        by_folder = {run.folder: twins for twins in same.values() for run in twins[0].runs}

        def done(task: Task) -> None:
            twins = by_folder[task.folder]
            if all(self.keep_if_trained(job) for job in twins):  # the first has the runs, the others share them
                for job in twins:
                    self.tell(f"{job.name}: {job.variant.title}")

        def go_on() -> bool:
            return self.minutes is None or time.monotonic() - self.began < 60 * self.minutes

        if count := len(tasks) + len(firsts):
            self.tell(f"{count} run{'s' * (count > 1)} to train on {where.type}, {self.at_once} at a time")
        if work_through(list(firsts.values()), self.at_once, lambda task: None, go_on):
            return False
        return not work_through(tasks, self.at_once, done, go_on)

    def jobs(self, name: str) -> list[Job]:
        """Every variant of an experiment."""
        plan, written, found = reproductions()[name], recipe(name), []
        count = self.seeds or (1 if self.small else plan.seeds)
        for variant in plan.variants:
            settings = settings_of(plan, variant, self.small)
            folder = self.runs / name / slug(variant.title)
            runs = [Run(folder / f"seed-{seed}") for seed in range(count)]
            job = Job(name, variant, settings, override(written, settings), runs)
            if before := first_of(plan, variant, self.small):
                job.first = override(written, before)
                folder = self.runs / name / slug(f"first {' '.join(variant.first)}")
                job.starts = [Run(folder / f"seed-{seed}") for seed in range(count)]
            found.append(job)
        return found

    def is_kept(self, job: Job) -> bool:
        """Whether the record holds the variant with at least as many seeds."""
        old = self.entries[job.name].get((job.variant.group, job.variant.name))
        return old is not None and old.key == job.key and old.seeds >= len(job.runs)

    def keep_if_trained(self, job: Job) -> bool:
        """Put a variant into its record from its finished runs, or from those of a variant with the same settings."""
        facts = self.figures(job) if job.finished else self.trained_before(job)
        if facts is None:
            return False
        plan, entries = reproductions()[job.name], self.entries[job.name]
        words = {"name": job.variant.name, "group": job.variant.group, "settings": job.settings}
        entries[job.variant.group, job.variant.name] = Entry(job.experiment, words | facts, job.first)
        command = f"vitlab reproduce {job.name}" + (" --small" if self.small else "")
        order = [(variant.group, variant.name) for variant in plan.variants]
        variants = [entries[key].facts for key in order if key in entries]
        record = {"name": job.name, "command": command, "small": self.small, "variants": variants}
        write(self.path(job.name), readable(record).encode())
        return True

    def figures(self, job: Job) -> dict[str, Any]:
        """What the runs of a variant gave, and where."""
        environment = job.runs[0].environment
        return {
            **{key: environment[key] for key in ("device", "threads", "date", "versions")},
            "together": self.at_once,
            "config": to_json(job.experiment),
            "runs": [run_entry(run) for run in job.runs],
            **self.before(job),
        }

    def before(self, job: Job) -> dict[str, Any]:
        """What was learned first, where something was: its settings, and its figures on its own pictures."""
        if job.first is None:
            return {}
        settings = first_of(reproductions()[job.name], job.variant, self.small)
        figures = [{key: start.result[key] for key in KEPT} for start in job.starts]
        return {"first": {"settings": settings, "config": to_json(job.first), "runs": figures}}

    def trained_before(self, job: Job) -> dict[str, Any] | None:
        """The figures of the same experiment under another name, in any record that is there."""
        for name, entries in self.entries.items():
            for old in entries.values():
                if old.key == job.key and old.seeds == len(job.runs):
                    facts = {key: old.facts[key] for key in old.facts if key not in ("name", "group", "settings")}
                    return {"same_as": f"{name}, {old.facts['name']}"} | facts
        return None

    def read(self, name: str) -> dict[tuple[str, str], Entry]:
        """The variants that a record holds so far."""
        record = self.record(name)
        return {
            (old["group"], old["name"]): Entry(
                from_json(Experiment, old["config"], str(self.path(name))), old,
                from_json(Experiment, old["first"]["config"], str(self.path(name))) if "first" in old else None,
            )
            for old in (record["variants"] if record else [])
        }  # fmt: skip

    def record(self, name: str) -> dict[str, Any] | None:
        path = self.path(name)
        if not path.exists():
            return None
        record = read_json(path)
        if not isinstance(record, dict) or record.get("name") != name or record.get("small") != self.small:
            kind = "small" if self.small else "full"
            raise BadInput(f"{path} is no record of the {kind} {name}: move it away, or choose another --records")
        old = record.get("variants")
        if not isinstance(old, list) or not all(map(is_variant, old)):
            raise BadInput(f"{path} is damaged: move it away, and what is trained is recorded anew from its runs")
        return record

    def path(self, name: str) -> Path:
        return self.records / f"{name}.json"

    @property
    def page(self) -> Path:
        return self.records / "reports.md"

    def write_page(self) -> None:
        """All records that are there, as one page beside them."""
        if any(self.records.glob("*.json")):
            write_page(reproductions(), self.records, self.page)


def is_variant(kept: Any) -> bool:
    """Whether a record's entry has all that is read of it."""
    if not isinstance(kept, dict) or not kept.keys() >= NEEDED:
        return False
    words = (kept["name"], kept["group"], kept["device"], kept["date"])
    runs = kept["runs"] if isinstance(kept["runs"], list) else [None]
    return all(isinstance(word, str) for word in words) and all(
        isinstance(run, dict) and all(type(run.get(key, 0)) in (int, float) for key in KEPT) for run in runs
    )


def slug(words: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^a-z0-9.]+", "-", words.lower().replace("+", "and")).strip("-")


def run_entry(run: Run) -> dict[str, Any]:
    """What a record keeps of one run: its figures and its curve."""
    result, lines = run.result, run.metrics()
    return {
        **{key: result[key] for key in KEPT},
        "train_accuracy": round(lines[-1]["accuracy"], 5) if lines else None,
        "curve": {key: [round(line[key], 5) for line in lines] for key in CURVES if lines and key in lines[0]},
    }


def readable(record: dict[str, Any]) -> str:
    """JSON with a line for each thing, but a curve's numbers side by side."""
    text = json.dumps(record, indent=1, ensure_ascii=False)
    return re.sub(r"\[[-\d.e,\s]+\]", lambda found: " ".join(found[0].split()), text) + "\n"
