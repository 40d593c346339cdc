"""One small run, begun, trained, stopped and gone on with: what the tests of training share."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

import vitlab
from vitlab import Experiment, Run, override
from vitlab.data.dataset import Part
from vitlab.data.prepared import Prepared
from vitlab.engine.loop import Loop, Stopped
from vitlab.engine.progress import Progress
from vitlab.given import load_data
from vitlab.lab import begin

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
    run = Run(folder)
    if not (folder / "experiment.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        begin(run, experiment, data, where)
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


def check_ordinary(run: Run, folder: Path) -> None:
    """A finished run without labels is evaluated and predicts as any other."""
    assert run.finished
    again = vitlab.evaluate(run, device="cpu")
    assert again.count == 2000
    assert again.accuracy == run.result["test_accuracy"] > 0.15
    assert torch.equal(again.logits, run.evaluation.logits)
    assert 0.15 < run.result["knn_accuracy"] < 1
    assert all(0 <= line["knn_accuracy"] <= 1 for line in run.metrics())
    digit = load_data(run.experiment, None).test.pictures[0, 0]
    Image.fromarray(digit.numpy()).save(folder / "digit.png")
    (prediction,) = vitlab.predict(run, [folder / "digit.png"])
    assert prediction.classes[0] == str(int(again.guesses[0]))
    assert sum(prediction.probabilities) == pytest.approx(1, abs=1e-5)


def timeless(folder: Path) -> list[dict[str, Any]]:
    """The metrics without what the clock decides."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "images_per_second")} for line in lines]


def check_resumed(experiment: Experiment, folder: Path) -> tuple[Loop, dict[str, Tensor]]:
    """Stopped in the middle of an epoch it ends in the same bits; the loop of the whole run, and its tensors."""
    loop = loop_of(experiment, folder / "whole", tested=50)
    loop.train()
    stop_after(6, loop_of(experiment, folder / "stopped", tested=50))
    again = loop_of(experiment, folder / "stopped", tested=50)
    again.train()
    whole, resumed = loop.session.tensors(), again.session.tensors()
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert timeless(folder / "stopped") == timeless(folder / "whole")
    assert len(timeless(folder / "whole")) == 2
    return loop, whole
