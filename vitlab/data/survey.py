"""What pictures there are, before they are learned from."""

from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True)
class Survey:
    """How many pictures of which classes and sizes."""

    counts: tuple[int, ...]  # pictures to learn from, or to hold out, of each class
    tests: int  # pictures of a test part of their own
    sizes: Counter[tuple[int, int]]  # height and width
    channels: int
    resized: bool  # whether they can be read at another size

    @property
    def total(self) -> int:
        return sum(self.counts)
