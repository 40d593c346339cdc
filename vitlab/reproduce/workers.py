"""Many small runs on one device: processes side by side, each taking the next run from one list."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context, parent_process
from pathlib import Path

import torch

from vitlab.data.prepared import Data, Prepared
from vitlab.engine.run import Run, holding
from vitlab.engine.seen import learned_by
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.given import load_data
from vitlab.lab import train_in
from vitlab.model import Shape, ViT
from vitlab.model.tokens import ResizedPatches
from vitlab.transfer.fit import fit
from vitlab.transfer.sources import from_run

MOST = 12  # processes on one GPU; past that, small models gain little and each holds a CUDA context


@dataclass(frozen=True)
class Task:
    """One run: what to train, where, and from which run's weights on."""

    folder: Path
    experiment: Experiment
    data: Path | None
    device: str
    first: Path | None = None


_pictures: dict[tuple[Data, Path | None, str], Prepared] = {}


def work(task: Task) -> None:
    """Train one run in this process; the pictures stay on the device for the next run that wants them."""
    device, key = torch.device(task.device), (task.experiment.data, task.data, task.device)
    if key not in _pictures:
        _pictures[key] = load_data(task.experiment, task.data).on(device)
    pictures, train = _pictures[key], partial(train_in, task.folder, task.experiment, quiet=True)
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
    os.environ.setdefault("OMP_NUM_THREADS", str(max((os.cpu_count() or 1) // workers, 1)))
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


_interrupted = threading.Event()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits; a process that starts meanwhile holds it back too, until it is ready to answer it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def note_interrupts() -> None:
    """Ctrl-C reaches every process: a worker between two runs remembers it, and begins no further run."""
    signal.signal(signal.SIGINT, lambda kind, frame: _interrupted.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """A parent that was killed sends no more work; what is under way can be gone on with from its checkpoint."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def work_unless_interrupted(task: Task) -> None:
    """Within a run Ctrl-C is answered at once, by the loop or by Python itself."""
    noted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        work(task)
    finally:
        signal.signal(signal.SIGINT, noted)


@contextmanager
def shared_gpu(device: torch.device) -> Iterator[bool]:
    """NVIDIA's Multi-Process Service for as long as it lasts, so that kernels of several processes run at once.

    Without it a GPU gives its processes turns, and small models side by side are no faster than one after the other.
    """
    control = shutil.which("nvidia-cuda-mps-control") if device.type == "cuda" else None
    if control is None or "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield control is not None
        return
    with tempfile.TemporaryDirectory(prefix="mps", ignore_cleanup_errors=True) as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        started = subprocess.run([control, "-d"], env=os.environ | places, capture_output=True, check=False)
        if started.returncode:
            yield False
            return
        os.environ.update(places)
        try:
            yield True
        finally:
            subprocess.run([control], input=b"quit", env=dict(os.environ), capture_output=True, check=False)
            for name in places:
                del os.environ[name]


def choose_workers(shared: bool) -> int:
    """How many at once: as many as the cores feed on a GPU that is shared; else one, which uses what there is."""
    return max(min(MOST, (os.cpu_count() or 1) - 2), 1) if shared else 1
