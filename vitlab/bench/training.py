"""The training step: zero the gradients, forward, cross-entropy, backward, AdamW, on a batch already in memory."""

import tempfile
from itertools import cycle
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.bench.contenders import CONTENDERS, DECAY, RATE, Contender
from vitlab.bench.measure import Call, Timing, take_turns
from vitlab.bench.record import Row, missing
from vitlab.bench.shapes import Work
from vitlab.data.dataset import DataSet, Part
from vitlab.data.prepared import Prepared, describe
from vitlab.engine.loop import Loop
from vitlab.engine.optimisers import AdamW, Schedule
from vitlab.engine.progress import Progress
from vitlab.engine.run import claim_run
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT

LOOP = "vitlab, whole loop step"


def compare_steps(work: Work, rounds: int, device: torch.device) -> list[Row]:
    """One row for each contender on one shape, and one for vitlab's own loop."""
    torch.manual_seed(0)
    pictures = torch.randn(work.batch, work.picture.channels, work.picture.height, work.picture.width, device=device)
    labels = torch.randint(0, work.classes, (work.batch,), device=device)
    here = [contender for contender in CONTENDERS if contender.installed]
    models = {contender.name: contender.build(work).to(device).train() for contender in here}
    steps: dict[str, Call] = {}
    for contender in here:
        model = models[contender.name]
        steps[contender.name] = step_of(model, contender.optimise(model), pictures, labels)
        steps[gradients(contender.name)] = gradients_of(model, pictures, labels)
    with tempfile.TemporaryDirectory() as folder:
        loop = loop_of(work, work.settings(), noise(work, 16 * work.batch), Path(folder), device=device)
        batches = cycle(torch.randperm(len(loop.data.train)).to(device).split(work.batch))
        steps[LOOP] = lambda: loop.train_step(next(batches))
        timings = take_turns(steps, rounds, repeats_for(work), device)
        count = sum(p.numel() for p in loop.session.network.parameters())
    rows = [step_row(contender, work, timings, models) for contender in CONTENDERS]
    note = "and gather, normalise, clip, watch the loss, count"
    whole = Row("training", work.name, LOOP, parameters=count, note=note)
    return [*rows, whole.timed(timings[LOOP], timings["vitlab"], work.batch)]


def step_row(contender: Contender, work: Work, timings: dict[str, Timing], models: dict[str, nn.Module]) -> Row:
    name = contender.name
    if not contender.installed:
        return missing("training", work.name, name, contender.package)
    count = sum(p.numel() for p in models[name].parameters())
    row = Row("training", work.name, name, parameters=count, note=contender.note(work))
    row = row.timed(timings[name], timings["vitlab"], work.batch)
    return row.with_gradients(timings[gradients(name)], timings[gradients("vitlab")])


def gradients(name: str) -> str:
    return f"{name}: gradients"


def repeats_for(work: Work) -> int:
    """Enough steps for a burst that a scheduler's tick does not blur."""
    return 1 if work.width > 64 else 5


def gradients_of(model: nn.Module, pictures: Tensor, labels: Tensor) -> Call:
    """The step without its optimiser, which is where the models alone differ."""

    def run() -> None:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(pictures), labels).backward()

    return run


def step_of(model: nn.Module, optimiser: torch.optim.Optimizer, pictures: Tensor, labels: Tensor) -> Call:
    def run() -> None:
        optimiser.zero_grad()
        F.cross_entropy(model(pictures), labels).backward()
        optimiser.step()

    return run


def noise(work: Work, count: int) -> DataSet:
    """Random pictures: how long a step takes does not depend on what is on them."""
    shape = (count, work.picture.channels, work.picture.height, work.picture.width)
    part = Part(torch.randint(0, 256, shape, dtype=torch.uint8), torch.arange(count) % work.classes)
    return DataSet("noise", tuple(map(str, range(work.classes))), part, part)


def loop_of(work: Work, model: ViT, data: DataSet, folder: Path, *, device: torch.device, epochs: int = 1) -> Loop:
    """vitlab's own loop in float32 with its default optimiser, on all of the training part."""
    training = Training(
        epochs=epochs,
        batch=work.batch,
        precision="float32",
        optimiser=AdamW(RATE, DECAY),
        schedule=Schedule(decay="none"),
    )
    experiment = Experiment(model=model, training=training)
    nothing = Part(data.train.pictures[:0], data.train.labels[:0])
    prepared = Prepared(describe(data, data.train, nothing), data.train, nothing, data.test)
    run = claim_run(folder, "run", exact=False)
    run.begin(experiment, prepared.card, device)
    return Loop(run, experiment, prepared, device, Progress(epochs, quiet=True))


def never() -> bool:
    """Nobody asks a benchmark to stop and save."""
    return False
