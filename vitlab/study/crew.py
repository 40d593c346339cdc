"""Several workers on one machine: how many, and their processes."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from vitlab import interrupt
from vitlab.console import terminal
from vitlab.engine.loop import Stopped
from vitlab.engine.storage import make_folder
from vitlab.errors import BadInput
from vitlab.given import find_device, load_data
from vitlab.model import Shape
from vitlab.processes import choose_workers, cores, interrupts_held, note_interrupts, shared_gpu
from vitlab.study.gain import chosen, forks, stepping
from vitlab.study.plan import Plan
from vitlab.study.store import Kept, open_study, read_url
from vitlab.study.worker import Worker

STEPS = 8  # of the short measurement
PATIENCE = 5.0  # seconds in which workers end by themselves after Ctrl-C


@dataclass(frozen=True)
class Job:
    """What a worker is told: which study, where its runs and pictures are, and what to train on."""

    name: str
    url: str
    runs: Path  # the study's own folder
    data: Path | None
    device: str
    quiet: bool = False

    def worker(self, kept: Kept) -> Worker:
        console = terminal(self.quiet)
        return Worker(
            kept, self.runs, find_device(self.device), self.data, lambda line: console.print(line, markup=False)
        )


def work(job: Job, workers: int | None, tell: Callable[[str], None]) -> Kept:
    """Work through a study with as many processes as are asked for, or as this machine feeds."""
    if workers is not None and workers < 1:
        raise BadInput(f"workers must be 1 or more, not {workers}")
    kept, device = open_study(job.name, read_url(job.url)), find_device(job.device)
    make_folder(job.runs)
    prepared = load_data(kept.plan.base, job.data)  # what is missing here is said once, before there are workers
    with shared_gpu(device) as shared:
        if workers is None:
            shape = Shape(prepared.card.channels, prepared.card.height, prepared.card.width)
            workers, why = choose(kept.plan, shape, len(prepared.card.classes), device, shared)
            tell(why)
        workers = min(workers, kept.plan.count)
        if workers == 1:
            try:
                job.worker(kept).work()
            except KeyboardInterrupt:
                raise Stopped("stopped, nothing is lost; go on with the same command") from None
        else:
            work_together(job, workers, tell)
    return kept


def choose(plan: Plan, shape: Shape, classes: int, device: torch.device, shared: bool) -> tuple[int, str]:
    """How many workers, and why in one line."""
    if device.type != "cpu":
        count, why = chosen(plan.base, shape, classes, device, choose_workers(shared=True))
        return count, why if shared else f"{why}, without NVIDIA's MPS, by which they would run side by side"
    most = cores()
    if most == 1:
        return 1, "1 worker: there is one core"
    together, alone = speed(plan, shape, classes, most), speed(plan, shape, classes, 1)
    gain = most * alone / together
    count = most if gain > 1 else 1
    done = f"{most} workers of one thread do {gain:.2g} times the steps of one with {most}, by a short measurement"
    return count, f"{count} worker{'s' * (count > 1)}: {done}"


def speed(plan: Plan, shape: Shape, classes: int, threads: int) -> float:
    """Steps a second of the recipe's model on a batch of its size, with so many threads."""
    step = stepping(plan.base, shape, classes, torch.device("cpu"))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        times = []
        for _ in range(STEPS):
            began = time.perf_counter()
            step()
            times.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(before)
    return 1 / sorted(times[2:])[len(times[2:]) // 2]


def work_together(job: Job, workers: int, tell: Callable[[str], None]) -> None:
    """Start workers and wait for them; one that dies is not missed, since the others take over its trial."""
    threads = max(cores() // workers, 1)
    context = forks()
    crew: dict[Connection, BaseProcess] = {}

    def pass_on(_kind: int, _frame: object) -> None:
        for process in crew.values():
            process.terminate()

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        for _ in range(workers):
            mine, theirs = context.Pipe(duplex=False)
            with interrupts_held():
                process = context.Process(target=member, args=(job, threads, theirs))
                process.start()
            theirs.close()
            crew[mine] = process
        ends = collect(crew, tell)
    except KeyboardInterrupt:  # which a terminal sends to all of them, and a supervisor to this one alone
        end = time.monotonic() + PATIENCE
        for each in crew.values():
            each.join(max(end - time.monotonic(), 0))
            each.terminate()
        for each in crew.values():
            each.join()
        raise Stopped("stopped, nothing is lost; go on with the same command") from None
    finally:
        signal.signal(signal.SIGTERM, before)
    if "stopped" in ends:
        raise Stopped("stopped, nothing is lost; go on with the same command")
    if "done" not in ends:
        refusals = [end for end in ends if end != "killed"]
        raise BadInput(
            refusals[0] if refusals else
            "every worker was killed, perhaps for want of memory; nothing is lost: go on with fewer --workers"
        )  # fmt: skip


def collect(crew: dict[Connection, BaseProcess], tell: Callable[[str], None]) -> list[str]:
    """How each worker ended: done, stopped, killed, or the line that it refused with."""
    ends: list[str] = []
    open_pipes = list(crew)
    while open_pipes:
        for pipe in wait(open_pipes):
            assert isinstance(pipe, Connection)
            open_pipes.remove(pipe)
            try:
                ends.append(pipe.recv())
            except EOFError:
                ends.append("killed")
                if open_pipes:
                    tell("a worker was killed; the others take over its trial")
            crew[pipe].join()
    return ends


def member(job: Job, threads: int, pipe: Connection) -> None:
    """One worker's process; it ends with its parent, and answers Ctrl-C in a trial or between two."""
    note_interrupts()
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, signal.default_int_handler)
    interrupt.listen(signal.SIGINT, signal.SIGTERM)
    torch.set_num_threads(threads)
    end = "done"
    try:
        job.worker(open_study(job.name, read_url(job.url))).work()
    except BadInput as problem:
        end = " ".join(str(problem).split())
    except (Stopped, KeyboardInterrupt):
        end = "stopped"
    with suppress(OSError):
        pipe.send(end)
