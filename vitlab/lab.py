"""The verbs, as functions: train, finetune, resume, evaluate, look, report."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitlab.data.prepared import Normalise, Prepared, move
from vitlab.engine.evaluation import Evaluation, evaluate_part, in_numbers
from vitlab.engine.loop import Loop, use_bfloat16
from vitlab.engine.progress import Progress
from vitlab.engine.run import Run, check_name, claim_run
from vitlab.engine.seen import check_unseen, to_learn
from vitlab.engine.storage import make_folder, write
from vitlab.engine.team import the_team
from vitlab.errors import BadInput, choose
from vitlab.experiment import Experiment
from vitlab.given import (
    Files,
    as_run,
    check_finished,
    check_same,
    check_that_it_builds,
    find_device,
    load_data,
    picture_files,
    tested_on,
)
from vitlab.look import Trust, inside, places, trust
from vitlab.look.files import read_named
from vitlab.look.shown import Look
from vitlab.look.shown import look as look_at
from vitlab.model import MultiScaleTransformer, Network, VisionTransformer
from vitlab.objectives import Supervised
from vitlab.own import Choice, tuning
from vitlab.recipes import recipe, run_name
from vitlab.report import comparison, explorer
from vitlab.report.comparison_runs import compared
from vitlab.report.content import Insight
from vitlab.report.gather import gather, some_pictures
from vitlab.report.view import render, render_look
from vitlab.settings import override


def train(
    experiment: Experiment | str,
    *overrides: str,
    name: str | None = None,
    otherwise: str = "run",
    start: Run | None = None,
    runs: Path | str = "runs",
    data: Path | str | None = None,
    prepared: Prepared | None = None,
    device: str = "auto",
    quiet: bool = False,
    begun: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Train a recipe (by name, or an Experiment) with `setting=value` overrides; returns its run folder.

    The folder is `name`, or else the recipe's name or `otherwise`, with a number if that is taken. The first weights
    are those of the run `start`, if there is one, all but the logits'. Pictures that are `prepared` are not read again.
    """
    if not isinstance(experiment, Experiment | str):
        raise BadInput(f"train takes a recipe by its name, or an Experiment, and not a {type(experiment).__name__}")
    wanted = name or (run_name(experiment) if isinstance(experiment, str) else otherwise)
    check_name(wanted)
    chosen = override(recipe(experiment, overrides) if isinstance(experiment, str) else experiment, list(overrides))
    team, where = the_team(), find_device(device)
    prepared = prepared or load_data(chosen, data)
    check_fits(chosen, prepared, start)  # what clashes is refused before there is a folder
    run = team.begun(Path(runs), chosen) if team.leads else None
    if team.leads and run is None:
        run = claim_run(Path(runs), wanted, exact=name is not None)
        with run.hold():
            begin(run, chosen, prepared, where, start, around=team.facts)
    return _finish(team.follow(run), prepared, where, quiet=quiet, begun=begun)


