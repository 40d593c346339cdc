"""Timing by turns: a machine's speed drifts, so contenders are compared within a round, never across rounds."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

Call = Callable[[], object]
Name = TypeVar("Name")


@dataclass(frozen=True)
class Timing:
    """Seconds per call, one figure per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        return min(self.seconds)

    def ratio(self, base: "Timing") -> float:
        """How many times slower than `base`: the median of the rounds' own ratios, which drift leaves alone."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.seconds, base.seconds, strict=True))


def take_turns(calls: Mapping[str, Call], rounds: int, repeats: int, device: torch.device) -> dict[str, Timing]:
    """Time every call `repeats` times in each round."""
    for call in calls.values():
        call()  # first calls build caches and optimiser state
    gc.collect()
    gc.disable()  # a collection would fall on whoever is running
    try:
        return by_turns({name: partial(burst, call, repeats, device) for name, call in calls.items()}, rounds)
    finally:
        gc.enable()


def by_turns(timed: Mapping[Name, Callable[[], float]], rounds: int) -> dict[Name, Timing]:
    """Ask each for its seconds once a round, in an order that moves on by one from round to round."""
    names = list(timed)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            seconds[name].append(timed[name]())
    return {name: Timing(tuple(values)) for name, values in seconds.items()}


def burst(call: Call, repeats: int, device: torch.device) -> float:
    """Seconds per call."""
    if repeats > 1:
        call()  # short calls depend on the caches, which hold another contender's weights
    wait(device)
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    wait(device)
    return (time.perf_counter() - started) / repeats


class Neighbours:
    """What other programs, and other guests of the same machine, do meanwhile."""

    def __init__(self) -> None:
        self.start, self.before = time.monotonic(), machine_seconds()

    def cores(self, own: float) -> float:
        """How many cores they kept busy since the start, in which we used so many seconds; 0 where nobody counts."""
        return max(machine_seconds() - self.before - own, 0.0) / max(time.monotonic() - self.start, 1e-9)


def machine_seconds() -> float:
    """Seconds that all cores were at work, or withheld from this guest, since the system started."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _, _, hard, soft, stolen, *_ = map(int, path.read_text().splitlines()[0].split()[1:])
    return (user + nice + system + hard + soft + stolen) / os.sysconf("SC_CLK_TCK")


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
