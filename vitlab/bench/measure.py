"""Timing by turns: a machine's speed drifts, so contenders are compared within a round, never across rounds."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Call = Callable[[], object]


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
    """Time every call `repeats` times in each round, in an order that moves on by one from round to round."""
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for call in calls.values():
        call()  # first calls build caches and optimiser state
    gc.collect()
    gc.disable()  # a collection would fall on whoever is running
    try:
        for turn in range(rounds):
            start = turn % len(names)
            for name in names[start:] + names[:start]:
                seconds[name].append(burst(calls[name], repeats, device))
    finally:
        gc.enable()
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


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
