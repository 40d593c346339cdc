"""Training and serving for as long as it is given: memory and file handles stay where they were once it was warm."""

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from apart import Started, command_line

from . import Outcome
from .serving import Server, Watched, served

SLICE = 2.0  # seconds of a step
WARM = 20.0  # seconds of work before anything is noted
ENDLESS = ("epochs=1000000", "limit=256", "batch=32", "patch=14", "width=16", "depth=2", "checkpoint=1", "ema=0.9")


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    """Slices of training and serving at once; training rests while it is another area's turn."""
    chance, here = random.Random(seed), folder / "training"
    here.mkdir(parents=True)
    training = Started(
        here, here, command_line, "train", "digits", *ENDLESS, "--quiet", "--device", "cpu", "--name", "run"
    )
    try:
        training.wait_for((here / "runs" / "run" / "checkpoint.safetensors").exists, 120)
        training.send(signal.SIGSTOP)
        with served(folder / "serving") as server:
            learner, page = Watched(training, WARM), Watched(server.started, WARM)
            metrics, done = here / "runs" / "run" / "metrics.jsonl", 0
            while True:
                training.send(signal.SIGCONT)
                asked, faults = answered(server, chance)
                training.send(signal.SIGSTOP)
                assert training.process.exitcode is None, training.said()
                before, done = done, metrics.read_bytes().count(b"\n")
                yield outcome("serving, looks", asked, page.after(SLICE), *faults)
                yield outcome("training, epochs", done - before, learner.after(SLICE))
    finally:
        training.send(signal.SIGKILL)
        training.process.join()


def outcome(what: str, done: int, *faults: str) -> Outcome:
    return Outcome(what, done, tuple(f"{what}, seconds: {fault}" for fault in faults if fault))


def answered(server: Server, chance: random.Random) -> tuple[int, list[str]]:
    """Look at pictures for a slice, with patches taken away: how often, and what went wrong."""
    until, asked, faults = time.monotonic() + SLICE, 0, []
    while time.monotonic() < until:
        reply = server.look(masked=chance.sample(range(49), chance.randrange(8)), relevance=chance.random() < 0.2)
        asked += 1
        faults += [] if reply.status == 200 else [f"answered with {reply.status}"]
    return asked, faults
