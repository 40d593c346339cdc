"""The verb transfer: other people's weights become a run of ours."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tyro.conf import Positional

from vitlab import lab
from vitlab.data import NoPictures
from vitlab.data.prepared import Card, Data, known
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run, claim_run, holding
from vitlab.engine.seen import learned_by
from vitlab.engine.storage import write_json, write_tensors
from vitlab.errors import BadInput
from vitlab.experiment import Experiment, Training
from vitlab.given import load_data
from vitlab.model import Shape, ViT
from vitlab.printed import DataFolder, Device, Quiet, RunName, Runs, Words, announce, out, show_result
from vitlab.settings import find as setting
from vitlab.settings import override
from vitlab.transfer.fit import Road, fit
from vitlab.transfer.found import Found, network_of
from vitlab.transfer.sources import find

TRAINING = Training(epochs=0, batch=64)  # no epochs: the logits become a linear probe


@dataclass(frozen=True, eq=False)
class Transferred:
    """A run, and what happened to the weights on the way."""

    run: Run
    notes: list[str]


def transfer(
    source: Positional[str],
    settings: Words = (),
    /,
    *,
    road: Road = "adapt",
    name: RunName = None,
    runs: Runs = Path("runs"),
    data: DataFolder = None,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Import weights of timm, Hugging Face, DINO or MAE, proven equal.

    Without data.source the model stays as it is, with its own size and classes, to look at, check and predict with.
    With it, the model is fitted to these pictures, and its logits are a linear probe; epochs=5 fine-tunes it instead.

    Args:
        source: timm:NAME, timm:NAME=FILE, hf:ID, a file of weights, a folder with config.json, or a run.
        settings: The pictures and more, such as data.source=cifar10 patch=4 epochs=5 layer_decay=0.75.
        road: For pictures of another size: adapt the model to them, or resize them to what it knows.
        name: Name of the run (default: the model's, with a number if that is taken).
    """
    done = bring(source, *settings, road=road, name=name, runs=runs, data=data, device=device, quiet=quiet, told=tell)
    if isinstance(done.run.experiment.data.source, NoPictures):
        verbs = "look, check and predict" if done.run.card.labelled else "look and check"
        out.print(f"as it was, in {done.run.folder}: vitlab {verbs} take it", markup=False)
    else:
        show_result(done.run)


def tell(notes: list[str]) -> None:
    for note in notes:
        out.print(f"  {note}", markup=False, highlight=False)


def bring(
    source: str,
    *settings: str,
    road: Road = "adapt",
    name: str | None = None,
    runs: Path | str = "runs",
    data: Path | str | None = None,
    device: str = "auto",
    quiet: bool = False,
    told: Callable[[list[str]], None] = lambda notes: None,
) -> Transferred:
    """A run made of the weights that SOURCE names; `told` hears what was left out, made anew or resized."""
    found = find(source)
    if not isinstance(found.model, ViT):
        raise BadInput(f"{source} is a multi-scale model, and only a ViT is carried over to other pictures")
    first = Experiment(model=found.model, data=Data(normalise=found.normalise), training=TRAINING)
    wanted = {setting_path(first, word) for word in settings}
    title = re.sub("[^0-9A-Za-z_-]+", "-", found.title).strip("-") or "model"
    if ("data", "source") not in wanted:
        if found.own:
            raise BadInput(f"{source} is a run already: name the pictures to carry it over to, as data.source=cifar10")
        if settings:
            raise BadInput("without data.source the model stays as it is, and takes no settings: name some pictures")
        told(found.notes)
        run = claim_run(Path(runs), name or title, exact=name is not None)
        return Transferred(keep(found, source, run), found.notes)
    experiment = override(first, list(settings))
    assert isinstance(experiment.model, ViT)
    prepared = load_data(experiment, data)
    card = prepared.card
    patch = getattr(experiment.model.tokens, "patch", None) if ("model", "tokens", "patch") in wanted else None
    fitted = fit(
        replace(found, model=replace(experiment.model, tokens=found.model.tokens)),
        Shape(card.channels, card.height, card.width), road, patch,
    )  # fmt: skip
    notes = [note for note in found.notes if "no logits" not in note] + fitted.notes
    told(notes)

    def begun(run: Run) -> None:
        write_json(run.folder / "transfer.json", {"source": source, "road": road, "notes": notes})
        announce(quiet)(run)

    with holding(fitted.tensors, title, learned_by(found.own)) as start:
        run = lab.train(
            replace(experiment, model=fitted.model), name=name, otherwise=title, start=start, runs=runs,
            prepared=prepared, device=device, quiet=quiet, begun=begun,
        )  # fmt: skip
    return Transferred(run, notes)


def setting_path(experiment: Experiment, assignment: str) -> tuple[str, ...]:
    """Which setting `name=value` is about; one of a part that is only now chosen is told by its own name."""
    name = assignment.partition("=")[0]
    try:
        return setting(experiment, name)
    except BadInput:
        return tuple(name.split("."))


def keep(found: Found, source: str, run: Run) -> Run:
    """A run of the model as it is: its own size and classes, and no pictures but those that it will be shown."""
    shape = found.shape
    mean, deviation = known(found.normalise, shape.channels)
    card = Card(
        found.title, shape.channels, shape.height, shape.width, found.classes or ("unlabelled",), mean, deviation,
        train=0, validation=0, test=0, fingerprint="", notes=tuple(found.notes),
    )  # fmt: skip
    experiment = Experiment(
        model=found.model, data=Data(source=NoPictures(), normalise=found.normalise), training=TRAINING
    )
    network = network_of(found)
    with run.hold():
        run.begin(experiment, card, torch.device("cpu"))
        write_json(run.folder / "transfer.json", {"source": source, "road": "as it was", "notes": found.notes})
        write_tensors(run.weights, network.state_dict(), {})
        nothing = Evaluation(torch.empty(0, len(card.classes)), torch.empty(0, dtype=torch.long))
        run.write_evaluation(nothing, {"parameters": sum(p.numel() for p in network.parameters())})
    return run
