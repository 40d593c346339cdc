"""vitlab's own loop, made ready to be timed step by step or epoch by epoch."""

from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import torch

from vitlab.bench.measure import Call
from vitlab.bench.settings import Setting, training_of
from vitlab.data.augment import Augment
from vitlab.data.dataset import DataSet, Part
from vitlab.data.prepared import Prepared, describe
from vitlab.engine.loop import Loop
from vitlab.engine.progress import Progress
from vitlab.engine.run import claim_run
from vitlab.engine.team import ALONE, Team
from vitlab.experiment import Experiment
from vitlab.model import ViT

EPOCHS = 100_000  # more than will be run, so that no round ends in the run's last checkpoint


@dataclass(frozen=True)
class Trained:
    """What a loop is to train: a model on the training part of a data set."""

    model: ViT
    data: DataSet
    batch: int
    augment: Augment = field(default_factory=Augment)

    def experiment(self, setting: Setting) -> Experiment:
        """The whole configuration."""
        return Experiment(model=self.model, augment=self.augment, training=training_of(self.batch, setting, EPOCHS))

    def loop(self, setting: Setting, folder: Path, device: torch.device, team: Team = ALONE) -> Loop:
        """The loop before its first step, compiled where the setting says so."""
        experiment, data = self.experiment(setting), self.data
        nothing = Part(data.train.pictures[:0], data.train.labels[:0])
        prepared = Prepared(describe(data, data.train, nothing), data.train, nothing, data.test)
        return loop_in(folder, experiment, prepared, device, team)


def loop_in(folder: Path, experiment: Experiment, data: Prepared, device: torch.device, team: Team = ALONE) -> Loop:
    """A new run's loop before its first step, compiled where the experiment says so."""
    run = claim_run(folder, "run", exact=False)
    run.begin(experiment, data.card, device)
    loop = Loop(run, experiment, data, device, Progress(experiment.training.epochs, quiet=True), team=team)
    if experiment.training.compile:
        loop.compile()
    loop.forward = team.wrap(loop.forward, loop.session.learner.labelled)
    return loop


def step_call(loop: Loop) -> Call:
    """One whole step on the next batch, or on this process's part of it: gather, augment, normalise, learn, count."""
    order = torch.randperm(len(loop.data.train)).to(loop.device)
    batches = cycle(chosen[loop.own] for chosen in order.split(loop.batch) if len(chosen) == loop.batch)
    return lambda: loop.train_step(next(batches))


def epoch_call(loop: Loop) -> Call:
    """From wherever the loop stands to the end of its epoch; the first call, which is not timed, may be a short one."""
    return lambda: loop.train_epoch(never)


def never() -> bool:
    """Nobody asks a benchmark to stop and save."""
    return False


def parameters_of(loop: Loop) -> int:
    return sum(parameter.numel() for parameter in loop.session.learner.network.parameters())
