"""Scale: a training step in one process and in two, and each of its parts alone, by turns in one run."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from vitlab.bench.loops import Trained, step_call
from vitlab.bench.measure import Call, Neighbours, Timing, burst, by_turns
from vitlab.bench.pair import Pair, Timed
from vitlab.bench.settings import Setting
from vitlab.data.augment import Augment
from vitlab.data.dataset import DataSet, Part
from vitlab.data.mapped import Index, Noted, Writer, map_once, open_mapped
from vitlab.data.prepared import unit
from vitlab.data.rows import Pictures
from vitlab.engine.loop import Loop
from vitlab.engine.team import Team
from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.heads import Mean
from vitlab.model.tokens import ConvPatches

KindName = Literal["small", "middling", "many-tokens", "large-pictures", "wide", "wider"]
CPU, CLASSES = torch.device("cpu"), 10
BURST = 0.15  # seconds that a burst takes about
LOUD, PAUSE = 0.2, 0.5  # cores that other programs may use; seconds to listen to them
Tell = Callable[[str], object]
ONE, THREADS, TWO, APART = "1 process", "1 process, more threads", "2 processes", "2 processes, apart"
ALONE_KEY, TOGETHER_KEY = "alone", "together"
WAYS = {  # who is asked, and with which loop; apart: no gradient is exchanged
    ONE: ((0,), ALONE_KEY),
    THREADS: ((0,), ALONE_KEY),
    TWO: ((0, 1), TOGETHER_KEY),
    APART: ((0, 1), ALONE_KEY),
}
MEMORY, CACHED, COLD = "a tensor in memory", "a mapped file, cached", "a mapped file, not cached"
ACCESSED = 256  # pictures read at once where access is timed
SMALL, LARGE = Shape(3, 32, 32), Shape(3, 224, 224)


@dataclass(frozen=True)
class Kind:
    """A ViT that reads the mean of its tokens, and the fewest pictures that a process gets."""

    picture: Shape
    patch: int
    width: int
    depth: int
    least: int

    @property
    def batches(self) -> tuple[int, int, int]:
        """Pictures of a process; each is twice the one before, so that two processes share the next one."""
        return self.least, 2 * self.least, 4 * self.least

    @property
    def gradients(self) -> int:
        """Bytes."""
        return 4 * sum(weight.numel() for weight in self.model.build(self.picture, CLASSES).parameters())

    @property
    def model(self) -> ViT:
        return ViT(self.width, self.depth, tokens=ConvPatches(self.patch), attention=Softmax(heads=4), head=Mean())

    def trained(self, batch: int) -> Trained:
        """Random pictures, cropped and flipped."""
        count = 4 * self.batches[-1]
        pictures = random_pictures(count, self.picture)
        part = Part(pictures, torch.arange(count) % CLASSES)
        few = Part(pictures[:CLASSES], part.labels[:CLASSES])
        data = DataSet("noise", tuple(map(str, range(CLASSES))), part, few)
        return Trained(self.model, data, batch, Augment(crop=self.picture.height // 8, flip=True))

    def __str__(self) -> str:
        return f"{self.picture}, patch {self.patch}, width {self.width}, depth {self.depth}"


# Much or little to compute, to exchange and to read, each apart from the others.
KINDS: dict[KindName, Kind] = {
    "small": Kind(Shape(1, 28, 28), 7, width=32, depth=3, least=64),
    "middling": Kind(Shape(1, 28, 28), 7, width=128, depth=4, least=32),
    "many-tokens": Kind(SMALL, 4, width=96, depth=4, least=16),
    "large-pictures": Kind(LARGE, 32, width=64, depth=2, least=8),
    "wide": Kind(SMALL, 16, width=512, depth=2, least=16),
    "wider": Kind(SMALL, 16, width=768, depth=2, least=16),
}


@dataclass(frozen=True)
class Plan:
    """What is measured: the models, the bytes that are exchanged alone, and the size of a file that is read from."""

    kinds: Mapping[str, Kind]
    exchanged: tuple[int, ...]
    stored: int  # bytes
    folder: Path


@dataclass(frozen=True)
class Cell:
    """One thing that is timed."""

    part: str  # step, all-reduce, input or access
    work: str  # a kind of model, or a size of picture
    way: str
    size: int  # pictures of a process, or bytes


@dataclass(frozen=True)
class Took:
    """What one cell took: the median over the rounds, and the quartiles."""

    part: str
    work: str
    way: str
    size: int
    milliseconds: float
    low: float
    high: float

    @classmethod
    def of(cls, cell: Cell, timing: Timing) -> "Took":
        several = timing.seconds if len(timing.seconds) > 1 else timing.seconds * 2
        low, middle, high = (round(1e3 * value, 4) for value in statistics.quantiles(several, n=4, method="inclusive"))
        return cls(cell.part, cell.work, cell.way, cell.size, middle, low, high)


def cells(plan: Plan) -> Iterator[Cell]:
    """Everything that is timed, in the order of a first round."""
    for name, kind in plan.kinds.items():
        first, second, third = kind.batches
        for size in (first, second, third):
            yield Cell("step", name, ONE, size)
        for size in (first, second):
            yield Cell("step", name, TWO, size)
            yield Cell("step", name, APART, size)
            yield Cell("step", name, THREADS, 2 * size)
        for size in (first, third):
            yield Cell("input", name, MEMORY, size)
            yield Cell("input", name, CACHED, size)
    for size in plan.exchanged:
        yield Cell("all-reduce", "", TWO, size)
    for picture in (SMALL, LARGE):
        for way in (MEMORY, CACHED, COLD):
            yield Cell("access", str(picture), way, ACCESSED)


def measure_scale(plan: Plan, rounds: int, threads: int, patience: float, tell: Tell) -> tuple[list[Took], float]:
    """All cells by turns, in two processes that stay; and how many cores other programs kept busy meanwhile.

    A time is taken again while others are loud, until so many seconds have passed.
    """
    with Pair(ready, plan, plan.folder) as pair:
        tell(f"two processes start, and {len(list(cells(plan)))} times are taken in each of {rounds} rounds")
        pair.wait()
        deadline, heard = time.monotonic() + patience, []

        def asked(cell: Cell, repeats: int) -> float:
            ranks, loop = WAYS.get(cell.way, ((0,), cell.way))
            used = threads if cell.way == THREADS or cell.part == "access" else 1
            while True:
                neighbours = Neighbours()
                taken, own = pair.seconds(key(cell.part, cell.work, loop, cell.size), ranks, used, repeats)
                others = neighbours.cores(own)
                if others <= LOUD or time.monotonic() > deadline:
                    heard.append(others)
                    return taken
                wait_for_quiet(deadline)

        timed = {}
        for cell in cells(plan):
            first = min(asked(cell, 1), asked(cell, 1))  # first calls build caches and optimiser state
            timed[cell] = partial(asked, cell, min(max(round(BURST / first), 2), 200))
        heard.clear()
        timings = by_turns(timed, rounds)
    return [Took.of(cell, timing) for cell, timing in timings.items()], statistics.mean(heard)


def wait_for_quiet(deadline: float) -> None:
    while time.monotonic() < deadline:
        neighbours = Neighbours()
        time.sleep(PAUSE)
        if neighbours.cores(own=0.0) <= LOUD:
            return


def key(part: str, work: str, loop: str, size: int) -> str:
    return f"{part}, {work}, {loop}, {size}"


def ready(plan: Plan, team: Team) -> dict[str, Timed]:
    """In each of the two processes: every call that it may be asked for."""
    torch.manual_seed(0)
    calls: dict[str, Call] = {}
    folder = plan.folder / str(team.rank)
    for name, kind in plan.kinds.items():
        loops = {size: kind.trained(size).loop(Setting(), folder, CPU) for size in kind.batches}
        for size, loop in loops.items():
            calls[key("step", name, ALONE_KEY, size)] = step_call(loop)
        for size in kind.batches[:2]:
            shared = kind.trained(team.size * size).loop(Setting(), folder, CPU, team)
            calls[key("step", name, TOGETHER_KEY, size)] = step_call(shared)
        if team.leads:
            pictures = loops[kind.least].data.train.pictures
            assert isinstance(pictures, Tensor)
            stored = mapped(folder / f"{name}.pictures", pictures)
            for size in (kind.batches[0], kind.batches[-1]):
                calls[key("input", name, MEMORY, size)] = input_call(loops[size], pictures)
                calls[key("input", name, CACHED, size)] = input_call(loops[size], stored)
    for size in plan.exchanged:
        numbers = torch.zeros(size // 4)  # sums of zeros stay what they are
        calls[key("all-reduce", "", TOGETHER_KEY, size)] = partial(dist.all_reduce, numbers)
    timed: dict[str, Timed] = {name: partial(timed_burst, call) for name, call in calls.items()}
    return timed | (access(plan, folder) if team.leads else {})


def timed_burst(call: Call, repeats: int) -> float:
    return burst(call, repeats, CPU)


def input_call(loop: Loop, pictures: Pictures) -> Call:
    """What a step does before it learns: gather, augment, normalise."""
    drawn, generator = batches(len(pictures), loop.batch), torch.Generator()
    augment, normalise = loop.experiment.augment, loop.normalise
    return lambda: normalise(augment(unit(pictures[next(drawn)]), generator))


def batches(count: int, size: int) -> Iterator[Tensor]:
    """Places in a random order, again and again."""
    return cycle(places for places in torch.randperm(count).split(size) if len(places) == size)


def access(plan: Plan, folder: Path) -> dict[str, Timed]:
    """Reading a batch of pictures at random, and nothing else."""
    timed: dict[str, Timed] = {}
    for picture in (SMALL, LARGE):
        count = max(plan.stored // (picture.channels * picture.height * picture.width), ACCESSED)
        pictures, forgotten = random_pictures(count, picture), folder / f"{picture}-forgotten.pictures"
        for way, held in ((MEMORY, pictures), (CACHED, mapped(folder / f"{picture}.pictures", pictures))):
            timed[key("access", str(picture), way, ACCESSED)] = partial(timed_burst, reading(held))
        mapped(forgotten, pictures)
        timed[key("access", str(picture), COLD, ACCESSED)] = partial(cold_seconds, forgotten, count)
    return timed


def reading(pictures: Pictures) -> Call:
    drawn = batches(len(pictures), ACCESSED)
    return lambda: pictures[next(drawn)]


def cold_seconds(path: Path, count: int, repeats: int) -> float:
    """From a file that the system has been told to forget; it forgets only what nobody has mapped."""
    taken = 0.0
    for _ in range(repeats):
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        found = open_mapped(path)
        assert found is not None
        rows, places = found.rows, torch.randperm(count)[:ACCESSED]
        started = time.perf_counter()
        rows[places]
        taken += time.perf_counter() - started
    return taken / repeats


def random_pictures(count: int, picture: Shape) -> Tensor:
    return torch.randint(0, 256, (count, picture.channels, picture.height, picture.width), dtype=torch.uint8)


def mapped(path: Path, pictures: Tensor) -> Pictures:
    """The same pictures in a file."""
    count = len(pictures)

    def fill(writer: Writer) -> None:
        for place, picture in enumerate(pictures.numpy()):
            writer.put(place, Noted.of(picture))
        nothing = torch.zeros(count, dtype=torch.int64)
        writer.end(Index(torch.arange(count), nothing, nothing.bool(), ("noise",), ()))

    return map_once(path, (count, *pictures.shape[1:]), fill).rows


def plan_in(folder: str, kinds: Mapping[str, Kind], most: int, stored: int) -> Plan:
    """Messages from 4 kB to `most` bytes, each four times the one before."""
    sizes = [4096]
    while 4 * sizes[-1] <= most:
        sizes.append(4 * sizes[-1])
    return Plan(kinds, tuple(sizes), stored, Path(folder))
