"""What a network learned without labels: pictures it restored, pictures it finds alike, and a map of its features."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitlab.data.dataset import Part, all_over
from vitlab.data.prepared import Normalise, Prepared, unit
from vitlab.data.rows import Pictures
from vitlab.engine.cost import flops
from vitlab.engine.probe import Reader
from vitlab.engine.run import Run, load_weights
from vitlab.engine.storage import read_tensors
from vitlab.look.features import alike, tsne
from vitlab.model import Network
from vitlab.objectives import Dino, Objective, Supervised
from vitlab.objectives.mae import Autoencoder
from vitlab.report.content import Neighbour, Neighbours, Restored, Unlabelled

RESTORED, ASKED, NEAR = 8, 6, 6
POINTS = 1_000  # of the map: about two seconds
SEARCHED = 1_000, 10_000  # training pictures, at least and at most
EFFORT = 2e12  # operations on them where there is no GPU, so that a report stays a matter of seconds
GREY = 0.5  # a hidden patch


def gather(run: Run, prepared: Prepared, network: Network, device: torch.device) -> Unlabelled | None:
    """What is shown of a run that learned without labels; nothing of any other."""
    experiment, result = run.experiment, run.result
    if isinstance(experiment.objective, Supervised):
        return None
    read = Reader(network, Normalise(prepared.card, device), bfloat16=False, at_once=experiment.testing.at_once)
    tested = len(prepared.test) > 0
    part = prepared.test if tested else prepared.validation
    known, mapped = all_over(len(prepared.train), searched(network, device)), all_over(len(part), POINTS)
    patches, restored = restore(run, prepared, part, device)
    return Unlabelled(
        aim=aim(experiment.objective),
        knn_accuracy=result.get("knn_accuracy"),
        pixels_accuracy=result.get("pixels_knn_accuracy"),
        apart=apart(result),
        part="test" if tested else "held-out",
        patches=patches,
        restored=restored,
        neighbours=neighbours(read, prepared.train, known, part),
        searched=(len(known), len(prepared.train)),
        points=tsne(features(read, part.pick(mapped).pictures)).double().numpy(),
        indices=mapped.numpy(),
        labels=part.labels[mapped].numpy(),
    )


def apart(result: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """On how many test pictures neighbours by features and by pixels differ in being right; older runs do not say."""
    names = ("knn_alone", "pixels_alone", "pixels_count")
    if any(name not in result for name in names):
        return None
    first, second, count = (int(result[name]) for name in names)
    return first, second, count


def searched(network: Network, device: torch.device) -> int:
    """Among how many training pictures neighbours are sought."""
    least, most = SEARCHED
    return most if device.type != "cpu" else int(min(max(EFFORT / flops(network), least), most))


def aim(objective: Objective) -> str:
    return "apart" if isinstance(objective, Dino) and not objective.prototypes else objective.kind


def chosen(part: Part, most: int) -> list[int]:
    """The first picture of each of the first classes, and where there are fewer classes, others from all over."""
    first = [int((part.labels == label).nonzero()[0]) for label in part.labels.unique()[:most]]
    others = [place for place in all_over(len(part), 2 * most).tolist() if place not in first]
    return [*first, *others][:most]


def features(read: Reader, pictures: Pictures) -> Tensor:
    return read(pictures.to(read.normalise.mean.device)).cpu() if len(pictures) else torch.zeros(0, 1)


def restore(run: Run, prepared: Prepared, part: Part, device: torch.device) -> tuple[tuple[int, int], list[Restored]]:
    """Pictures as an autoencoder restores them, and how many of their patches it sees; nothing without one."""
    places = chosen(part, RESTORED)
    if not run.kept.exists() or not places:
        return (0, 0), []
    with torch.random.fork_rng():
        learner = run.experiment.objective.build(run.model())
    if not isinstance(learner, Autoencoder):
        return (0, 0), []
    load_weights(learner.decoder, read_tensors(run.kept)[0], run.kept)
    learner, normalise = learner.to(device).eval(), Normalise(prepared.card, device)
    originals = part.pictures[places]
    count = len(learner.cells)
    order = torch.rand(len(places), count, generator=torch.Generator().manual_seed(0)).argsort(dim=1).to(device)
    with torch.inference_mode():
        pictures = normalise(unit(originals.to(device)))
        shown, drawn = (picture * normalise.deviation + normalise.mean for picture in learner.restore(pictures, order))
        seen = learner.cells.show(torch.ones_like(pictures), order[:, : learner.shown]) > 0
        shown = shown.where(seen, torch.full_like(shown, GREY))
    labels = part.labels[places].tolist()
    rows = zip(places, labels, pixels(shown), pixels(drawn), originals.numpy(), strict=True)
    return (learner.shown, count), [Restored(*row) for row in rows]


def pixels(pictures: Tensor) -> np.ndarray:
    """0 … 1, and a little beyond → uint8."""
    return (pictures.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()


def neighbours(read: Reader, train: Part, known: Tensor, part: Part) -> list[Neighbours]:
    """For some pictures of a part, those of the `known` training pictures that have the likest features."""
    places = chosen(part, ASKED)
    if not places:
        return []
    cosines, near = alike(features(read, train.pick(known).pictures), features(read, part.pictures[places]), NEAR)
    found = []
    for place, row, cosine in zip(places, known[near].tolist(), cosines.tolist(), strict=True):
        like = [
            Neighbour(train.pictures[at].numpy(), at, int(train.labels[at]), value)
            for at, value in zip(row, cosine, strict=True)
        ]
        found.append(Neighbours(place, int(part.labels[place]), part.pictures[place].numpy(), like))
    return found
