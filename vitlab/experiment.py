"""The whole configuration of a run, on one screen."""

from dataclasses import dataclass, field
from typing import Literal

from vitlab.data.augment import Augment
from vitlab.data.prepared import Data
from vitlab.engine.optimisers import AdamW, Optimiser, Schedule
from vitlab.engine.tuning import Everything, Tuning
from vitlab.errors import BadInput
from vitlab.model import Model, ViT
from vitlab.objectives import Objective, Supervised


@dataclass(frozen=True)
class Training:
    """How long, in what steps, and with what arithmetic to train."""

    epochs: int = 10  # times through the training part
    batch: int = 128  # pictures a step; the last, partial batch of an epoch is left for the next shuffle
    clip: float = 1.0  # longest gradient, as a norm over all weights; 0: no clipping
    ema: float = 0.0  # EMA decay of the weights, which are then evaluated; at step t at most (1+t)/(10+t); 0: no EMA
    precision: Literal["auto", "float32", "tf32", "bfloat16"] = "auto"  # auto: bfloat16 on a GPU, else float32
    compile: bool = False  # torch.compile: 10 to 70 s at the start, then faster steps, most of all on a CPU in bfloat16
    graph: bool = False  # on a GPU, record a step once and replay it: small models train several times faster
    measure: int = 1  # epochs between two measurements of loss and validation accuracy
    checkpoint: float = 30.0  # seconds between checkpoints; 0: after every step
    optimiser: Optimiser = field(default_factory=AdamW)  # how the weights move
    schedule: Schedule = field(default_factory=Schedule)  # how the learning rate rises and falls
    tuning: Tuning = field(default_factory=Everything)  # which weights move, for a run that starts from another's

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0), ("batch", 1), ("clip", 0), ("checkpoint", 0), ("measure", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"{name} must be {least} or more, not {getattr(self, name)}")
        if not 0 <= self.ema < 1:
            raise BadInput(f"ema is a share from 0 up to 1, not {self.ema}")


@dataclass(frozen=True)
class Testing:
    """How the test part is read. A sound model gives the same figure for any batch, and drops nothing."""

    at_once: int = 500  # pictures read together
    drop_last: bool = False  # leave out the last, partial batch, as report R1 did
    mirror: bool = False  # read each picture with its mirror image as well, for a second figure beside the first

    def __post_init__(self) -> None:
        if self.at_once < 1:
            raise BadInput(f"at_once must be 1 or more, not {self.at_once}")


@dataclass(frozen=True)
class Experiment:
    """Data, model, objective and training: everything a run's result depends on but the device."""

    seed: int = 0  # of the first weights, the order of pictures and every draw; never of the split
    data: Data = field(default_factory=Data)
    augment: Augment = field(default_factory=Augment)
    model: Model = field(default_factory=ViT)  # what is built
    objective: Objective = field(default_factory=Supervised)  # what is minimised
    training: Training = field(default_factory=Training)
    testing: Testing = field(default_factory=Testing)

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise BadInput(f"seed must be 0 or more, not {self.seed}")
