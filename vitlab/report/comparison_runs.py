"""The runs of a comparison: a letter and a name for each, what is read of it, and whose test pictures are the same."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vitlab.data.prepared import Card
from vitlab.engine.cost import flops
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.facts import Facts
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.objectives import Supervised

LETTERS = "ABCDEFGH"
LONG = 24  # letters of a name that a sentence may repeat


@dataclass(frozen=True, eq=False)
class Compared:
    """One run of a comparison; each of its files is read once."""

    letter: str
    name: str
    run: Run

    @property
    def called(self) -> str:
        """What sentences call it: its name, or its letter where the name is too long to be read again and again."""
        return self.name if len(self.name) <= LONG else self.letter

    @property
    def style(self) -> str:
        """The page's class for its colour and its dashes."""
        return f"run-{LETTERS.index(self.letter) + 1}"

    @cached_property
    def experiment(self) -> Experiment:
        return self.run.experiment

    @cached_property
    def card(self) -> Card:
        return self.run.card

    @cached_property
    def environment(self) -> dict[str, Any]:
        return self.run.environment

    @cached_property
    def result(self) -> dict[str, Any]:
        return self.run.result

    @property
    def labelled(self) -> bool:
        """Whether it learned from labels; if not, its answers are those of a linear probe."""
        return isinstance(self.experiment.objective, Supervised)

    @cached_property
    def evaluation(self) -> Evaluation:
        return self.run.evaluation

    @cached_property
    def epochs(self) -> list[Facts]:
        return self.run.metrics()

    @cached_property
    def flops(self) -> int:
        """Of one picture's forward; the weights do not matter for it."""
        with torch.random.fork_rng():
            return flops(self.run.build())


def compared(runs: Sequence[Run]) -> list[Compared]:
    """The runs with their letters and names; the first is the one that the others are compared with."""
    if not 2 <= len(runs) <= len(LETTERS):
        raise BadInput(f"2 to {len(LETTERS)} runs can be compared on one page, not {len(runs)}")
    folders = [run.folder.resolve() for run in runs]
    for folder, times in Counter(folders).items():
        if times > 1:
            raise BadInput(f"{runs[folders.index(folder)].folder} is given {times} times: give each run once")
    return [Compared(*each) for each in zip(LETTERS, distinct(folders), runs, strict=False)]


def distinct(folders: Sequence[Path]) -> list[str]:
    """For each folder, the shortest end of its path that no other folder shares."""
    names = []
    for folder in folders:
        others = [other.parts for other in folders if other != folder]
        size = 1
        while any(other[-size:] == folder.parts[-size:] for other in others):
            size += 1
        names.append(str(Path(*folder.parts[-size:])))
    return names


def why_not_paired(first: Compared, other: Compared) -> str:
    """Why two runs were not tested on the same pictures; nothing where they were."""
    one, two = first.card, other.card
    data = first.experiment.data, other.experiment.data
    if one.classes != two.classes:
        return "it has other classes" if one.name == two.name else f"it was tested on {two.name}, not on {one.name}"
    if not torch.equal(first.evaluation.labels, other.evaluation.labels):
        return f"it read other test pictures ({other.evaluation.count} of {two.name})"
    if not first.evaluation.count:
        return "there are no test pictures"
    if one.fingerprint == two.fingerprint:
        return ""
    if data[0].source != data[1].source:
        return f"its pictures come from another source, or in another size ({two.name})"
    same_share = (data[0].validation, data[0].limit) == (data[1].validation, data[1].limit)
    return f"the pictures of {two.name} changed between the two runs" if same_share else ""
