"""Attention: forward and backward of every kind, for more and more tokens."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vitlab.bench.measure import Call, Timing, burst, take_turns
from vitlab.bench.memory import peak_bytes
from vitlab.bench.points import Point
from vitlab.model.attention import Attention, Mixer, MultiHead, Softmax, SoftmaxMixer
from vitlab.model.layout import Grid, Layout
from vitlab.settings import kinds_of

FUSED, EXPLICIT, LINFORMER = "softmax, fused", "softmax, explicit", "linformer"
PATIENCE = 20.0  # seconds that one token count may take; slow ones get fewer rounds
FEWEST = 3
BURST, MANY = 0.02, 20  # seconds of calls, or calls, that are timed together, so that short ones are not blurred


@dataclass(frozen=True)
class Limits:
    """The most that one call may be expected to take."""

    seconds: float
    memory: float  # bytes


class WrittenOut(SoftmaxMixer):
    """softmax(QKᵀ/√e) as a matrix, times V: the reports' style, with the weights in memory."""

    def explicit(self, queries: Tensor) -> bool:
        return True


def mixers(width: int, heads: int) -> dict[str, Callable[[Layout], Mixer]]:
    """Every kind of the union, and softmax written out."""
    made: dict[str, Callable[[Layout], Mixer]] = {}
    for kind, settings in kinds_of(Attention).items():
        chosen: Any = settings(heads=heads) if "heads" in {f.name for f in fields(settings)} else settings()
        name = FUSED if settings is Softmax else kind
        made[name] = partial(chosen.build, width)
        if settings is Softmax:
            made[EXPLICIT] = lambda layout: WrittenOut(MultiHead(heads=heads), width)
    return made


def forward_and_backward(mixer: Mixer, tokens: Tensor, after: Tensor, bfloat16: bool) -> Call:
    """The gradients of the tokens and of every weight, given that of the output."""
    tokens = tokens.detach().requires_grad_()
    after = after.bfloat16() if bfloat16 else after

    def run() -> None:
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bfloat16):
            mixed = mixer(tokens)
        mixed.backward(after.to(mixed.dtype))
        tokens.grad = None
        mixer.zero_grad(set_to_none=True)

    return run


@dataclass(frozen=True)
class AttentionCosts:
    """One batch of random tokens through each kind, for each token count; float32 on a CPU, bfloat16 on a GPU."""

    counts: tuple[int, ...]
    batch: int
    width: int
    heads: int
    rounds: int
    limits: Limits
    device: torch.device

    def measure(self) -> Iterator[list[Point]]:
        """The points of each token count, from few tokens to many."""
        kinds = mixers(self.width, self.heads)
        history: dict[str, list[Point]] = {kind: [] for kind in kinds}
        for count in sorted(self.counts):
            left_out = {kind: self.excess(history[kind], count) for kind in kinds}
            entered = [kind for kind in kinds if not left_out[kind]]
            calls = {kind: self.call(kinds[kind], count) for kind in entered}
            seconds = {
                kind: expected(history[kind], count)[0] if history[kind] else self.guess(calls[kind])
                for kind in entered
            }
            timings = self.time(calls, seconds)
            found = []
            for kind in kinds:
                point = Point(kind, count, note=left_out[kind])
                if kind in calls:
                    point = measured(kind, count, timings[kind], peak_bytes(calls[kind], self.device))
                    history[kind].append(point)
                found.append(point)
            yield found

    def call(self, build: Callable[[Layout], Mixer], count: int) -> Call:
        torch.manual_seed(0)
        mixer = build(Layout(0, (Grid(1, count),))).to(self.device).train()
        tokens, after = torch.randn(2, self.batch, count, self.width, device=self.device)
        return forward_and_backward(mixer, tokens, after, self.device.type == "cuda")

    def guess(self, call: Call) -> float:
        """Seconds of a call of which nothing is known yet."""
        call()
        return burst(call, 1, self.device)

    def time(self, calls: dict[str, Call], seconds: dict[str, float]) -> dict[str, Timing]:
        """By turns; `seconds` is what a call of each kind is expected to take."""
        if not calls:
            return {}
        rounds = max(min(self.rounds, int(PATIENCE / sum(seconds.values()))), FEWEST)
        repeats = {kind: max(min(int(BURST / seconds[kind]), MANY), 1) for kind in calls}
        bursts = {kind: repeated(call, repeats[kind]) for kind, call in calls.items()}
        timings = take_turns(bursts, rounds, 1, self.device)
        return {kind: Timing(tuple(s / repeats[kind] for s in timings[kind].seconds)) for kind in calls}

    def excess(self, before: list[Point], count: int) -> str:
        """Why a kind is left out at a token count, by how it has grown so far; empty where it is not."""
        if not before:
            return ""
        seconds, memory = expected(before, count)
        if seconds > self.limits.seconds:
            return f"left out: about {seconds:,.0f} s a call expected, {self.limits.seconds:g} s allowed"
        if memory > self.limits.memory:
            return f"left out: about {memory / 1e9:,.1f} GB expected, {self.limits.memory / 1e9:g} GB allowed"
        return ""


def measured(kind: str, count: int, timing: Timing, memory: int) -> Point:
    return Point(kind, count, round(timing.median * 1e3, 4), round(timing.fastest * 1e3, 4), memory)


def expected(before: list[Point], count: int) -> tuple[float, float]:
    """Seconds and bytes of one call, if the last growth goes on: at least in proportion, at most with the square."""
    last = before[-1]
    assert last.milliseconds is not None
    assert last.memory is not None
    factor = count / last.size
    powers = [1.0, 1.0]
    if len(before) > 1:
        earlier = before[-2]
        assert earlier.milliseconds is not None
        assert earlier.memory is not None
        grown = last.milliseconds / earlier.milliseconds, last.memory / earlier.memory
        powers = [2.0 if growth > 1.3 * last.size / earlier.size else 1.0 for growth in grown]
    return last.milliseconds / 1e3 * factor ** powers[0], last.memory * factor ** powers[1]


def repeated(call: Call, times: int) -> Call:
    def run() -> None:
        for _ in range(times):
            call()

    return run
