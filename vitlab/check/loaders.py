"""The batches a model is trained and tested with, where the user gives them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from vitlab.data.dataset import Part
from vitlab.data.prepared import Normalise, unit
from vitlab.engine.evaluation import batches
from vitlab.engine.run import Run
from vitlab.errors import BadInput, choose
from vitlab.experiment import Testing
from vitlab.given import load_data


@dataclass(frozen=True)
class Loaders:
    """Batches of (pictures, labels), as the user trains and tests with."""

    train: Iterable[Any] | None = None
    test: Iterable[Any] | None = None


@dataclass(frozen=True, eq=False)
class Batches:
    """A part of a vitlab data set as a run reads it."""

    part: Part
    normalise: Normalise
    testing: Testing

    @property
    def dataset(self) -> Tensor:
        return self.part.labels

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for pictures, labels in batches(self.part, self.testing):
            yield self.normalise(unit(pictures)), labels


def loaders_of_run(run: Run) -> Loaders:
    """What a run learned from and was tested on, where its data are at hand."""
    try:
        prepared = load_data(run.experiment, None)
    except BadInput:
        return Loaders()
    normalise = Normalise(run.card, torch.device("cpu"))
    train = Batches(prepared.train, normalise, Testing(run.experiment.testing.at_once))
    return Loaders(train, Batches(prepared.test, normalise, run.experiment.testing))


def named(module: ModuleType, name: str) -> Any:
    """What a file calls by that name."""
    return getattr(module, choose(name, [key for key in vars(module) if not key.startswith("_")], "name in the file"))


def found_in(module: ModuleType, name: str) -> Loaders:
    """The loaders that a function of the file returns, (train, test), or those that it holds under such names."""
    if name:
        function = named(module, name)
        given = function() if callable(function) else function
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise BadInput(f"{name} must give two loaders, (train, test), not {type(given).__name__}")
        return Loaders(*given)
    held = {key.lower(): value for key, value in vars(module).items() if isinstance(value, DataLoader)}
    return Loaders(*(next((held[key] for key in held if part in key), None) for part in ("train", "test")))
