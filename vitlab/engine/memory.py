"""Memory: the peak of a training run, on a GPU what its tensors took, on a CPU what the process took; too little."""

import ctypes
import platform
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

OWN = Path("/proc/self")
FORGET_PEAK = "5"  # what clear_refs must be told to set the peak back to what is used now (man 5 proc)
GLIBC = platform.libc_ver()[0] == "glibc"
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt (man 3 mallopt)


def is_short(error: Exception) -> bool:
    """Whether an error means that there is too little memory; torch has no kind of its own for that of a CPU."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def begin(device: torch.device) -> None:
    """Forget the peak so far, where the system allows it, so that a second run in the process has its own."""
    if device.type == "cuda":
        torch.cuda.init()  # there is no peak to forget before the GPU is in use, and torch refuses to
        torch.cuda.reset_peak_memory_stats(device)
        return
    give_back()
    with suppress(OSError):
        (OWN / "clear_refs").write_text(FORGET_PEAK)


def keep_freed() -> None:
    """Let glibc keep what is freed for the next step: to fetch every page anew took up to a tenth of a step."""
    if GLIBC:
        library = ctypes.CDLL(None)
        library.mallopt(TRIM_THRESHOLD, 2**30)
        library.mallopt(MMAP_THRESHOLD, 2**25)


def give_back() -> None:
    """Give the system what glibc kept of an earlier run, so that it does not count as this one's."""
    if GLIBC:
        ctypes.CDLL(None).malloc_trim(0)


def peak(device: torch.device) -> int:
    """The most bytes in use at once since `begin`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        for line in (OWN / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of the process's whole life
    return used if sys.platform == "darwin" else used * 1024
