"""Roofline: what bounds a recipe's training step, as a share of what the device can do at most."""

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from vitlab.bench.loops import loop_in, parameters_of, step_call
from vitlab.bench.measure import Call, take_turns, wait
from vitlab.bench.memory import hush_profiler
from vitlab.data.prepared import Prepared, unit
from vitlab.engine.cost import block_share, flops, step_flops
from vitlab.engine.loop import Loop, use_bfloat16
from vitlab.experiment import Experiment
from vitlab.objectives import Supervised

PROFILED = 5  # steps whose kernels are counted
COUNTED = 8  # pictures by which the operations of a step are counted
LONGEST, NAME = 16, 100  # of them are kept by name, and so many letters of a name
REPEATS = {"cuda": 10, "cpu": 2}  # calls in a burst
REST = "memory"  # norms, activations, sums, copies, the optimiser: bound by how fast memory is read and written
# The first that fits a kernel's name; torch.compile's own kernels are never products. On a CPU the names are operators.
KINDS: tuple[tuple[str, str], ...] = (
    (REST, r"^triton_(poi|per|red)"),
    ("attention", r"sdpa|flash|fmha|attention|dot_do_o|convert_dq"),
    ("convolutions", r"conv|wgrad|dgrad|fprop"),
    ("products", r"gemm|nvjet|cutlass|splitk|xmma|cublas|mm\b|linear"),
)
KIND_NAMES = tuple(dict.fromkeys([*(kind for kind, _ in KINDS[1:]), REST]))


@dataclass(frozen=True)
class Bound:
    """One recipe's step: its time, its arithmetic, and where the time goes."""

    recipe: str
    batch: int
    milliseconds: float  # median over the rounds
    fastest: float  # milliseconds of the best round
    pictures_per_second: float
    parameters: int
    flops: int  # of one picture's forward
    block_share: float  # of the flops, in attention and MLP blocks
    rate: float  # TFLOP/s that a step comes to
    matrix_rate: float  # TFLOP/s of one large matrix product here
    memory_rate: float  # GB/s of one large copy here, read and written
    kernels: Mapping[str, float] = field(default_factory=dict)  # milliseconds of a step by kind
    longest: Sequence[tuple[str, float, float]] = ()  # kernels: name, calls and milliseconds of a step
    step_flops: int = 0  # of one picture's step, all views of it; records that are older have 0, and are of one view

    @property
    def share(self) -> float:
        return self.rate / self.matrix_rate


def measure_bound(name: str, experiment: Experiment, data: Prepared, device: torch.device, rounds: int) -> Bound:
    """A recipe's own step on its own data, compiled and recorded where the recipe says so, of whole pictures."""
    experiment = of_whole_pictures(experiment)
    matrix_rate, memory_rate = rates(device, use_bfloat16(experiment.training.precision, device))
    with tempfile.TemporaryDirectory() as folder:
        loop = loop_in(Path(folder), experiment, data, device)
        step, network = step_call(loop), loop.run.build()
        for _ in range(PROFILED):  # a recorded step is recorded in the fourth
            step()
        timing = take_turns({name: step}, rounds, REPEATS[device.type], device)[name]
        rows, arithmetic = kernels_of(step, device), arithmetic_of(loop)
    return Bound(
        name,
        loop.batch,
        round(timing.median * 1e3, 3),
        round(timing.fastest * 1e3, 3),
        four_digits(loop.batch / timing.median),
        parameters_of(loop),
        flops(network),
        round(block_share(network), 4),
        four_digits(arithmetic * loop.batch / timing.median / 1e12),
        four_digits(matrix_rate),
        four_digits(memory_rate),
        {kind: round(sum(row[2] for row in rows if kind_of(row[0]) == kind), 3) for kind in KIND_NAMES},
        [(name[:NAME], calls, round(taken, 3)) for name, calls, taken in rows[:LONGEST]],
        arithmetic,
    )


def arithmetic_of(loop: Loop) -> int:
    """Operations of one picture's step, counted on the CPU, where every product is seen."""
    train, some = loop.data.train, torch.arange(min(COUNTED, loop.batch))
    learner = loop.experiment.objective.build(loop.run.build())
    return step_flops(learner, unit(train.pictures[some].cpu()), train.labels[some].cpu())


def of_whole_pictures(experiment: Experiment) -> Experiment:
    """The same without a first stage of parts, since the arithmetic is counted for whole pictures."""
    if not isinstance(experiment.objective, Supervised):
        return experiment
    return replace(experiment, objective=replace(experiment.objective, window=1.0))


def four_digits(number: float) -> float:
    return float(f"{number:.4g}")


def rates(device: torch.device, bfloat16: bool) -> tuple[float, float]:
    """TFLOP/s of a large product in the type that a step multiplies in, and GB/s of a large copy."""
    side, numbers = (8192, 2**28) if device.type == "cuda" else (1024, 2**24)
    left, right = (torch.randn(side, side, device=device) for _ in range(2))
    if bfloat16:
        left, right = left.bfloat16(), right.bfloat16()
    source = torch.zeros(numbers, device=device)
    copied = torch.empty_like(source)
    calls: dict[str, Call] = {"product": lambda: left @ right, "copy": lambda: copied.copy_(source)}
    timings = take_turns(calls, 5, REPEATS[device.type], device)
    return 2 * side**3 / timings["product"].fastest / 1e12, 2 * source.nbytes / timings["copy"].fastest / 1e9


def kernels_of(step: Call, device: torch.device) -> list[tuple[str, float, float]]:
    """The kernels of one step, or its operators on a CPU: name, calls and milliseconds, the longest first."""
    gpu = device.type == "cuda"
    hush_profiler()
    with profile(activities=[ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU]) as profiler:
        for _ in range(PROFILED):
            step()
        wait(device)
    time_of = "self_device_time_total" if gpu else "self_cpu_time_total"
    found = [(row.key, row.count / PROFILED, getattr(row, time_of) / PROFILED / 1e3) for row in profiler.key_averages()]
    return sorted(found, key=lambda row: -row[2])


def kind_of(kernel: str) -> str:
    return next((kind for kind, pattern in KINDS if re.search(pattern, kernel.lower())), REST)
