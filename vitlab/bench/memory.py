"""Peak memory of one call, above what was in use before it: every byte that torch's allocator hands out."""

import os
from typing import Any

import torch
from torch.autograd.profiler import profile

from vitlab.bench.measure import Call, wait

SILENT = "99"


def peak_bytes(call: Call, device: torch.device) -> int:
    """The most bytes alive at once in a call.

    On a GPU torch counts them itself. On a CPU its profiler notes each block that the allocator gives and takes back,
    those inside a kernel too; their running sum has the peak. Neither depends on what else the machine is doing.
    """
    if device.type == "cuda":
        wait(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    hush_profiler()
    with profile(profile_memory=True) as seen:
        call()
    now = most = 0
    for change in changes(seen):
        now += change
        most = max(most, now)
    return most


def hush_profiler() -> None:
    """Or it talks on stderr."""
    os.environ.setdefault("KINETO_LOG_LEVEL", SILENT)


def changes(seen: Any) -> list[int]:
    """Bytes given (positive) and taken back (negative), in order."""
    events = [event for event in seen.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
