"""What a verb is given: a run, a device, pictures, an experiment; found, or refused in one line."""

from collections.abc import Sequence
from pathlib import Path

import torch

from vitlab.data import data_folder
from vitlab.data.prepared import Card, Data, Prepared, prepare
from vitlab.engine.building import build
from vitlab.engine.evaluation import counted
from vitlab.engine.run import Run, open_run, take_start
from vitlab.engine.storage import read_tensors
from vitlab.engine.team import check_gpus
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.model import Network, Shape
from vitlab.objectives import Dino, Supervised


def as_run(run: Run | Path | str) -> Run:
    return run if isinstance(run, Run) else open_run(Path(run))


Files = Sequence[Path | str] | Path | str


def picture_files(given: Files) -> list[Path]:
    """The files of pictures that a caller names, one or several."""
    several = [given] if isinstance(given, Path | str) else list(given)
    for each in several:
        if not isinstance(each, Path | str):
            raise BadInput(f"pictures are named by their files here, and one was given as a {type(each).__name__}")
    return [Path(each) for each in several]


def load_data(experiment: Experiment, folder: Path | str | None) -> Prepared:
    return prepare(experiment.data, data_folder(Path(folder) if folder else None))


class Loaded:
    """What an experiment learns from, on a device; kept until other pictures are wanted, as runs follow one another."""

    def __init__(self, folder: Path | str | None, device: torch.device):
        self.folder, self.device = folder, device
        self.last: tuple[Data, Prepared] | None = None

    def of(self, experiment: Experiment) -> Prepared:
        if self.last is None or self.last[0] != experiment.data:
            self.last = None  # the old ones go before there are new ones
            self.last = experiment.data, load_data(experiment, self.folder).on(self.device)
        return self.last[1]


def find_device(name: str) -> torch.device:
    """auto: a GPU where there is one, else the CPU. `cuda:1` makes that GPU the current one."""
    try:
        device = torch.device(name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu")
        if device.type == "cuda" and torch.cuda.is_available():
            check_gpus()
            if device.index is not None:
                torch.cuda.set_device(device)
        if name != "auto":
            torch.empty(1, device=device).tolist()  # what cannot be read back, such as meta, cannot be used
    except (RuntimeError, AssertionError, NotImplementedError):
        others = "auto or cpu" if name.startswith("cuda") else "auto, cpu or cuda"
        raise BadInput(f"no device '{name}' here: use {others}") from None
    return device


def tested_on(run: Run, data: Path | str | None) -> Prepared:
    """The run's pictures, if they are still those of its training and test: a folder that has changed is split anew."""
    prepared = load_data(run.experiment, data)
    now, then = prepared.card, run.card
    same = (now.fingerprint, now.classes) == (then.fingerprint, then.classes)
    if not (same and (then.tested == now.tested if then.tested else same_labels(run, prepared))):
        raise BadInput(
            f"the pictures of {run.folder} have changed since it was trained, and it may have learned from some that "
            "would test it now: put back what was there, or train it anew"
        )
    return prepared


def same_labels(run: Run, prepared: Prepared) -> bool:
    """Whether the test part has the labels that a run was tested on, which has no fingerprint of it, as it is older."""
    if not run.finished:
        return True
    labels = run.evaluation.labels
    return torch.equal(prepared.test.labels[: len(labels)], labels)


def check_finished(run: Run) -> None:
    if not run.finished:
        raise BadInput(f"{run.folder} is not finished: go on with 'vitlab resume {run.folder}'")


def check_same(run: Run, experiment: Experiment, card: Card | None = None) -> None:
    """Refuse to go on with a run of other settings or, where they are known, of other pictures."""
    other_pictures = card is not None and run.card.fingerprint != card.fingerprint
    if run.experiment != experiment or other_pictures:
        what = "pictures" if run.experiment == experiment else "settings"
        raise BadInput(f"{run.folder} is a run of other {what}: move it away, or choose another folder")


def check_that_it_builds(experiment: Experiment, card: Card, start: Run | None = None) -> None:
    counted(card.test, experiment.testing)
    if isinstance(experiment.objective, Supervised) and not card.labelled:
        raise BadInput(
            f"the pictures of {card.name} have no labels: put those of each class in a folder of its own, or learn "
            "without labels by 'vitlab pretrain dino'"
        )
    if isinstance(experiment.objective, Dino) and experiment.training.ema:
        raise BadInput("ema keeps a running mean of the weights, and dino's teacher is one already: use ema=0")
    if experiment.augment.by_turns and not experiment.augment.flip:
        raise BadInput("by_turns says when a picture is mirrored, and none is: use flip=yes with it")
    if isinstance(experiment.objective, Dino) and experiment.augment.by_turns:
        raise BadInput(
            "by_turns mirrors all views of a picture alike, and dino learns from how they differ: use by_turns=no"
        )
    alone = min(experiment.training.batch, card.train) < 2
    if isinstance(experiment.objective, Dino) and not experiment.objective.prototypes and alone:
        raise BadInput("without prototypes dino likens a picture to the others of its batch: use batch=2 or more")
    network = build(experiment.model, Shape(card.channels, card.height, card.width), len(card.classes))
    if start is not None:
        begin_from(start, network, card)
    learner, training = experiment.objective.build(network), experiment.training
    training.tuning.prepare(learner)
    training.optimiser.build(learner, training.tuning.paces(learner))


def begin_from(start: Run, network: Network, card: Card) -> None:
    """Take another run's weights, or say why they do not fit; most often the pictures have another size."""
    try:
        take_start(network, read_tensors(start.weights)[0], start.weights)
    except BadInput:
        then, now = (f"{each.channels}×{each.height}×{each.width}" for each in (start.card, card))
        if then == now:
            raise
        old, given = start.card, start.name if start.shipped else start.folder
        other = [f"data.source.size={old.height}x{old.width}"] * ((old.height, old.width) != (card.height, card.width))
        other += [f"data.source.channels={old.channels}"] * (old.channels != card.channels)
        raise BadInput(
            f"{start.name} learned from pictures of {then}, and these are {now}: read them as it did, where they are "
            f"your own by {' '.join(other)}, or fit it to them by 'vitlab transfer {given}'"
        ) from None
