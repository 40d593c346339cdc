"""The verbs pretrain, finetune and labels."""

from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from vitlab import lab, recipes
from vitlab.given import as_run
from vitlab.own import choices, experiment, is_own
from vitlab.pretrain.labels import Study, table
from vitlab.printed import DataFolder, Device, Quiet, RunName, Runs, Words, announce, out, show_choices, show_result


def pretrain(
    how: Positional[Literal["mae", "dino"]],
    recipe: Positional[str] = "digits",
    settings: Words = (),
    /,
    *,
    name: RunName = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Learn without labels (mae, dino), judged by linear probe and k-NN.

    Args:
        how: mae hides most of a picture and draws it; dino teaches itself to see the same in parts of a picture.
        recipe: A recipe: RECIPE-mae or RECIPE-dino where there is one, else RECIPE with that objective.
        settings: Changes to it, such as epochs=5 hidden=0.6 data.source=folder:PATH.
        name: Name of the run (default: the recipe's, with a number if that is taken).
    """
    chosen = f"{recipe}-{how}"
    named = chosen in recipes.names()
    words = settings if named or is_own(recipe) else (f"objective={how}", *settings)
    if is_own(recipe):
        found = choices(recipe, settings, how)
        if not quiet:
            show_choices(found)
        known = experiment(recipe, found)
    else:
        known = recipes.recipe(chosen if named else recipe)
    started = lab.train(
        known, *words, name=name, otherwise=f"{recipes.run_name(recipe)}-{how}",
        runs=runs, data=data, device=device, quiet=quiet, begun=announce(quiet),
    )  # fmt: skip
    show_result(started)


def finetune(
    run: Positional[Path],
    settings: Words = (),
    /,
    *,
    name: RunName = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train on labels, starting from another run's weights.

    Args:
        run: The run to start from; its settings are taken too, but for the objective of one without labels.
        settings: Changes to them, such as epochs=20 data.limit=1000 learning_rate=1e-3: the logits start anew, so that
            a run that had few epochs needs more here.
        name: Name of the new run (default: the other's with -finetuned).
    """
    tuned = lab.finetune(
        run, *settings, name=name, runs=runs, data=data, device=device, quiet=quiet,
        chose=(lambda choices: None) if quiet else show_choices, begun=announce(quiet),
    )  # fmt: skip
    show_result(tuned)


def labels(
    run: Positional[Path],
    settings: Words = (),
    /,
    *,
    shares: tuple[float, ...] = (0.01, 0.1, 1.0),
    seeds: int = 1,
    folder: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FOLDER", help_behavior_hint="")] = None,
    data: DataFolder = None,
    device: Device = "auto",
) -> None:
    """What labels are worth: probe, fine-tuning, from scratch by shares.

    Training from scratch is given as many epochs as fine-tuning, and again as much time as pretraining and fine-tuning
    took together. Called again, it goes on where it stopped.

    Args:
        run: A run that learned without labels.
        settings: Changes for fine-tuning and training from scratch, such as epochs=20 label_smoothing=0.1.
        shares: Shares of the training labels.
        seeds: Seeds of each training.
        folder: Folder of the runs and of labels.json (default: labels in the run).
    """
    study = Study(as_run(run), settings, shares, seeds, folder or run / "labels", data=data, device=device)
    record = study.finish(lambda line: out.print(line, markup=False))
    out.print(table(record), markup=False)
    out.print(f"curves: {study.chart} · all of it: {study.path}", markup=False)
