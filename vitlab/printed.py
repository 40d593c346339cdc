"""What the verbs take and print: kinds of arguments, and a run in a few lines."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from vitlab.console import plain_table, terminal
from vitlab.data.words import shown
from vitlab.engine.run import Run
from vitlab.own import OWN, Choice

Folder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]
RunName = Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")]
Words = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(help_behavior_hint="")]  # perhaps none
Paths = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(help_behavior_hint="")]
Count = Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
DataFolder = Annotated[
    Path | None,
    tyro.conf.arg(
        metavar="FOLDER",
        help="Folder of the data sets (default: $VITLAB_DATA, or a folder in your cache).",
        help_behavior_hint="",
    ),
]
Device = Annotated[str, tyro.conf.arg(metavar="DEVICE", help="auto, cpu or cuda.")]
Runs = Annotated[Path, tyro.conf.arg(help="Folder of the runs.")]
Quiet = Annotated[bool, tyro.conf.arg(help="Print only the result.")]
NAMED = 12  # classes that are listed by name
out = terminal()


def show_choices(choices: Sequence[Choice]) -> None:
    """What was chosen for the user's own pictures, and why."""
    out.print("Chosen for these pictures; a setting=value after them chooses otherwise:", markup=False)
    table = plain_table("settings", "because")
    for choice in choices:
        table.add_row(" ".join(choice.settings), choice.reason)
    out.print(table, markup=False)


def announce(quiet: bool) -> Callable[[Run], None]:
    """What tells of a run before it is trained; nothing where only the result is wanted."""
    return (lambda run: None) if quiet else describe_run


def describe_run(run: Run) -> None:
    """What is about to be trained, in two lines."""
    card = run.card
    weights = sum(parameter.numel() for parameter in run.build().parameters())
    out.print(f"{run.folder}: {weights:,} weights, {card.train:,} training pictures of {card.name}", markup=False)
    if run.experiment.data.source.kind in OWN:
        more = f", and {len(card.classes) - NAMED} more" if len(card.classes) > NAMED else ""
        named = ", ".join(map(shown, card.classes[:NAMED]))
        out.print(f"  classes: {named}{more}", markup=False)
    for note in card.notes:
        out.print(f"  note: {note}", markup=False)


def show_result(run: Run) -> None:
    result = run.result
    if "knn_accuracy" in result:
        out.print(
            f"k-NN accuracy {result['knn_accuracy']:.2%} on the features, "
            f"{result['pixels_knn_accuracy']:.2%} on the raw pixels; of a linear probe on the features:",
            markup=False,
        )
    show_accuracy(result["test_accuracy"], result["low"], result["high"], result["count"])
    trained = f"trained in {result['train_seconds']:.1f} s; " if result["epochs"] else ""
    out.print(f"{trained}open {run.report}", markup=False)


def show_accuracy(accuracy: float, low: float, high: float, count: int) -> None:
    if not count:
        out.print("no test pictures, so no figure")
        return
    out.print(f"test accuracy {accuracy:.2%} (95 % interval {low:.2%} to {high:.2%}, {count:,} pictures)", style="bold")
