"""Gathers a finished run into the view that the report shows."""

import json
import math
import shlex

import torch
from torch import Tensor

from vitlab.data.dataset import all_over
from vitlab.data.prepared import Normalise, Prepared, unit
from vitlab.data.rows import Pictures
from vitlab.engine.cost import flops
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.look import Shown, inside, look, places, trust
from vitlab.model import Network, Shape
from vitlab.objectives import Supervised
from vitlab.report import calibration, explorer, unlabelled, words
from vitlab.report.content import Insight, Mistake, Probe, View
from vitlab.settings import to_json

MISTAKES, LOOKS = 12, 6
TESTED, STEPS = 48, 10  # pictures and steps of the test of the maps: a few seconds, so its intervals are wide


def gather(run: Run, prepared: Prepared, device: torch.device) -> View:
    """Everything the report shows, from the run folder and its pictures."""
    evaluation, card = run.evaluation, run.card
    network = run.model().to(device)
    insight, reason = look_inside(network, prepared, evaluation)
    counts = torch.bincount(evaluation.labels)
    return View(
        title=run.name,
        facts=facts(run, network),
        accuracy=evaluation.accuracy,
        interval=evaluation.interval,
        count=evaluation.count,
        baseline=float(counts.max() / counts.sum()) if evaluation.count else math.nan,
        epochs=run.metrics(),
        classes=card.classes,
        confusion=evaluation.confusion().numpy(),
        calibration=evaluation.calibration(),
        mistakes=mistakes(evaluation, prepared.test.pictures),
        insight=insight,
        no_insight=reason,
        configuration=json.dumps(to_json(run.experiment), indent=2, ensure_ascii=False),
        commands=commands(run),
        notes=card.notes,
        probe=probe_of(run),
        balance=balance(evaluation),
        temperature=calibration.of_temperature(run, evaluation.calibration()),
        unlabelled=unlabelled.gather(run, prepared, network, device),
    )


def balance(evaluation: Evaluation) -> str:
    """The accuracy where each class counts alike, if some have many times the pictures of others."""
    if not evaluation.uneven:
        return ""
    there = evaluation.tested[evaluation.tested > 0]
    share = words.percent(evaluation.balanced_accuracy, words.digits(evaluation.count))
    counts = f"from {words.grouped(int(there.min()))} to {words.grouped(int(there.max()))}"
    return f"The classes have {counts} test pictures; where each counts alike, the balanced accuracy is {share}."


def commands(run: Run) -> list[tuple[str, str]]:
    """What to do next: what it does, and the shell command."""
    folder = str(run.folder)
    found = [
        ("Read the test part again", "evaluate", folder),
        ("Classify your own picture", "predict", folder, "picture.png"),
        ("Look inside at your own picture", "look", folder, "picture.png"),
    ]
    if not run.card.labelled:
        own = "Train it further on pictures of yours that have labels"
        found = [(own, "finetune", folder, "data.source=folder:PATH")]
    elif not isinstance(run.experiment.objective, Supervised):
        found.append(("Train the whole network further, on labels", "finetune", folder))
    variant = ("Train a variant of this run", "train", f"{folder}/experiment.json", "depth=6", "--name", "variant")
    return [(what, shlex.join(["vitlab", *words])) for what, *words in (*found, variant)]


def probe_of(run: Run) -> Probe | None:
    """What there is to say of a run that only fitted logits to weights from elsewhere; nothing of any other."""
    result, card = run.result, run.card
    if result["epochs"] or "probe_decay" not in result:
        return None
    decay, knn, pixels = (result[name] for name in ("probe_decay", "knn_accuracy", "pixels_knn_accuracy"))
    return Probe(card.train, card.validation, decay, knn, pixels, unlabelled.apart(result))


def facts(run: Run, network: Network) -> dict[str, str]:
    card, result, environment = run.card, run.result, run.environment
    shape = Shape(card.channels, card.height, card.width)
    speed = f"{result['train_seconds']:.1f} s, {result['images_per_second']:,.0f} pictures/s"
    return {
        "Data": f"{card.name}, {shape} pixels, " + (f"{len(card.classes)} classes" if card.labelled else "no labels"),
        "Pictures": f"{card.train:,} to learn, {card.validation:,} held out, {card.test:,} to test",
        "Parameters": f"{result['parameters']:,}",
        "Operations": f"{words.large(flops(network))} a picture",
        "Epochs": str(result["epochs"]),
        "Training": "a linear probe alone" if probe_of(run) else speed,
        "Peak memory": words.memory(result["peak_memory"]) if "peak_memory" in result else words.MISSING,
        "Device": environment["device"],
        "Seed": str(result["seed"]),
        "Versions": ", ".join(f"{name} {number}" for name, number in environment["versions"].items()),
        "Date": environment["date"].replace("T", " ").replace("+00:00", " UTC"),
    }


def mistakes(evaluation: Evaluation, pictures: Pictures) -> list[Mistake]:
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


def look_inside(network: Network, prepared: Prepared, evaluation: Evaluation) -> tuple[Insight | None, str]:
    """The maps of one test picture of each of the first classes, put to the test on some more; or why not."""
    labels = evaluation.labels
    if not len(labels):
        return None, "there are no test pictures to look at"
    chosen = evaluation.first_of_each_class(LOOKS)
    normalise = Normalise(prepared.card, torch.device("cpu"))
    shown = tuple(Shown(prepared.test.pictures[i].numpy(), f"test:{i}", truth=int(labels[i])) for i in chosen)
    try:
        pictures = normalise(unit(prepared.test.pictures[chosen]))
        seen = look(network, pictures, shown=shown, classes=prepared.card.classes)
    except BadInput as reason:
        return None, str(reason)
    if not any(stream.attention.shape[1] for stream in seen.streams):
        return None, "this model has no blocks, so there is no attention"
    tested = some_pictures(prepared, TESTED)
    trusted = trust(network, tested, inside(network, tested), steps=STEPS, orders=1)
    return Insight(seen, explorer.gather(network, seen), trusted, places(network)), ""


def some_pictures(prepared: Prepared, count: int) -> Tensor:
    """So many pictures from all over the test part, normalised."""
    some = all_over(len(prepared.test), count)
    return Normalise(prepared.card, torch.device("cpu"))(unit(prepared.test.pictures[some]))
