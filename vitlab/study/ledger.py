"""Who runs which trial: every task has exactly one trial that is done, running or waiting, whatever is killed.

A task is a slot, and its trials are attempts. A WAITING one is taken by turning it to RUNNING, which a storage lets
only one worker do; a running one whose counter no longer rises is marked FAIL, and the slot is enqueued again. Nothing
here depends on a clock that two machines share, nor on a worker that ends well.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState, create_trial

from vitlab.study.plan import MOST, Task
from vitlab.study.space import Choices, Dimension
from vitlab.study.store import Kept, answered, readable

TRIES = 5  # times that a trial may be lost with its worker before it is given up
DRAWS = 50  # points that a search draws for one trial before it gives up: some build no model
LIVE = (TrialState.WAITING, TrialState.RUNNING)
# Why a trial is closed as FAIL: its settings do not work; they build no model, and others are to be drawn; its worker
# was lost, or asked to stop; another has its slot.
Fate = Literal["failed", "unfit", "lost", "stopped", "duplicate"]
State = Literal["complete", "pruned", "failed", "running", "waiting", "missing"]
ENDS: Mapping[TrialState, State] = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}


@dataclass(frozen=True)
class Slot:
    """One task of the plan, and all attempts at it, oldest first."""

    number: int
    task: Task
    attempts: tuple[FrozenTrial, ...]

    @property
    def lost(self) -> int:
        return len(self.closed("lost"))

    def closed(self, why: Fate) -> list[FrozenTrial]:
        return [trial for trial in self.attempts if fate(trial) == why]

    @property
    def settled(self) -> FrozenTrial | None:
        """The attempt that ended the task, well or for good."""
        ends = [each for each in self.attempts if each.state in (TrialState.COMPLETE, TrialState.PRUNED)]
        ends += self.closed("failed")
        often: tuple[tuple[Fate, int], ...] = (("lost", TRIES), ("unfit", DRAWS))
        for why, most in often:
            if not ends and len(self.closed(why)) >= most:
                ends = self.closed(why)[-1:]
        return ends[0] if ends else None

    @property
    def live(self) -> list[FrozenTrial]:
        return [trial for trial in self.attempts if trial.state in LIVE]

    @property
    def state(self) -> State:
        if self.settled is not None:
            return ENDS.get(self.settled.state, "failed")
        if any(trial.state == TrialState.RUNNING for trial in self.live):
            return "running"
        return "waiting" if self.live else "missing"

    @property
    def why(self) -> str:
        """Why it failed."""
        if self.settled is None or self.state != "failed":
            return ""
        given = f"its worker was lost {self.lost} times, perhaps for want of memory"
        return str(self.settled.user_attrs.get("why", given))

    def point(self) -> dict[str, str]:
        """The settings, as far as they are known."""
        known = [self.settled] if self.settled is not None else [*self.live, *self.attempts]
        return point_of(known[0]) if known else dict(self.task.point)


def fate(trial: FrozenTrial) -> str | None:
    return trial.user_attrs.get("fate", "lost") if trial.state == TrialState.FAIL else None


def point_of(trial: FrozenTrial) -> dict[str, str]:
    return {name: str(value) for name, value in trial.params.items()}


def distribution(dimension: Dimension) -> BaseDistribution:
    if isinstance(dimension, Choices):
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


@dataclass
class Ledger:
    """One worker's view of a study's trials."""

    kept: Kept
    seen: dict[int, tuple[Any, float]] = field(default_factory=dict)  # a running trial's counter, and since when

    def slots(self) -> list[Slot]:
        attempts: dict[int, list[FrozenTrial]] = {}
        with readable(self.kept.place.shown):
            for trial in answered(lambda: self.kept.study.get_trials(deepcopy=False), self.kept.place.shown):
                attempts.setdefault(trial.user_attrs.get("slot", -1), []).append(trial)
        return [
            Slot(number, task, tuple(attempts.get(number, ()))) for number, task in enumerate(self.kept.plan.tasks())
        ]

    def reconcile(self) -> list[Slot]:
        """Give up running trials that are silent, and enqueue every task that has none; the slots as they were read."""
        slots = self.slots()
        for slot in slots:
            for trial in slot.live:
                if trial.state == TrialState.RUNNING and self.silent(trial):
                    self.close(trial._trial_id, "lost")
            if slot.state == "missing":
                self.enqueue(slot)
        return slots

    def silent(self, trial: FrozenTrial) -> bool:
        """Whether the trial's counter has stood still for the time of grace, by this process's own clock."""
        beat, now = trial.user_attrs.get("beat"), time.monotonic()
        if trial._trial_id not in self.seen or self.seen[trial._trial_id][0] != beat:
            self.seen[trial._trial_id] = (beat, now)
        return now - self.seen[trial._trial_id][1] >= self.kept.plan.grace

    def enqueue(self, slot: Slot) -> None:
        """Another attempt, at the same point where one was sampled already that builds a model."""
        sampled = [trial for trial in slot.attempts if fate(trial) != "unfit"]
        known = max(sampled, key=lambda trial: len(trial.params), default=None)
        params: Mapping[str, Any] = slot.task.point if known is None else known.params
        choices = {each.name: distribution(each) for each in self.kept.plan.space if each.name in params}
        waiting = create_trial(
            state=TrialState.WAITING,
            params=dict(params),
            distributions=choices,
            user_attrs={"slot": slot.number, "try": slot.lost + 1},
        )
        answered(lambda: self.kept.storage.create_new_trial(self.kept.number, waiting))

    def take(self, slots: Sequence[Slot]) -> tuple[Slot, optuna.Trial] | None:
        """A waiting trial that is now this worker's, its point sampled; none, if none of these waits any more."""
        for slot in slots:
            for trial in slot.live:
                if trial.state == TrialState.WAITING and self.claim(trial._trial_id):
                    again = self.slots()[slot.number]
                    if again.settled is not None or again.live[0]._trial_id != trial._trial_id:
                        self.close(trial._trial_id, "duplicate")  # the oldest attempt that lives has the slot
                        continue
                    return again, answered(lambda: self.sample(trial._trial_id, again))  # noqa: B023 (called at once)
        return None

    def claim(self, trial: int) -> bool:
        try:
            return answered(lambda: self.kept.storage.set_trial_state_values(trial, TrialState.RUNNING))
        except UpdateFinishedTrialError:
            return False

    def sample(self, number: int, slot: Slot) -> optuna.Trial:
        """The trial with a value for every setting; those that it has already, it keeps.

        Each slot has draws of its own, anew after each that was unfit: one worker tries the same points again, also
        after a stop, and two do not try one point twice.
        """
        kept, study = self.kept, self.kept.study
        if not kept.plan.grid:
            seed = (MOST * (kept.plan.base.seed + 1_000_003 * len(slot.closed("unfit"))) + slot.number) % 2**32
            sampler = optuna.samplers.TPESampler(constant_liar=True, seed=seed)
            # Opened anew, since a study remembers the trials that it saw when it first drew, and learns of no others.
            study = optuna.load_study(
                study_name=kept.plan.name, storage=kept.storage, sampler=sampler, pruner=study.pruner
            )
        trial = optuna.Trial(study, number)
        for dimension in self.kept.plan.space:
            choices = distribution(dimension)
            if isinstance(choices, CategoricalDistribution):
                trial.suggest_categorical(dimension.name, choices.choices)
            elif isinstance(choices, IntDistribution):
                trial.suggest_int(dimension.name, choices.low, choices.high, log=choices.log)
            elif isinstance(choices, FloatDistribution):
                trial.suggest_float(dimension.name, choices.low, choices.high, log=choices.log)
        return trial

    def close(self, trial: int, fate: Fate, why: str = "") -> bool:
        """End a trial without a value; false, if it had ended already."""
        notes = {"fate": fate} | ({"why": why} if why else {})
        return self._finish(trial, TrialState.FAIL, notes, None)

    def complete(self, trial: int, runs: Sequence[Mapping[str, Any]], values: Sequence[float]) -> bool:
        return self._finish(trial, TrialState.COMPLETE, {"runs": runs}, values)

    def prune(self, trial: int, runs: Sequence[Mapping[str, Any]], value: float) -> bool:
        return self._finish(trial, TrialState.PRUNED, {"runs": runs}, [value])

    def _finish(self, trial: int, state: TrialState, notes: Mapping[str, Any], values: Sequence[float] | None) -> bool:
        storage = self.kept.storage
        try:
            for name, value in notes.items():
                answered(lambda: storage.set_trial_user_attr(trial, name, value))  # noqa: B023 (called at once)
            answered(lambda: storage.set_trial_state_values(trial, state, values))
        except UpdateFinishedTrialError:
            return False
        return True

    @contextmanager
    def beating(self, trial: int) -> Iterator[threading.Event]:
        """Raise the trial's counter while it runs; the event says that it was closed by another, or is no more."""
        ended, overtaken = threading.Event(), threading.Event()
        storage = self.kept.storage

        def beat() -> None:
            count = 0
            while not ended.is_set():
                count += 1
                try:
                    storage.set_trial_user_attr(trial, "beat", count)
                except (UpdateFinishedTrialError, KeyError):
                    overtaken.set()
                    return
                except Exception:
                    pass
                ended.wait(self.kept.plan.grace / 6)

        heart = threading.Thread(target=beat, daemon=True)
        heart.start()
        try:
            yield overtaken
        finally:
            ended.set()
            heart.join(timeout=10)
