"""A contender in the ring: its model, optimiser and setting, ready for a step or an epoch."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from vitlab.bench.contenders import LIBRARY, REPORTS, Contender, fused_adamw
from vitlab.bench.loops import Trained, epoch_call, parameters_of, step_call
from vitlab.bench.measure import Call, take_turns
from vitlab.bench.reports import train_epoch
from vitlab.bench.settings import Manner, Setting, candidates, users_setting
from vitlab.bench.shapes import Work
from vitlab.data.words import one_line
from vitlab.engine.replay import WARM, Replay
from vitlab.errors import BadInput
from vitlab.model import ViT
from vitlab.model.attention import Softmax

LOOP, LEAN = "vitlab, whole loop", "vitlab, whole loop, lean"
TRIALS = 5  # rounds in which the settings of a contender are tried
LEAN_NOTE = "RMS norm without weights, no biases in the blocks"
LOOP_NOTE = "and gather, augment, normalise, clip, watch the loss, count"


@dataclass(frozen=True)
class Ring:
    """Where all contenders of one shape meet: the shape, its data, the device, and a folder for vitlab's runs."""

    work: Work
    trained: Trained
    device: torch.device
    folder: Path
    pictures: Tensor  # a batch already in memory
    labels: Tensor


@dataclass(frozen=True)
class Runner:
    """One contender in one setting; `epoch` makes a call of a loader, which vitlab's loop has no use for."""

    name: str
    manner: Manner
    setting: Setting
    parameters: int
    note: str
    step: Call
    epoch: Callable[[DataLoader[Any] | None], Call]
    gradients: Call | None = None  # the step without its optimiser

    @property
    def key(self) -> str:
        return f"{self.name}, {self.manner}"

    @property
    def loads(self) -> bool:
        """Whether its epoch reads a DataLoader."""
        return self.name not in (LOOP, LEAN)


Make = Callable[[Setting, Manner], Runner]


def enter(ring: Ring, contenders: list[Contender], manner: Manner, tell: Callable[[str], object]) -> list[Runner]:
    """Every contender in one manner; for the best, each setting is tried first."""
    loops = (LOOP,) if manner == "users" else (LOOP, LEAN)
    makes: dict[str, Make] = {name: partial(loop_runner, ring, name) for name in loops}
    makes |= {contender.name: partial(library_runner, ring, contender) for contender in contenders}
    if manner == "users":
        return [make(users_setting(ring.device, name in loops), manner) for name, make in makes.items()]
    chosen: dict[str, tuple[Runner, str]] = {}
    for name, make in makes.items():
        chosen[name] = choose(make, candidates(ring.device, name in loops), ring)
        tell(f"{ring.work.name}, {name}: {chosen[name][0].setting} ({chosen[name][1]})")
    if ring.device.type == "cuda":  # where each was compiled in one way alone, and stays as it is
        return [with_note(runner, words) for runner, words in chosen.values()]
    return [with_note(makes[name](runner.setting, manner), words) for name, (runner, words) in chosen.items()]


def with_note(runner: Runner, words: str) -> Runner:
    return Runner(**(vars(runner) | {"note": "; ".join(part for part in (runner.note, words) if part)}))


def choose(make: Make, tried: tuple[Setting, ...], ring: Ring) -> tuple[Runner, str]:
    """The fastest of the settings by turns, and what each took, in words; one that fails is named and left out.

    Compiled code that cannot be recorded is tried without.
    """
    runners: dict[str, Runner] = {}
    words, queue = [], list(tried)
    for setting in queue:
        name = str(setting)
        try:
            runner = make(setting, "best")
            for _ in range(WARM + 1 if setting.recorded else 1):  # the last is the one that is recorded
                runner.step()
        except (RuntimeError, TypeError, AttributeError, AssertionError) as problem:  # as compilers fail
            words.append(f"{name}: fails ({one_line(problem, 60)})")
            if setting.compiled and setting.recorded:
                queue.append(replace(setting, recorded=False))
        else:
            runners[name] = runner
    if not runners:
        raise BadInput(f"nothing works here of {'; '.join(words)}")
    timings = take_turns(
        {name: each.step for name, each in runners.items()}, TRIALS, repeats_for(ring.work), ring.device
    )
    base = next(iter(timings.values()))
    best = runners[min(timings, key=lambda name: timings[name].ratio(base))]
    if ring.device.type != "cuda":  # a model compiled in several ways would ask at each call which of them it is
        torch.compiler.reset()
    runners.clear()
    torch.cuda.empty_cache()  # where there is a GPU, the next contender has what the others took
    words = [f"{name} {timing.median * 1e3:,.1f} ms" for name, timing in timings.items()] + words
    return best, f"tried: {', '.join(words)}"


