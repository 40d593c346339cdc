"""Recipes: one file per published result; a file's name is the recipe's, its docstring states what it gives."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from vitlab.data.archives import SUFFIXES
from vitlab.engine.storage import read_json
from vitlab.errors import BadInput, choose
from vitlab.experiment import Experiment
from vitlab.own import choices, experiment, is_own, own_name
from vitlab.reproduce.plan import Reproduction
from vitlab.settings import from_json


def names() -> dict[str, str]:
    """Recipe → its module's name."""
    return {file.name.replace("_", "-"): file.name for file in iter_modules(__path__)}


def module(name: str) -> ModuleType:
    """The file of a recipe."""
    found = names()
    return import_module(f"{__name__}.{found[choose(name, found, 'recipe')]}")


def summary(name: str) -> str:
    """The first line of a recipe's docstring."""
    return (module(name).__doc__ or "").partition("\n")[0]


def reproductions() -> dict[str, Reproduction]:
    """The recipes that re-run an experiment of a report, in the order of the reports."""
    found = {name: plan for name in names() if (plan := getattr(module(name), "reproduction", None)) is not None}
    return dict(sorted(found.items(), key=lambda item: (item[1].report, item[1].place)))


def run_name(name: str) -> str:
    """What a run of a recipe is called, where nobody says."""
    if is_own(name):
        return own_name(name)
    place = Path(name)
    return place.resolve().parent.name if place.name == "experiment.json" else place.stem


def recipe(name: str, settings: Sequence[str] = ()) -> Experiment:
    """A recipe by name, the configuration in a JSON file (such as a run's experiment.json), or one for folder:PATH.

    The last is chosen for the pictures as they are read by these settings, which are not put into it.
    """
    if is_own(name):
        return experiment(name, choices(name, settings))
    if name.endswith(".json"):
        return from_json(Experiment, read_json(Path(name)), name)
    if name and name not in names():
        refuse_place(name)
    return module(name).recipe


def refuse_place(name: str) -> None:
    """A place that is there is no recipe, but what is meant by it can be guessed."""
    place = Path(name)
    if (place / "experiment.json").exists():
        raise BadInput(f"{name} is a run: 'vitlab resume' goes on with it, and {place}/experiment.json is its recipe")
    kind = "npz" if place.suffix == ".npz" else "folder"
    if place.is_dir() or (place.is_file() and name.endswith((".npz", *SUFFIXES))):
        raise BadInput(f"{name} is no recipe: to learn from the pictures in it, write {kind}:{name}")
