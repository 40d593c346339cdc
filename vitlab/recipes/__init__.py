"""Recipes: one file per published result; a file's name is the recipe's, its docstring states what it gives."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from vitlab.engine.storage import read_json
from vitlab.errors import choose
from vitlab.experiment import Experiment
from vitlab.settings import from_json


def names() -> dict[str, str]:
    """Recipe → its module's name."""
    return {module.name.replace("_", "-"): module.name for module in iter_modules(__path__)}


def summary(name: str) -> str:
    """The first line of a recipe's docstring."""
    return (import_module(f"{__name__}.{names()[name]}").__doc__ or "").partition("\n")[0]


def recipe(name: str) -> Experiment:
    """A recipe by name, or the configuration in a JSON file (such as a run's experiment.json)."""
    if name.endswith(".json"):
        return from_json(Experiment, read_json(Path(name)), name)
    found = names()
    return import_module(f"{__name__}.{found[choose(name, found, 'recipe')]}").recipe
