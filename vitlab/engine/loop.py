"""The one training loop."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.data.prepared import Normalise, Prepared, move, unit
from vitlab.engine.evaluation import Evaluation, evaluate_part
from vitlab.engine.progress import Progress
from vitlab.engine.run import Run
from vitlab.engine.session import Session
from vitlab.engine.storage import read_tensors, write_tensors
from vitlab.errors import BadInput
from vitlab.experiment import Experiment


class Stopped(Exception):
    """The user asked the run to stop; its state is saved."""


class Diverged(BadInput):
    """The loss or its gradient is no longer a number."""


class Loop:
    """Trains one run from its checkpoint, or from the beginning, to the end."""

    def __init__(self, run: Run, experiment: Experiment, data: Prepared, device: torch.device, progress: Progress):
        self.run, self.experiment, self.device, self.progress = run, experiment, device, progress
        self.data = Prepared(data.card, *(move(part, device) for part in (data.train, data.validation, data.test)))
        self.normalise = Normalise(data.card, device)
        self.bfloat16 = use_bfloat16(experiment.training.precision, device)
        self.chance = Chance(device)
        self.batch = min(experiment.training.batch, len(self.data.train))
        steps_per_epoch = len(self.data.train) // self.batch
        steps = experiment.training.epochs * steps_per_epoch
        self.chance.start(experiment.seed)
        self.session = Session(run.build().to(device), experiment, steps, steps_per_epoch)
        self.compile_seconds = 0.0
        self.saved_step: int | None = None
        self.saved_at = time.monotonic()
        self.bad = torch.full((), -1, dtype=torch.int64, device=device)

    def train(self) -> Evaluation:
        """Train to the end, save the weights, and read the test part once."""
        session = self.session
        if self.run.checkpoint.exists():
            session.restore(*read_tensors(self.run.checkpoint), self.run.checkpoint)
            self.saved_step = session.step
        self.run.forget_after(session.step)
        forward = self.compiled() if self.experiment.training.compile else session.network
        with stop_requests() as asked, self.progress.training(session.steps, session.step):
            while session.step < session.steps:
                self.train_epoch(forward, asked)
        write_tensors(self.run.weights, session.evaluated.state_dict(), session.facts())
        result = evaluate_part(session.evaluated, self.data.test, self.normalise, self.bfloat16)
        self.run.write_evaluation(result, self.facts())
        return result

    def train_epoch(self, forward: nn.Module, asked: Callable[[], bool]) -> None:
        """From wherever the epoch stands to its end: steps, validation, metrics, checkpoint."""
        session, epoch = self.session, self.session.epoch
        order = torch.from_numpy(
            np.random.default_rng([self.experiment.seed, 0, epoch]).permutation(len(self.data.train))
        )
        batches = order.to(self.device).split(self.batch)
        started, first, before = time.monotonic(), session.step, session.seconds

        def measure() -> dict[str, Any]:
            return self.metrics(epoch, first, session.seconds - before)

        for place in range(session.step % session.steps_per_epoch, session.steps_per_epoch):
            self.train_step(forward, batches[place])
            session.seconds = before + time.monotonic() - started
            self.progress.step(session.step, measure)
            if place + 1 < session.steps_per_epoch:
                self.pause(asked)
        self.check_bad()
        line = measure()
        if len(self.data.validation):
            held_out = evaluate_part(session.evaluated, self.data.validation, self.normalise, self.bfloat16)
            line |= {"validation_loss": held_out.loss, "validation_accuracy": held_out.accuracy}
        session.totals.zero_()
        session.seconds = before + time.monotonic() - started
        self.run.add_metrics(line | {"seconds": round(session.seconds, 3)})
        self.progress.epoch(line)
        self.pause(asked)

    def train_step(self, forward: nn.Module, chosen: Tensor) -> None:
        """One batch: gather, augment, normalise, loss, gradients, step."""
        session, train = self.session, self.data.train
        self.chance.start(self.experiment.seed, 1, session.step)
        session.set_rate()
        pictures = self.experiment.augment(unit(train.pictures[chosen]), self.chance.device)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, correct = self.experiment.objective.loss(
                forward, self.normalise(pictures), train.labels[chosen], self.chance
            )
        loss.backward()
        self.watch(loss.detach(), self.clip())
        session.count(loss.detach(), correct, len(chosen))
        session.advance()

    def clip(self) -> Tensor:
        """Shorten the gradient to the longest allowed; returns the norm it had."""
        longest = self.experiment.training.clip or float("inf")
        return nn.utils.clip_grad_norm_(self.session.parameters, longest, foreach=True)

    def watch(self, loss: Tensor, norm: Tensor) -> None:
        """Note the first step whose loss or gradient is not a number; a GPU is asked only now and then."""
        fine = torch.isfinite(loss) & torch.isfinite(norm)
        self.bad = torch.where(fine | (self.bad >= 0), self.bad, self.session.step)
        if self.device.type == "cpu" and not fine:
            self.check_bad()

    def check_bad(self) -> None:
        step = int(self.bad)
        if step < 0:
            return
        kept = (
            f"the last good checkpoint is step {self.saved_step}" if self.saved_step else "no checkpoint was saved yet"
        )
        raise Diverged(
            f"the loss is no longer a number at step {step} (epoch {step // self.session.steps_per_epoch + 1}); {kept} "
            f"in {self.run.folder}; try a lower learning_rate, a longer warmup or a smaller clip"
        )

    def metrics(self, epoch: int, first: int, seconds: float) -> dict[str, Any]:
        """The epoch so far."""
        loss, correct, seen = self.session.totals.tolist()
        return {
            "epoch": epoch + 1,
            "step": self.session.step,
            "loss": loss / seen,
            "accuracy": correct / seen,
            "learning_rate": self.session.rate,
            "images_per_second": round((self.session.step - first) * self.batch / max(seconds, 1e-9), 1),
        }

    def pause(self, asked: Callable[[], bool]) -> None:
        """Between two steps: save where it is time to, and stop where the user asked."""
        finished = self.session.step == self.session.steps
        stopping = asked() and not finished
        if stopping or finished or time.monotonic() - self.saved_at >= self.experiment.training.checkpoint:
            self.save()
        if stopping:
            raise Stopped(
                f"stopped after step {self.session.step} of {self.session.steps}, nothing is lost; "
                f"go on with: vitlab resume {self.run.folder}"
            )

    def save(self) -> None:
        self.check_bad()
        write_tensors(self.run.checkpoint, self.session.tensors(), self.session.facts())
        self.saved_step, self.saved_at = self.session.step, time.monotonic()

    def compiled(self) -> nn.Module:
        """The compiled model, warmed up on one batch outside the clock; the weights stay as they were."""
        started = time.monotonic()
        forward: nn.Module = torch.compile(self.session.network)  # type: ignore[assignment]
        pictures = unit(self.data.train.pictures[: self.batch])
        for _ in range(3):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
                forward(self.normalise(pictures)).float().sum().backward()
            self.session.network.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.compile_seconds = time.monotonic() - started
        return forward

    def facts(self) -> Mapping[str, Any]:
        session = self.session
        seen = session.step * self.batch
        return {
            "seed": self.experiment.seed,
            "epochs": self.experiment.training.epochs,
            "train_seconds": round(session.seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "images_per_second": round(seen / max(session.seconds, 1e-9), 1),
            "parameters": sum(p.numel() for p in session.network.parameters()),
        }


def use_bfloat16(precision: str, device: torch.device) -> bool:
    return precision == "bfloat16" or (precision == "auto" and device.type == "cuda")


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C or SIGTERM into a request that the loop answers between two steps."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {kind: signal.getsignal(kind) for kind in (signal.SIGINT, signal.SIGTERM)}

    def ask(kind: int, _frame: object) -> None:
        asked.set()
        signal.signal(kind, before[signal.Signals(kind)])  # a second one is not waited for

    for kind in before:
        signal.signal(kind, ask)
    try:
        yield asked.is_set
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
