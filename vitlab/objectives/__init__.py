"""Objectives: each gives a loss; none loops."""

from vitlab.objectives.dino import Dino
from vitlab.objectives.learner import Learner
from vitlab.objectives.mae import Mae
from vitlab.objectives.supervised import Supervised

Objective = Supervised | Mae | Dino

__all__ = ["Dino", "Learner", "Mae", "Objective", "Supervised"]
