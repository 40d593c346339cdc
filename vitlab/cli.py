"""The command line: one short function per verb."""

import inspect
import json
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from vitlab import data as data_sets
from vitlab import interrupt, lab, recipes
from vitlab.arguments import parse
from vitlab.bench import PARTS, bench
from vitlab.check.command import check
from vitlab.console import plain_table, speak_anywhere, terminal
from vitlab.engine.loop import Stopped
from vitlab.engine.memory import is_short
from vitlab.engine.run import open_run, own_version
from vitlab.engine.storage import ON_DISK_TROUBLE, explain
from vitlab.engine.team import place
from vitlab.errors import BadInput, choose, shorten
from vitlab.experiment import Experiment
from vitlab.export.command import export
from vitlab.inference.command import calibrate, predict
from vitlab.look.words import describe_look, describe_trust
from vitlab.overview import show_overview
from vitlab.own import choices, experiment, is_own
from vitlab.page.command import page
from vitlab.pretrain.command import finetune, labels, pretrain
from vitlab.printed import (
    Count,
    DataFolder,
    Device,
    Folder,
    Paths,
    Quiet,
    RunName,
    Runs,
    Words,
    announce,
    out,
    show_accuracy,
    show_choices,
    show_result,
)
from vitlab.report.comparison_accuracy import summary
from vitlab.report.comparison_runs import compared
from vitlab.report.gather import LOOKS
from vitlab.report.paired import CAVEAT
from vitlab.reproduce.runs import Reproducer, chosen
from vitlab.reproduce.terminal import show_list, show_record
from vitlab.settings import kinds_at, override, walk, write_value
from vitlab.study.command import VERBS as STUDY_VERBS
from vitlab.study.command import study
from vitlab.transfer.command import transfer

PIPED = 400  # columns of a table that no terminal shows


