"""What 'vitlab --help' shows: where to begin, every verb in a line, every recipe."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vitlab import recipes
from vitlab.console import plain_table
from vitlab.engine.run import zoo
from vitlab.printed import out

FIRST = {
    "vitlab train digits": "your first ViT: a minute on two CPU cores",
    "vitlab page": "draw a digit, watch a model think (needs vitlab[page])",
    "vitlab check my_vit.py": "find the mistakes in your own model",
    "vitlab train folder:PATH": "your own pictures, one folder per class",
}


def show_overview(groups: Mapping[str, Sequence[Callable[..., Any]]]) -> None:
    """Verbs by group, recipes by what they are made for; each with the first line of its docstring."""
    out.print("vitlab: a laboratory for Vision Transformers on small pictures\n", style="bold", markup=False)
    show("Begin with", FIRST)
    for heading, verbs in groups.items():
        show(heading, {verb.__name__: (inspect.getdoc(verb) or "").partition("\n")[0] for verb in verbs})
    reports = recipes.reproductions()
    own = {name: recipes.recipe(name).training.graph for name in recipes.names() if name not in reports}
    for heading, graph in (("Recipes for a CPU", False), ("Recipes for a GPU", True)):
        show(heading, {name: recipes.summary(name) for name, recorded in own.items() if recorded is graph})
    of = {
        plan.report: " ".join(name for name in reports if reports[name].report == plan.report)
        for plan in reports.values()
    }
    show("Recipes that re-run five students' reports ('vitlab reproduce --list')", of)
    out.print("'vitlab VERB --help' says what a verb takes, 'vitlab settings RECIPE' what a recipe can change.")
    out.print(f"Where a verb takes a run, it also takes {' and '.join(zoo())}, which come trained with vitlab.")


def show(heading: str, lines: Mapping[str, str]) -> None:
    table = plain_table("", "")
    table.show_header = False
    table.columns[0].min_width = 11
    for name, meaning in lines.items():
        table.add_row(f"  {name}", meaning)
    out.print(heading, style="bold", markup=False)
    out.print(table, markup=False)
    out.print()
