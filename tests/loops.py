"""One small run, begun, trained, stopped and gone on with: what the tests of training share."""

from functools import cache
from pathlib import Path

import pytest
import torch

from vitlab import Experiment, Run, override
from vitlab.data.dataset import Part
from vitlab.data.prepared import Prepared
from vitlab.engine.loop import Loop, Stopped
from vitlab.engine.progress import Progress
from vitlab.lab import begin_or_continue, load_data

SMALL = ("epochs=2", "data.limit=64", "batch=16", "validation=0.01", "patch=7", "width=16", "depth=2")
"""Overrides that make a default experiment train in 8 steps: AdamW, nothing augmented, float32 on the CPU."""


def small(*words: str) -> Experiment:
    return override(Experiment(), [*SMALL, *words])


@cache
def pictures_of(experiment: Experiment, tested: int | None = None) -> Prepared:
    """The experiment's data, with only the first pictures of its test part where that is enough."""
    data = load_data(experiment, None)
    test = Part(data.test.pictures[:tested], data.test.labels[:tested])
    return Prepared(data.card, data.train, data.validation, test)


def loop_of(experiment: Experiment, folder: Path, device: str = "cpu", tested: int | None = None) -> Loop:
    """The loop of a run in FOLDER, which is begun or as it was left."""
    data, where = pictures_of(experiment, tested), torch.device(device)
    run = begin_or_continue(folder, experiment, data.card, where)
    return Loop(run, experiment, data, where, Progress(experiment.training.epochs, quiet=True))


def trained(experiment: Experiment, folder: Path, device: str = "cpu", tested: int | None = None) -> Run:
    """The finished run, its checkpoint gone."""
    loop = loop_of(experiment, folder, device, tested)
    loop.train()
    loop.run.checkpoint.unlink(missing_ok=True)
    return loop.run


def stop_after(steps: int, loop: Loop) -> None:
    """Train, and ask to stop after this many steps; only the checkpoint and the metrics are left."""
    answers = iter([False] * (steps - 1) + [True])

    def go_on() -> None:
        while True:
            loop.train_epoch(lambda: next(answers))

    with pytest.raises(Stopped, match=f"after step {steps} of"):
        go_on()
