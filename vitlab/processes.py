"""Processes side by side: the cores there are for them, one GPU for several, and Ctrl-C, which reaches them all."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

import torch

MOST = 12  # processes on one GPU; past that, small models gain little and each holds a CUDA context


def cores() -> int:
    """The cores this process may use: fewer than the machine has under taskset, under SLURM or in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_noted = threading.Event()


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
    signal.signal(signal.SIGINT, lambda kind, frame: _noted.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=end_with_parent, daemon=True).start()


def interrupt_noted() -> bool:
    return _noted.is_set()


def end_with_parent() -> None:
    """A parent that was killed sends no more work; what is under way can be gone on with from its checkpoint."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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
    return max(min(MOST, cores() - 2), 1) if shared else 1
