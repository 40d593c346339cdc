"""Gathers a finished run into the view that the report shows."""

import json
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from vitlab.data.prepared import Normalise, Prepared, unit
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run
from vitlab.model import MultiScaleTransformer, Network, Shape, Stream
from vitlab.report.content import Look, Mistake, View
from vitlab.settings import to_json

MISTAKES, LOOKS = 12, 6


def gather(run: Run, prepared: Prepared) -> View:
    """Everything the report shows, from the run folder and its pictures."""
    evaluation, card = run.evaluation, run.card
    looks, note = look(run.model(), prepared, evaluation)
    counts = torch.bincount(evaluation.labels)
    return View(
        title=run.name,
        facts=facts(run),
        accuracy=evaluation.accuracy,
        interval=evaluation.interval,
        count=evaluation.count,
        baseline=float(counts.max() / counts.sum()),
        epochs=run.metrics(),
        classes=card.classes,
        confusion=evaluation.confusion().numpy(),
        calibration=evaluation.calibration(),
        mistakes=mistakes(evaluation, prepared.test.pictures),
        looks=looks,
        looks_note=note,
        configuration=json.dumps(to_json(run.experiment), indent=2, ensure_ascii=False),
        commands=[
            ("Read the test part again", f"vitlab evaluate {run.folder}"),
            ("Classify your own picture", f"vitlab predict {run.folder} picture.png"),
            ("Train a variant of this run", f"vitlab train {run.folder / 'experiment.json'} depth=6 --name variant"),
        ],
        notes=card.notes,
    )


def facts(run: Run) -> dict[str, str]:
    card, result, environment = run.card, run.result, run.environment
    shape = Shape(card.channels, card.height, card.width)
    return {
        "Data": f"{card.name}, {shape} pixels, {len(card.classes)} classes",
        "Pictures": f"{card.train:,} to learn, {card.validation:,} held out, {card.test:,} to test",
        "Parameters": f"{result['parameters']:,}",
        "Epochs": str(result["epochs"]),
        "Training": f"{result['train_seconds']:.1f} s, {result['images_per_second']:,.0f} pictures/s",
        "Device": environment["device"],
        "Seed": str(result["seed"]),
        "Versions": ", ".join(f"{name} {number}" for name, number in environment["versions"].items()),
        "Date": environment["date"].replace("T", " ").replace("+00:00", " UTC"),
    }


def mistakes(evaluation: Evaluation, pictures: Tensor) -> list[Mistake]:
    """The wrong answers that cost most."""
    wrong = (evaluation.guesses != evaluation.labels).nonzero().flatten()
    worst = wrong[evaluation.losses[wrong].argsort(descending=True)][:MISTAKES].tolist()
    return [
        Mistake(
            pictures[i].numpy(), i, int(evaluation.labels[i]), int(evaluation.guesses[i]),
            evaluation.probabilities[i].numpy(),
        )
        for i in worst
    ]  # fmt: skip


def look(model: Network, prepared: Prepared, evaluation: Evaluation) -> tuple[list[Look], str]:
    """Attention on one test picture of each of the first classes, on every grid of patches."""
    chosen = [int((evaluation.labels == label).nonzero()[0]) for label in evaluation.labels.unique()[:LOOKS]]
    pictures = prepared.test.pictures[chosen]
    looks = []
    with torch.inference_mode():
        seen = Normalise(prepared.card, torch.device("cpu"))(unit(pictures))
        apart = isinstance(model, MultiScaleTransformer) or model.across == "tokens"
        laid = list(grids(model.trace(seen).all())) if apart else []
    for maps, rest in laid:
        for place, index in enumerate(chosen):
            guess = int(evaluation.guesses[index])
            looks.append(
                Look(
                    pictures[place].numpy(), int(evaluation.labels[index]), guess,
                    float(evaluation.probabilities[index, guess]), maps[place], rest[place],
                )
            )  # fmt: skip
    return looks, describe_reading(model)


def grids(streams: Iterable[Stream]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each grid of each stream: maps (b, layers, heads, rows, columns), and the share on extra tokens."""
    for stream in streams:
        layers = stream.maps().layers
        if layers:
            read = torch.stack([layer[..., stream.read, :].mean(dim=-2) for layer in layers], dim=1)
            rest = read[..., : stream.layout.extra].sum(-1)
            for maps in stream.layout.on_grids(read):
                yield maps.numpy(), rest.numpy()


def describe_reading(model: Network) -> str:
    """What the maps show, for the head that this model has."""
    if isinstance(model, MultiScaleTransformer):
        return "averaged over the tokens that look, one map for each scale"
    head = model.head
    if head.read.stop - head.read.start > 1:
        return "averaged over the patches that look, as the mean head reads them"
    return (
        "from the class token to each patch"
        if head.read.start == 0 and model.layout.extra
        else "from the first patch to each patch"
    )