def train(
    recipe: Positional[str],
    settings: Words = (),
    /,
    *,
    name: RunName = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Train a recipe: a run folder with weights, metrics and report.

    Args:
        recipe: A recipe, such as digits; your own pictures as folder:PATH, with a folder for each class, or npz:FILE;
            or a configuration file, such as runs/digits/experiment.json.
        settings: Changes to it, such as epochs=5 attention=linformer; 'vitlab settings' lists them all.
        name: Name of the run (default: the recipe's, with a number if that is taken).
    """
    chosen: Experiment | str = recipe
    if is_own(recipe) and not quiet:
        found = choices(recipe, settings)
        show_choices(found)
        chosen = experiment(recipe, found)
    started = lab.train(
        chosen, *settings, name=name, otherwise=recipes.run_name(recipe), runs=runs, data=data, device=device,
        quiet=quiet, begun=announce(quiet),
    )  # fmt: skip
    show_result(started)


def resume(run: Positional[Path], /, data: DataFolder = None, device: Device = "auto", quiet: Quiet = False) -> None:
    """Continue a stopped run, to the same result as if it never stopped.

    Args:
        run: The run's folder.
    """
    show_result(lab.resume(run, data=data, device=device, quiet=quiet, begun=announce(quiet)))


def evaluate(run: Positional[Path], /, data: DataFolder = None, device: Device = "auto", as_json: bool = False) -> None:
    """Measure a trained run on its test set again.

    Args:
        run: The run's folder.
        as_json: Print one JSON object.
    """
    result = lab.evaluate(run, data=data, device=device)
    low, high = result.interval
    names, balanced = open_run(run).card.classes, result.balanced_accuracy
    right, tested = result.confusion().diagonal().tolist(), result.tested.tolist()
    if as_json:
        told = {"accuracy": result.accuracy, "low": low, "high": high, "loss": result.loss}
        told |= {"balanced_accuracy": balanced}
        known = {name: figure if result.count else None for name, figure in told.items()}
        classes = {name: {"right": r, "count": n} for name, r, n in zip(names, right, tested, strict=True)}
        print(json.dumps(known | {"count": result.count, "classes": classes}))
        return
    show_accuracy(result.accuracy, low, high, result.count)
    if result.uneven:
        out.print(f"balanced accuracy {balanced:.2%}, the mean of the accuracies of the classes", markup=False)
    wrong = [i for i in range(len(names)) if right[i] < tested[i]]
    if wrong:
        out.print("lowest accuracy by class:", markup=False)
    for i in sorted(wrong, key=lambda i: right[i] / tested[i])[:3]:
        out.print(f"  {names[i]}: {right[i] / tested[i]:.1%} ({right[i]} of {tested[i]})", markup=False)


def look(
    run: Positional[Path],
    pictures: Words = (),
    /,
    *,
    layer: Count = None,
    head: Count = None,
    token: Annotated[str | None, tyro.conf.arg(metavar="TOKEN", help_behavior_hint="")] = None,
    label: Annotated[str | None, tyro.conf.arg(metavar="CLASS", help_behavior_hint="")] = None,
    tested: int = 100,
    folder: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FOLDER", help_behavior_hint="")] = None,
    invert: bool = False,
    data: DataFolder = None,
    device: Device = "auto",
) -> None:
    """Draw what every layer and head looks at, and test these maps.

    Args:
        run: The run's folder.
        pictures: Picture files, or test pictures as test:17 (default: test pictures of the first classes).
        layer: Draw this layer only, counted from 1.
        head: Draw this head only, counted from 1.
        token: The token that looks: class, "register 2", or a patch as row,column (default: what the head reads).
        label: The class that relevance is about (default: the one the model names).
        tested: Test pictures on which the maps are put to the test; 0: the pictures looked at.
        folder: Folder of the drawings (default: look in the run).
        invert: Swap dark and light first: MNIST's digits are white on black.
    """
    opened = open_run(run)
    names = pictures or [f"test:{place}" for place in opened.evaluation.first_of_each_class(LOOKS)]
    seen = lab.look(opened, names, token=token, label=label, invert=invert, data=data, device=device)
    drawn = lab.draw(opened, seen, folder, layer=layer, head=head, tested=tested, data=data, device=device)
    for line in (*describe_look(seen, calibrated=opened.calibration.exists()), *describe_trust(drawn.trust)):
        out.print(line, markup=False, highlight=False)
    if drawn.note:
        out.print(f"  on these alone, since {drawn.note}", markup=False)
    out.print(f"{len(drawn.files)} drawings in {drawn.page.parent}; open {drawn.page}", markup=False)


def report(
    runs: Paths,
    /,
    page: Annotated[Path | None, tyro.conf.arg(name="out", metavar="FILE", help_behavior_hint="")] = None,
    data: DataFolder = None,
    device: Device = "auto",
) -> None:
    """Write a run's report again, or a comparison of several runs.

    Args:
        runs: The run's folder, or those of 2 to 8 runs; the first is the one the others are compared with.
        page: The page to write (default: report.html in the run, or comparison.html in the folder of the runs).
    """
    if len(runs) > 1:  # runs/* names the comparison that was written there, too
        runs = tuple(run for run in runs if not (run.suffix == ".html" and run.is_file()))
    written = lab.report(runs, out=page, data=data, device=device)
    opened = [open_run(run) for run in runs]
    if len(opened) > 1:
        for line in summary(compared(opened)):
            out.print(line, markup=False)
        out.print(CAVEAT, markup=False)
    else:
        result = opened[0].result
        show_accuracy(result["test_accuracy"], result["low"], result["high"], result["count"])
    out.print(f"open {written}", markup=False)


def data(
    action: Positional[Literal["list", "get", "check"]],
    names: Words = (),
    /,
    data: DataFolder = None,
) -> None:
    """List, fetch or verify data sets.

    Args:
        action: What to do: list them all, get them, or check that every pixel is right.
        names: Data sets, such as mnist fashion-mnist cifar10 cifar100.
    """
    folder = data_sets.data_folder(data)
    if action == "list":
        for line in data_sets.available(folder):
            out.print(data_sets.describe(line), markup=False)
        out.print(
            "Your own pictures: data.source=folder:PATH (one folder per class) or data.source=npz:FILE", markup=False
        )
        return
    if not names:
        raise BadInput(f"name a data set: vitlab data {action} mnist")
    for name in names:
        if action == "get":
            data_sets.get(name, folder, lambda line: out.print(line, markup=False))
        out.print(data_sets.check(name, folder), markup=False)


def settings(recipe: Positional[str] = "digits", settings: Words = (), /) -> None:
    """Show every setting of a recipe: value, choices, meaning.

    Args:
        recipe: A recipe or a configuration file.
        settings: Changes to it as setting=value, since a part's own settings follow its kind; or the name of a part,
            such as tokens or attention, to see what each of its kinds is.
    """
    named = [word for word in settings if "=" not in word]
    if named:
        known = override(recipes.recipe(recipe, settings), [word for word in settings if word not in named])
        for name in named:
            kinds = plain_table(name, "what it is")
            for kind, meaning in kinds_at(known, name):
                kinds.add_row(kind, meaning)
            out.print(kinds, markup=False)
        return
    table = plain_table("setting", "value", "may be", "meaning")
    table.columns[0].no_wrap = True  # a name is to be found and copied whole, and a line that goes to a program, too
    for entry in walk(override(recipes.recipe(recipe, settings), list(settings))):
        table.add_row(".".join(entry.path), write_value(entry.value), entry.allowed, entry.meaning)
    (out if out.is_terminal else terminal(width=PIPED)).print(table, markup=False)


def reproduce(
    names: Words = (),
    /,
    *,
    list: bool = False,
    small: bool = False,
    seeds: Count = None,
    workers: Count = None,
    minutes: Annotated[float | None, tyro.conf.arg(metavar="MINUTES", help_behavior_hint="")] = None,
    runs: Folder = None,
    records: Folder = None,
    data: DataFolder = None,
    device: Device = "auto",
    quiet: bool = False,
) -> None:
    """Re-run the five reports' experiments, as written and mended.

    Called again, it goes on where it stopped: what is in the records is not trained again.

    Args:
        names: Experiments, such as r1-shallow; a report, such as r1, for all of its experiments; or all.
        list: List the experiments with the figures that the reports give.
        small: A small version in minutes on two cores, from the embedded digits: same directions, other figures.
        seeds: Train each variant with this many seeds (default: 3 to 10 as the experiment says, and 1 when small).
        workers: Train this many runs at once (default: 1 on a CPU, up to 12 on a GPU that processes can share).
        minutes: Start no new run after this many minutes.
        runs: Folder of the runs (default: runs/reports, or runs/reports-small).
        records: Folder of the records and of the page made from them (default: the same).
        quiet: Print only the tables.
    """
    known = recipes.reproductions()
    if list or not names:
        show_list(out, known)
        return
    folder = Path("runs") / ("reports-small" if small else "reports")
    tell = partial(terminal(quiet).print, markup=False)
    reproducer = Reproducer(runs or folder, records or folder, small, seeds, workers, minutes, data, device, tell=tell)
    named = chosen(names)
    finished = reproducer.reproduce(named)
    for name in named:
        show_record(out, known[name], reproducer.record(name))
    if reproducer.page.exists():
        out.print(f"\nall of it: {reproducer.page}", markup=False)
    if not finished:
        out.print(f"{minutes:g} minutes are over, nothing is lost; go on with the same command", markup=False)


GROUPS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Train": (train, resume, pretrain, finetune, transfer, labels),
    "Use what was trained": (predict, evaluate, calibrate, export),
    "Look inside": (page, look, report),
    "Test and compare": (check, study, reproduce, bench),
    "Look things up": (settings, data),
}
VERBS = {verb.__name__: verb for verbs in GROUPS.values() for verb in verbs}

TOGETHER = ("train", "pretrain", "finetune", "resume")  # what several processes can do together


def main(arguments: list[str] | None = None) -> None:
    """Run a verb; bad input ends in one line and exit status 2."""
    words = sys.argv[1:] if arguments is None else arguments
    rank, size = place()
    speaker = f"vitlab, process {rank}" if rank else "vitlab"
    interrupt.listen()
    speak_anywhere()
    try:
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere) if rank else nullcontext():
            run_or_be_interrupted(words, alone=size == 1)
    except BadInput as problem:
        print(f"{speaker}: {' '.join(str(problem).split())}", file=sys.stderr)
        sys.exit(2)
    except Stopped as stop:
        if not rank:
            print(f"vitlab: {stop}", file=sys.stderr)
        sys.exit(130)
    except KeyboardInterrupt:
        print("vitlab: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left; nothing more to say
    except OSError as error:  # of a full disk, too few file handles and the like, wherever it is met
        if error.errno not in ON_DISK_TROUBLE:
            raise
        what = f"cannot use {shorten(str(error.filename))}" if error.filename else "cannot go on"
        print(f"{speaker}: {explain(error, what)}", file=sys.stderr)
        sys.exit(2)
    except (RuntimeError, MemoryError) as error:
        if not is_short(error):
            raise
        print(f"{speaker}: there is too little memory: a smaller batch, model or picture takes less", file=sys.stderr)
        sys.exit(2)


def run_or_be_interrupted(words: list[str], alone: bool) -> None:
    """Run a verb; what Ctrl-C made of it is Ctrl-C."""
    try:
        run_verb(words, alone)
    except Exception as error:
        if interrupt.came() and not isinstance(error, Stopped):
            raise KeyboardInterrupt from None
        raise


def run_verb(words: list[str], alone: bool) -> None:
    if words == ["--version"]:
        print(f"vitlab {own_version()}")
        return
    if words and not words[0].startswith("-"):
        verb = choose(words[0], VERBS, "verb")
        if not alone and verb not in TOGETHER:
            raise BadInput(f"'{verb}' is for one process: call it without torchrun")
    if words[:1] == ["bench"] and len(words) > 1 and not words[1].startswith("-"):
        choose(words[1], PARTS, "part of bench")
    if words[:1] == ["study"]:
        if words[1:] and not words[1].startswith("-"):
            choose(words[1], STUDY_VERBS, "verb of study")
        parse(STUDY_VERBS, "vitlab study", inspect.getdoc(study) or "", words[1:])()
        return
    if words in ([], ["-h"], ["--help"]):
        show_overview(GROUPS)
        return
    parse(VERBS, "vitlab", "", words)()


if __name__ == "__main__":
    main()
