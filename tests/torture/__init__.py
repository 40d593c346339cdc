"""The whole product under faults, load and bad input: make torture.

Each area is a module with `trials(seed, folder)`: an endless walk, drawn from the seed, that tries something in the
folder, which is its own, and says what came of it. A step takes seconds, so that areas share the time they are given:
all alike, unless one has a `SHARE` that says how many times as much.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """What a step tried, as a row of the table that all steps of this name add up to, and what went wrong."""

    what: str  # such as "train, killed by SIGKILL"
    tried: int = 1  # cases
    lost: tuple[str, ...] = ()  # one line for each case that went wrong, with what it takes to repeat it
