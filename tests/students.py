"""Students and teachers for tests: a small one of each, and batches of views for them."""

from typing import Any

import torch
from kinds import SHAPE, build, small_vit, some_pictures
from torch import Tensor

from vitlab.chance import Chance
from vitlab.model import Shape
from vitlab.objectives import Dino
from vitlab.objectives.dino import Distillation

SMALL = {"prototypes": 12, "head_width": 16, "bottleneck": 8, "small_views": 2}
WORDS = ("objective=dino", "prototypes=24", "head_width=32", "bottleneck=8", "small_views=2")


def chance_of(*key: int) -> Chance:
    chance = Chance(torch.device("cpu"))
    chance.start(*key)
    return chance


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learner_of(model: Any = None, shape: Shape = SHAPE, **settings: Any) -> Distillation:
    """With a teacher and a centre of its own, as after some steps."""
    learner = Dino(**SMALL | settings).build(build(model or small_vit(), shape))
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in [*learner.teacher.parameters(), *learner.head.parameters(), *learner.teacher_head.parameters()]:
            weight.add_(torch.randn_like(weight) * 0.1)
        learner.centre.normal_(std=0.1)  # of no prototypes, nothing
    return learner.train()


def batch_of(learner: Distillation, count: int = 5, seed: int = 0, done: float = 1.0) -> tuple[Tensor, ...]:
    pictures = some_pictures(count, learner.network.shape)
    return learner.batch(pictures, torch.zeros(count), lambda given: given, chance_of(seed), done)
