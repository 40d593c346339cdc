"""Whether several trainings on one device do more together than one alone: by a short measurement of both."""

import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.synchronize import Barrier

import torch
from torch import Tensor

from vitlab.engine.loop import use_bfloat16
from vitlab.engine.replay import Replay
from vitlab.experiment import Experiment
from vitlab.model import Shape
from vitlab.processes import interrupts_held, note_interrupts

WARM = 6  # steps before the clock starts
SECONDS = 1.5  # of the measurement
PATIENCE = 60.0  # seconds in which all processes must be ready
WORTH = 1.1  # how many times as much several must do to be worth their memory


def chosen(experiment: Experiment, shape: Shape, classes: int, device: torch.device, most: int) -> tuple[int, str]:
    """One worker or `most`, and why in one line."""
    if most == 1:
        return 1, "1 worker: there are too few cores to feed more"
    alone = rate(experiment, shape, classes, device, 1)
    together = rate(experiment, shape, classes, device, most)
    if not together:
        return 1, f"1 worker: {most} at once have no room on the {device.type}"
    gain = together / alone if alone else 0.0
    count = most if gain > WORTH else 1
    done = f"{most} at once do {gain:.2g} times the steps of one, by a short measurement"
    return count, f"{count} worker{'s' * (count > 1)}: {done}"


def rate(experiment: Experiment, shape: Shape, classes: int, device: torch.device, count: int) -> float:
    """Steps a second of so many processes together; 0 where one of them fails, most often for want of memory."""
    context = forks()
    meeting, pipes = context.Barrier(count), []
    for _ in range(count):
        mine, theirs = context.Pipe(duplex=False)
        given = (experiment, shape, classes), device.type, meeting, theirs
        process = context.Process(target=walk, args=given, daemon=True)
        with interrupts_held():
            process.start()
        theirs.close()
        pipes.append((mine, process))
    total = 0.0
    for pipe, process in pipes:
        try:
            total += pipe.recv()
        except EOFError:
            total = float("nan")
        process.join()
    return total if total > 0 else 0.0


def forks() -> ForkServerContext:
    """Where processes come from: all that is large is imported once, for all of them."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", "vitlab.study.crew"])
    return context


def walk(model: tuple[Experiment, Shape, int], kind: str, meeting: Barrier, pipe: Connection) -> None:
    """Tell how many steps a second this process does, while the others walk too."""
    note_interrupts()  # Ctrl-C is answered by the parent, and this one ends with it
    torch.set_num_threads(1)
    wait = torch.cuda.synchronize if kind == "cuda" else nothing
    try:
        step = stepping(*model, torch.device(kind))
        for _ in range(WARM):
            step()
        wait()
        meeting.wait(PATIENCE)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < SECONDS:
            for _ in range(4):  # a GPU is not asked after every step
                step()
            wait()
            done += 4
        pipe.send(done / (time.perf_counter() - began))
    except RuntimeError:  # memory is out, in torch's words, or another process is gone, in the barrier's
        meeting.abort()


def stepping(experiment: Experiment, shape: Shape, classes: int, device: torch.device) -> Callable[[], None]:
    """A step of the model, all but the optimiser's part, on a batch of the recipe's size; recorded where it is."""
    network, training = experiment.model.build(shape, classes).to(device), experiment.training
    batch = torch.zeros(training.batch, shape.channels, shape.height, shape.width, device=device)
    bfloat16 = use_bfloat16(training.precision, device)

    def step(pictures: Tensor) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
            loss = network(pictures).float().square().mean()
        loss.backward()

    work = Replay(step) if training.graph and device.type == "cuda" else step
    return lambda: work(batch)


def nothing() -> None:
    """A CPU is never waited for."""
