"""How a contender is run: as its users run it, and at the best of the settings that are tried."""

from dataclasses import dataclass
from itertools import product
from typing import Literal

import torch

from vitlab.engine.compiler import compiler_trouble
from vitlab.engine.optimisers import AdamW, Schedule
from vitlab.experiment import Training

Manner = Literal["users", "best"]
MANNERS: dict[str, str] = {"users": "each as its users run it", "best": "each at its best setting"}
Precision = Literal["float32", "bfloat16"]
RATE, DECAY = 1e-3, 0.05
NEVER = 1e9  # seconds between checkpoints: writing one is no part of what is timed


@dataclass(frozen=True)
class Setting:
    """The arithmetic of a step, and how its operations reach the device."""

    precision: Precision = "float32"
    compiled: bool = False
    recorded: bool = False  # the whole step is replayed as a CUDA graph, a library's as the loop's own

    def __str__(self) -> str:
        return f"{self.precision} {'compiled' if self.compiled else 'eager'}{' + CUDA graph' * self.recorded}"


def users_setting(device: torch.device, loop: bool) -> Setting:
    """Libraries run in float32 unless told otherwise; vitlab's loop takes bfloat16 on a GPU by itself."""
    return Setting("bfloat16" if loop and device.type == "cuda" else "float32")


def candidates(device: torch.device, loop: bool) -> tuple[Setting, ...]:
    """What is tried for a contender's best; vitlab's loop can also record a step that is not compiled.

    What is compiled for a GPU is recorded too: whatever was tried both ways was faster so, and each takes a minute.
    """
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    if device.type == "cuda":
        found = [Setting("bfloat16"), Setting("bfloat16", True, True)]
        found += [Setting("bfloat16", False, True)] if loop else []
    else:
        found = [Setting(precision, compiled) for precision, compiled in product(precisions, (False, True))]
    if compiler_trouble(device.type) is not None:
        found = [setting for setting in found if not setting.compiled]
    return tuple(found)


def growth_setting(device: torch.device) -> Setting:
    """How vitlab's loop is run where its growth is measured: on a GPU recorded, else launching would hide the rest."""
    return Setting("bfloat16", recorded=True) if device.type == "cuda" else Setting()


def training_of(batch: int, setting: Setting, epochs: int) -> Training:
    """The one place where a setting becomes vitlab's own."""
    return Training(
        epochs=epochs,
        batch=batch,
        precision=setting.precision,
        compile=setting.compiled,
        graph=setting.recorded,
        checkpoint=NEVER,
        optimiser=AdamW(RATE, DECAY),
        schedule=Schedule(decay="none"),
    )