def repeats_for(work: Work) -> int:
    """Enough steps for a burst that a scheduler's tick does not blur."""
    return 1 if work.width > 64 else 5


def library_runner(ring: Ring, contender: Contender, setting: Setting, manner: Manner) -> Runner:
    """A library's model on a batch in memory; at its best, any library takes the fused optimiser."""
    torch.manual_seed(0)
    model = contender.build(ring.work).to(ring.device).train()
    optimiser = optimiser_of(contender, model, manner)
    forward: Callable[[Tensor], Tensor] = torch.compile(model) if setting.compiled else model

    def loss_of(pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast(ring.device.type, torch.bfloat16, enabled=setting.precision == "bfloat16"):
            logits = forward(pictures)
        return F.cross_entropy(logits.float(), labels), logits

    def learn(pictures: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        optimiser.zero_grad()
        loss, logits = loss_of(pictures, labels)
        loss.backward()
        optimiser.step()
        return loss, logits

    def gradients() -> None:
        model.zero_grad(set_to_none=True)
        loss_of(ring.pictures, ring.labels)[0].backward()

    step: Callable[[Tensor, Tensor], Any] = Replay(learn) if setting.recorded else learn
    if setting.recorded:
        for group in optimiser.param_groups:
            group["capturable"] = True  # it counts its steps on the device
    return Runner(
        contender.name,
        manner,
        setting,
        count(model),
        contender.note(ring.work),
        lambda: step(ring.pictures, ring.labels),
        partial(library_epoch, step, contender.name == REPORTS, ring.device),
        gradients if manner == "users" else None,
    )


def optimiser_of(contender: Contender, model: nn.Module, manner: Manner) -> torch.optim.Optimizer:
    """Its documents' optimiser, or the fused one; vitlab's own is fused already, and spares norms from decay."""
    own = manner == "users" or contender.name == LIBRARY
    return contender.optimise(model) if own else fused_adamw(model)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def library_epoch(
    learn: Callable[[Tensor, Tensor], Any], watched: bool, device: torch.device, batches: DataLoader[Any] | None
) -> Call:
    """An epoch over a loader; the reports' style reads loss and accuracy at every step, the libraries' loops do not."""
    assert batches is not None

    def run() -> None:
        with warnings.catch_warnings():
            # The loader forks while torch's threads live; Python 3.12 says so each time.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            if watched:
                train_epoch(learn, batches, device)
                return
            for pictures, labels in batches:
                learn(pictures.to(device, non_blocking=True), labels.to(device, non_blocking=True))

    return run


def loop_runner(ring: Ring, name: str, setting: Setting, manner: Manner) -> Runner:
    """vitlab's own loop, as `vitlab train` runs it, on the shape as it is or with lean blocks."""
    trained = ring.trained if name == LOOP else replace(ring.trained, model=lean(ring.trained.model))
    loop = trained.loop(setting, ring.folder, ring.device)
    note = LOOP_NOTE if name == LOOP else f"{LEAN_NOTE}; {LOOP_NOTE}"
    return Runner(name, manner, setting, parameters_of(loop), note, step_call(loop), lambda _: epoch_call(loop))


def lean(model: ViT) -> ViT:
    """The same matrix products with fewer passes over memory between them."""
    assert isinstance(model.attention, Softmax)
    attention = replace(model.attention, lean=True, bias=False)
    return replace(model, attention=attention, block=replace(model.block, lean=True, norm_kind="rms"))