def finetune(
    run: Run | Path | str,
    *overrides: str,
    name: str | None = None,
    runs: Path | str = "runs",
    data: Path | str | None = None,
    device: str = "auto",
    quiet: bool = False,
    chose: Callable[[Sequence[Choice]], None] = lambda choices: None,
    begun: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Train on labels from where another run ended, most often one without labels; its logits start anew.

    How long, at which rates and in which size is chosen where it is to learn pictures of your own (vitlab/own.py), and
    told to `chose`.
    """
    start = as_run(run)
    start.model()  # there are weights, and they can be read
    learned = start.experiment.objective
    objective = learned if isinstance(learned, Supervised) else Supervised()
    words = list(overrides)
    if found := tuning(start.experiment, start.card, overrides):
        chose(found)
        words += [word for choice in found for word in choice.settings] + words  # what is typed wins
    return train(
        replace(start.experiment, objective=objective), *words, name=name, start=start,
        otherwise=f"{start.name}-finetuned", runs=runs, data=data, device=device, quiet=quiet, begun=begun,
    )  # fmt: skip


def train_in(
    folder: Path,
    experiment: Experiment,
    prepared: Prepared,
    device: torch.device,
    *,
    quiet: bool = False,
    start: Run | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train an experiment in FOLDER, or go on there; a finished run is left as it is. No report is written.

    `progress` sees every epoch, and may end the training there by an exception.
    """
    run, begun = Run(folder), folder / "experiment.json"
    if begun.exists():
        check_same(run, experiment, prepared.card)  # what is another's is not touched
    else:
        check_fits(experiment, prepared, start)  # what clashes is refused before there is a folder
        make_folder(folder)
    if not run.finished:
        with run.hold(), torch.random.fork_rng():
            if not begun.exists():
                begin(run, experiment, prepared, device, start)
            check_same(run, experiment, prepared.card)
            if not run.finished:  # by another process, meanwhile
                shown = progress or Progress(experiment.training.epochs, quiet)
                Loop(run, experiment, prepared, device, shown).train()
                run.checkpoint.unlink(missing_ok=True)
    return run


def check_fits(experiment: Experiment, prepared: Prepared, start: Run | None) -> None:
    """Refuse settings, pictures and first weights that do not go together."""
    check_that_it_builds(experiment, prepared.card, start)
    check_unseen(prepared, start)


def begin(
    run: Run,
    experiment: Experiment,
    prepared: Prepared,
    device: torch.device,
    start: Run | None = None,
    *,
    around: Mapping[str, Any] | None = None,
) -> None:
    """Write down what a run is, before its first step."""
    learned = to_learn(prepared, isinstance(experiment.objective, Supervised), start)
    run.begin(experiment, prepared.card, device, start, learned=learned, around=around)


def resume(
    run: Run | Path | str,
    data: Path | str | None = None,
    device: str = "auto",
    quiet: bool = False,
    begun: Callable[[Run], None] = lambda run: None,
) -> Run:
    """Go on with a run from its last checkpoint, to the same result as if it had never stopped."""
    team = the_team()
    run = team.follow(as_run(run) if team.leads else None)
    if run.shipped:
        raise BadInput(f"{run.name} comes trained with vitlab; teach it other pictures by 'vitlab finetune {run.name}'")
    prepared = load_data(run.experiment, data)
    if prepared.card.fingerprint != run.card.fingerprint:
        raise BadInput(f"the pictures of {run.folder} have changed since it began, so it cannot go on: train it anew")
    return _finish(run, prepared, find_device(device), quiet=quiet, begun=begun)


def evaluate(run: Run | Path | str, data: Path | str | None = None, device: str = "auto") -> Evaluation:
    """Read the run's test part with its trained model."""
    run = as_run(run)
    experiment, where = run.experiment, find_device(device)
    test = tested_on(run, data).test
    bfloat16 = use_bfloat16(experiment.training.precision, where)
    normalise = Normalise(run.card, where)
    found = evaluate_part(run.model().to(where), move(test, where), normalise, bfloat16, experiment.testing)
    return in_numbers(found, run.folder)


def report(
    runs: Sequence[Run | Path | str] | Run | Path | str,
    out: Path | str | None = None,
    data: Path | str | None = None,
    device: str = "auto",
) -> Path:
    """Write the page of one run anew, or one page that compares several; returns where it is."""
    given = [as_run(run) for run in ([runs] if isinstance(runs, Run | Path | str) else runs)]
    if not given:
        raise BadInput("no run given: name one to report on, or several to compare")
    where, chosen = find_device(device), compared(given) if len(given) > 1 else []
    for run in given:
        check_finished(run)
    page, prepared = Path(out) if out else None, tested_on(given[0], data)
    if not chosen:
        return write_report(given[0], prepared, where, page)
    commands = comparison.commands(chosen, page, data)
    page = page or common_parent(given) / "comparison.html"
    write(page, comparison.render(chosen, prepared.test.pictures, commands, where).encode())
    return page


def common_parent(runs: Sequence[Run]) -> Path:
    """The innermost folder that holds all of these runs, as seen from here where that is shorter."""
    here = Path.cwd()
    parent = Path(os.path.commonpath([here if run.shipped else run.folder.resolve().parent for run in runs]))
    return parent.relative_to(here) if parent.is_relative_to(here) else parent


def look(
    model: Network | Run | Path | str,
    pictures: Tensor | Files,
    *,
    token: str | None = None,
    label: str | int | None = None,
    invert: bool = False,
    data: Path | str | None = None,
    device: str = "auto",
) -> Look:
    """Look inside: every layer's and head's map, rollout, relevance, lens and measures, as return values.

    A network looks at a tensor of pictures, normalised as it learned them; a run at picture files too, and at pictures
    of its test part, named test:17. `token` is the one that looks: class, register 2, or a patch's row,column. `label`
    is the class that relevance is about, by its name or its place; left out, the one that the model guesses.
    """
    if isinstance(model, VisionTransformer | MultiScaleTransformer):
        if not isinstance(pictures, Tensor):
            raise BadInput("a network looks at a tensor of pictures; give a run to look at picture files")
        if isinstance(label, str):
            raise BadInput("a network does not know the names of its classes: give the class's number, or a run")
        return look_at(model, pictures, token=token, target=label)
    if isinstance(model, torch.nn.Module):
        raise BadInput(f"vitlab looks inside its own models, and {type(model).__name__} is none of them")
    run = as_run(model)
    card, network = run.card, run.model().to(find_device(device))
    target = card.classes.index(choose(label, card.classes, "class")) if isinstance(label, str) else label
    if isinstance(pictures, Tensor):
        return look_at(network, pictures, token=token, target=target, classes=card.classes)
    normalised, shown = read_named(picture_files(pictures), card, lambda: tested_on(run, data).test, invert)
    return look_at(network, normalised, token=token, target=target, shown=shown, classes=card.classes)


@dataclass(frozen=True, eq=False)
class Drawn:
    """The files that a look left, and how its maps fared against random order."""

    files: tuple[Path, ...]
    page: Path
    trust: Trust
    note: str  # why these and not pictures of the test part


def draw(
    run: Run | Path | str,
    seen: Look,
    out: Path | str | None = None,
    *,
    layer: int | None = None,
    head: int | None = None,
    tested: int = 100,
    data: Path | str | None = None,
    device: str = "auto",
) -> Drawn:
    """Draw a look at a run: PNG and SVG files and look.html, in RUN/look unless `out` names a folder.

    The maps are put to the test on `tested` pictures of the test part, or on those looked at where it is not at hand;
    for the class and from the token that the look was asked for.
    """
    from vitlab.look.album import Choice, draw_album  # noqa: PLC0415 (matplotlib takes a third of a second to import)

    if tested < 0:
        raise BadInput(f"the maps are tested on 0 or more pictures, not {tested}")
    choice = Choice(layer, head)
    choice.check(seen)
    run = as_run(run)
    folder = Path(out) if out else run.drawings
    network = run.model().to(find_device(device))
    note, pictures = "", seen.pictures
    goal: Tensor | int | None = seen.target
    try:
        if tested and (prepared := tested_on(run, data)).card.test:
            pictures = some_pictures(prepared, tested)
            goal = seen.asked
    except BadInput as reason:
        note = f"the test part is not at hand ({reason})"
    trusted = trust(network, pictures, inside(network, pictures, seen.token, goal), steps=12, orders=1)
    files = draw_album(seen, network, trusted, folder, choice)
    insight = Insight(seen, explorer.gather(network, seen), trusted, places(network))
    write(folder / "look.html", render_look(run.name, insight).encode())
    return Drawn(tuple(files), folder / "look.html", trusted, note)


def write_report(run: Run, prepared: Prepared, device: torch.device, page: Path | None = None) -> Path:
    """Make the run's report.html, or another page, anew from its folder."""
    page = page or run.report
    write(page, render(gather(run, prepared, device)).encode())
    return page


def _finish(run: Run, prepared: Prepared, device: torch.device, *, quiet: bool, begun: Callable[[Run], None]) -> Run:
    """Train to the end, report, and drop the checkpoint that is no longer needed."""
    team, experiment = the_team(), run.experiment
    with run.hold(), torch.random.fork_rng(), team.together():
        if run.finished and not team.again:
            raise BadInput(f"{run.folder} is finished: its result is in {run.report}")
        if not run.finished:
            if team.leads:
                begun(run)
            progress = Progress(experiment.training.epochs, quiet or not team.leads)
            Loop(run, experiment, prepared, device, progress, team=team).train()
            if team.leads:
                write_report(run, prepared, device)
            run.checkpoint.unlink(missing_ok=True)
    return run
