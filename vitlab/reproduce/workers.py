"""Many small runs on one device: processes side by side, each taking the next run from one list."""

import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import torch

from vitlab.engine.run import Run, holding
from vitlab.engine.seen import learned_by
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.given import Loaded
from vitlab.lab import train_in
from vitlab.model import Shape, ViT
from vitlab.model.tokens import ResizedPatches
from vitlab.processes import cores, interrupt_noted, interrupts_held, note_interrupts
from vitlab.transfer.fit import fit
from vitlab.transfer.sources import from_run


@dataclass(frozen=True)
class Task:
    """One run: what to train, where, and from which run's weights on."""

    folder: Path
    experiment: Experiment
    data: Path | None
    device: str
    first: Path | None = None


@cache
def pictures_in(folder: Path | None, device: str) -> Loaded:
    return Loaded(folder, torch.device(device))


def work(task: Task) -> None:
    """Train one run in this process; the pictures stay on the device for the next run that wants them."""
    device, pictures = torch.device(task.device), pictures_in(task.data, task.device).of(task.experiment)
    train = partial(train_in, task.folder, task.experiment, quiet=True)
    if task.first is None:
        train(pictures, device)
        return
    card, model = pictures.card, task.experiment.model
    assert isinstance(model, ViT)
    shape, known = Shape(card.channels, card.height, card.width), from_run(Run(task.first))
    if isinstance(model.tokens, ResizedPatches):
        fitted = fit(known, shape, "resize")
    else:
        fitted = fit(known, shape, "adapt", getattr(model.tokens, "patch", None))
    with holding(fitted.tensors, task.first.name, learned_by(known.own)) as start:
        train(pictures, device, start=start)


def work_through(
    tasks: Sequence[Task], workers: int, done: Callable[[Task], None], go_on: Callable[[], bool]
) -> list[Task]:
    """Train every task, calling `done` after each, until `go_on` says no; returns those that were not begun."""
    left = list(tasks)
    if workers == 1:
        while left and go_on():
            work(left[0])
            done(left.pop(0))
        return left
    os.environ.setdefault("OMP_NUM_THREADS", str(max(cores() // workers, 1)))
    running: dict[Future[None], Task] = {}
    with ProcessPoolExecutor(workers, get_context("spawn"), note_interrupts) as pool:
        while running or (left and go_on()):
            while left and len(running) < workers and go_on():
                task = left.pop(0)
                with interrupts_held():
                    running[pool.submit(work_unless_interrupted, task)] = task
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                task = running.pop(future)
                try:
                    future.result()
                except BrokenProcessPool:
                    raise BadInput(
                        "a worker was killed, perhaps for want of memory; nothing is lost: go on with fewer --workers"
                    ) from None
                done(task)
    return left


def work_unless_interrupted(task: Task) -> None:
    """Within a run Ctrl-C is answered at once, by the loop or by Python itself."""
    noted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if interrupt_noted():
            raise KeyboardInterrupt
        work(task)
    finally:
        signal.signal(signal.SIGINT, noted)
