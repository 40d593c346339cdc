"""Objectives: each gives a loss; none loops."""

from vitlab.objectives.supervised import Objective, Supervised

__all__ = ["Objective", "Supervised"]
