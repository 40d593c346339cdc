"""The one training loop."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.data.dataset import Part
from vitlab.data.prepared import Normalise, Prepared, unit
from vitlab.engine import memory
from vitlab.engine.compiler import compiler_trouble, hushed, in_compiled_parts
from vitlab.engine.evaluation import Evaluation, counted, evaluate_part, in_numbers
from vitlab.engine.modes import float32_products
from vitlab.engine.probe import Reader, give_head, glance
from vitlab.engine.progress import Progress
from vitlab.engine.replay import Replays
from vitlab.engine.run import Run
from vitlab.engine.session import Session
from vitlab.engine.step import WholeStep
from vitlab.engine.storage import read_tensors, write_tensors
from vitlab.engine.team import ALONE, Team
from vitlab.engine.tuning import LowRank, merge
from vitlab.errors import BadInput
from vitlab.experiment import Experiment, Testing
from vitlab.model import VisionTransformer

Step = Callable[..., tuple[Tensor, Tensor, Tensor | None]]
AGREED = 8  # steps between two questions of several processes to one another, whether to save or to stop


class Stopped(Exception):
    """The user asked the run to stop; its state is saved."""


class Diverged(BadInput):
    """The loss or its gradient is no longer a number."""


class Loop:
    """Trains one run from its checkpoint, or from the beginning, to the end; alone, or as one of several processes."""

    def __init__(
        self,
        run: Run,
        experiment: Experiment,
        data: Prepared,
        device: torch.device,
        progress: Progress,
        *,
        team: Team = ALONE,
    ):
        self.run, self.experiment, self.device, self.progress, self.team = run, experiment, device, progress, team
        memory.begin(device)
        self.data = data.on(device)
        self.normalise = Normalise(data.card, device)
        self.bfloat16 = use_bfloat16(experiment.training.precision, device)
        self.chance = Chance(device)
        self.batch = min(experiment.training.batch, len(self.data.train))
        share = team.share(self.batch, device)
        kept = self.data.train.kept
        self.own = slice(None) if share is None else share.places.to(kept)  # this process's pictures of a batch
        self.seen = self.batch if share is None else len(share.places)
        steps_per_epoch = len(self.data.train) // self.batch
        steps = experiment.training.epochs * steps_per_epoch
        self.chance.start(experiment.seed)
        learner = experiment.objective.build(run.build())
        experiment.training.tuning.prepare(learner)
        learner = learner.to(device)
        if share is not None:
            if isinstance(learner.network, VisionTransformer) and learner.network.across == "batch":
                raise BadInput("across=batch mixes the pictures of a whole batch: train it in one process")
            self.chance = Chance(device, share)
            learner.mean_over_team = lambda mean: team.sum(mean * (self.seen / self.batch))
            learner.gather_over_team = lambda rows: (team.sum(share.laid(rows)), share.places)
        self.session = Session(learner, experiment, steps, steps_per_epoch)
        self.forward: nn.Module = learner
        self.step: Step = self.step_by_parts
        self.learn: Callable[..., None] = self.learn_batch
        if experiment.training.graph and device.type == "cuda" and team.alone:
            self.session.allow_recording()
            self.learn = Replays(self.learn_batch)
        self.first_turn = self.mirrored_first() if experiment.augment.by_turns else None
        self.compile_seconds = 0.0
        self.measured = (0, 0.0)  # step and seconds of the last measurement
        self.saved_step: int | None = None
        self.saved_at = time.monotonic()
        self.place = torch.zeros((), dtype=torch.int64, device=device)  # the step, where a recorded one can read it
        self.bad = torch.full((), -1, dtype=torch.int64, device=device)

    def mirrored_first(self) -> Tensor:
        """Which pictures are mirrored in the first epoch, the third, the fifth …: half of them, by the seed."""
        drawn = np.random.default_rng([self.experiment.seed, 2]).random(len(self.data.train)) < 0.5
        return torch.from_numpy(drawn).to(self.device)

    def train(self) -> Evaluation:
        """Train to the end, save the weights, and read the test part once."""
        session, training = self.session, self.experiment.training
        if self.run.checkpoint.exists():
            session.restore(*read_tensors(self.run.checkpoint), self.run.checkpoint)
            self.saved_step = session.step
            session.totals *= self.team.leads  # those of all processes: the leader takes them over
        self.measured = (session.step, session.seconds)
        self.place.fill_(session.step)
        self.run.forget_after(session.step)
        with (
            stop_requests() as asked,
            float32_products(tf32=training.precision == "tf32" and self.device.type == "cuda"),
        ):
            if training.compile:
                self.compile()
            self.forward = self.team.wrap(self.forward, session.learner.labelled)
            with self.progress.training(session.steps, session.step):
                while session.step < session.steps:
                    self.train_epoch(asked)
        for learner in (session.learner, session.average):
            if learner is not None:
                merge(learner)
        facts = self.facts() | self.judged()
        write_tensors(self.run.weights, session.evaluated.state_dict(), session.facts())
        result = self.evaluate(self.data.test, self.experiment.testing)
        self.run.write_evaluation(result, facts | self.mirrored(result))
        return result

    def judged(self) -> dict[str, float]:
        """What was learned without labels, here or elsewhere: its head becomes a linear probe, beside neighbours."""
        learner, network = self.session.learner, self.session.evaluated
        if not isinstance(network, VisionTransformer):
            return {}
        if learner.labelled:  # without a step, logits on weights from elsewhere would be drawn
            probed = self.run.start.exists() and not self.session.steps
            return give_head(network, self.reader(), self.data) if probed else {}
        write_tensors(self.run.kept, (self.session.average or learner).kept(), {})
        return give_head(network, self.reader(), self.data) if self.data.card.labelled else {}

    def reader(self) -> Reader:
        return Reader(self.session.evaluated, self.normalise, self.bfloat16, self.experiment.testing.at_once)

    def mirrored(self, result: Evaluation) -> dict[str, float]:
        """The accuracy of the mean of a picture's logits and its mirror image's, where it is asked for."""
        if not self.experiment.testing.mirror:
            return {}
        other = self.evaluate(self.data.test, self.experiment.testing, lambda unit: self.normalise(unit.flip(-1)))
        return {"mirrored_accuracy": Evaluation((result.logits + other.logits) / 2, result.labels).accuracy}

    def evaluate(self, part: Part, testing: Testing, change: Callable[[Tensor], Tensor] | None = None) -> Evaluation:
        """Logits of every picture of a part that is read, each by one of the processes."""
        count = counted(len(part), testing)
        mine, change = part.pick(self.team.part(count)), change or self.normalise
        found = evaluate_part(self.session.evaluated, mine, change, self.bfloat16, replace(testing, drop_last=False))
        return in_numbers(Evaluation(self.team.gather(found.logits, count), part.labels[:count].cpu()), self.run.folder)

    def train_epoch(self, asked: Callable[[], bool]) -> None:
        """From wherever the epoch stands to its end: steps, and where it is time to, validation and metrics."""
        session, epoch = self.session, self.session.epoch
        # The clock starts first: moving the order to a GPU waits for the steps still under way there.
        started, before = time.monotonic(), session.seconds
        order = torch.from_numpy(
            np.random.default_rng([self.experiment.seed, 0, epoch]).permutation(len(self.data.train))
        )
        batches = order.to(self.data.train.kept).split(self.batch)
        for place in range(session.step % session.steps_per_epoch, session.steps_per_epoch):
            self.train_step(batches[place][self.own])
            session.seconds = before + time.monotonic() - started
            self.progress.step(session.step, lambda: self.metrics(epoch, session.totals))
            if place + 1 < session.steps_per_epoch:
                self.pause(asked)
        if (epoch + 1) % self.experiment.training.measure == 0 or session.step == session.steps:
            self.check_bad()  # waits for the device, so the clock is read after it
            session.seconds = before + time.monotonic() - started
            line = self.metrics(epoch, self.team.sum(session.totals))
            if len(self.data.validation) and self.data.card.labelled:
                line |= self.held_out()
            session.totals.zero_()
            session.seconds = before + time.monotonic() - started
            self.measured = (session.step, session.seconds)
            self.run.add_metrics(line | {"seconds": round(session.seconds, 3)})
            self.progress.epoch(line)
            session.learner.check(line)
        self.pause(asked)

    def held_out(self) -> dict[str, float]:
        """How the model does on the pictures that it does not learn from."""
        if not self.session.learner.labelled:
            return {"knn_accuracy": glance(self.reader(), self.data)}
        found = self.evaluate(self.data.validation, replace(self.experiment.testing, drop_last=False))
        return {"validation_loss": found.loss, "validation_accuracy": found.accuracy}

    def train_step(self, chosen: Tensor) -> None:
        """One batch: gather, augment, normalise, learn."""
        session, train = self.session, self.data.train
        self.chance.start(self.experiment.seed, 1, session.step)
        session.set_rate()
        here = chosen.to(self.device, non_blocking=True)
        turn = self.first_turn[here] ^ bool(session.epoch % 2) if self.first_turn is not None else None

        def change(pictures: Tensor) -> Tensor:
            return self.normalise(self.experiment.augment(pictures, self.chance.device, turn))

        pictures, labels, done = unit(train.pictures[chosen]), train.labels[here], session.step / session.steps
        self.learn(*session.learner.batch(pictures, labels, change, self.chance, done))
        session.advance()

    def learn_batch(self, *batch: Tensor) -> None:
        """Step and count: all on the device, so that it can be recorded."""
        loss, measures, norm = self.step(*batch)
        self.watch(loss, norm)
        self.session.count(loss, measures, self.seen)

    def step_by_parts(self, *batch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Loss, gradients, clipping and the optimiser, one after another: the loss, the measures, the norm."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
            loss, measures = self.forward(*batch)
        even = self.seen * self.team.size == self.batch
        (loss if even else loss * (self.seen * self.team.size / self.batch)).backward()
        norm = self.clip() if self.experiment.training.clip else None
        self.session.move()
        return loss.detach(), measures, norm

    def clip(self) -> Tensor:
        """Shorten the gradient to the longest allowed; returns the norm it had."""
        return nn.utils.clip_grad_norm_(self.session.parameters, self.experiment.training.clip, foreach=True)

    def watch(self, loss: Tensor, norm: Tensor | None) -> None:
        """Note the first step whose loss or gradient is not a number; a GPU is asked only now and then."""
        fine = torch.isfinite(loss) if norm is None else torch.isfinite(loss) & torch.isfinite(norm)
        self.bad.copy_(torch.where(fine | (self.bad >= 0), self.bad, self.place))
        self.place += 1
        if self.device.type == "cpu" and self.team.alone and not fine:
            self.check_bad()

    def check_bad(self) -> None:
        step = self.team.highest(int(self.bad))
        if step < 0:
            return
        kept = (
            f"the last good checkpoint is step {self.saved_step}" if self.saved_step else "no checkpoint was saved yet"
        )
        raise Diverged(
            f"the loss or a weight is no longer a number at step {step} "
            f"(epoch {step // self.session.steps_per_epoch + 1}); {kept} "
            f"in {self.run.folder}; try a lower learning_rate, a longer warmup or a smaller clip"
        )

    def metrics(self, epoch: int, totals: Tensor) -> dict[str, Any]:
        """Since the last measurement."""
        session, (step, seconds) = self.session, self.measured
        return {
            "epoch": epoch + 1,
            "step": session.step,
            **session.means(totals),
            "learning_rate": session.rate,
            "images_per_second": round((session.step - step) * self.batch / max(session.seconds - seconds, 1e-9), 1),
        }

    def pause(self, asked: Callable[[], bool]) -> None:
        """Between two steps: save where it is time to, and stop where the user asked."""
        finished = self.session.step == self.session.steps
        if not (self.team.alone or finished or self.session.step % AGREED == 0):
            return
        due = self.team.leads and time.monotonic() - self.saved_at >= self.experiment.training.checkpoint
        stopping, due = self.team.any_of(asked() and not finished, due)
        if stopping or finished or due:
            self.save()
        if stopping:
            raise Stopped(
                f"stopped after step {self.session.step} of {self.session.steps}, nothing is lost; "
                f"go on with: vitlab resume {self.run.folder}"
            )

    def save(self) -> None:
        self.check_bad()
        if not all(weight.isfinite().all() for weight in self.session.parameters):
            self.bad.fill_(self.session.step - 1)  # a gradient that was no number, which clipping alone would notice
            self.check_bad()
        totals = {"totals": self.team.sum(self.session.totals)}
        if self.team.leads:
            write_tensors(self.run.checkpoint, self.session.tensors() | totals, self.session.facts())
        self.saved_step, self.saved_at = self.session.step, time.monotonic()

    @hushed()
    def compile(self) -> None:
        """Compile the step, or the model where a step cannot be one graph, outside the clock; nothing is learned."""
        started = time.monotonic()
        trouble = compiler_trouble(self.device.type)
        if trouble:
            raise BadInput(f"torch.compile does not work here ({trouble}): train with compile=no")
        alike = self.session.at_one_rate and not isinstance(self.experiment.training.tuning, LowRank)
        if self.device.type == "cpu" and alike and self.team.alone:
            self.step = whole = self.whole_step()
            warm: Callable[..., None] = whole.compile
        else:
            self.forward = in_compiled_parts(self.session.learner)
            warm = self.warm
        for done in self.stages_ahead():
            warm(*self.first_batch(done))
        self.compile_seconds = time.monotonic() - started

    def whole_step(self) -> WholeStep:
        """What `step_by_parts` does, as one function of flat memory."""
        return WholeStep(self.session.learner, self.session.optimisers, self.experiment.training.clip, self.bfloat16)

    def stages_ahead(self) -> list[float]:
        """The shares of training at which each shape of batches that is still to come begins, or has begun."""
        stages, done = self.session.learner.stages, self.session.step / max(self.session.steps, 1)
        return [first for first, end in zip(stages, (*stages[1:], math.inf), strict=True) if done < end]

    def first_batch(self, done: float) -> tuple[Tensor, ...]:
        """A batch of the shapes that every step of a stage has."""
        pictures, labels = self.data.train.pictures[: self.seen], self.data.train.labels[: self.seen]
        return self.session.learner.batch(unit(pictures), labels, self.normalise, self.chance, done)

    def warm(self, *batch: Tensor) -> None:
        """Run the compiled model on one batch; the weights stay as they were."""
        buffers = list(self.session.learner.buffers())
        before = [buffer.clone() for buffer in buffers]
        for _ in range(3):
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16):
                self.forward(*batch)[0].backward()
            self.session.learner.zero_grad(set_to_none=True)
        for buffer, kept in zip(buffers, before, strict=True):
            buffer.copy_(kept)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def facts(self) -> dict[str, Any]:
        session = self.session
        seen = session.step * self.batch
        return {
            "seed": self.experiment.seed,
            "epochs": self.experiment.training.epochs,
            "train_seconds": round(session.seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "images_per_second": round(seen / max(session.seconds, 1e-9), 1),
            "parameters": sum(p.numel() for p in session.learner.network.parameters()),
            "peak_memory": memory.peak(self.device),
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
