"""Two processes of one thread each that train together, apart, or one at a time, as they are told."""

import gc
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

import torch
import torch.distributed as dist

from vitlab.engine.team import Team
from vitlab.errors import BadInput
from vitlab.processes import end_with_parent, interrupts_held

SIZE = 2
Timed = Callable[[int], float]  # how often → seconds each time
Plan = TypeVar("Plan")
Ready = Callable[[Plan, Team], dict[str, Timed]]


class Pair(Generic[Plan]):
    """Both make the same things ready from a plan; then one of them, or both at once, is asked for its seconds."""

    def __init__(self, ready: Ready[Plan], plan: Plan, folder: Path):
        context = get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(SIZE):
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(rank, folder / "meeting", ready, plan, there), daemon=True)
            with interrupts_held():  # and for good in the new process: Ctrl-C is the parent's to answer
                process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self) -> "Pair[Plan]":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self.processes if kind else []:
            process.kill()
        for pipe in self.pipes:
            pipe.close()  # which tells it to end
        for process in self.processes:
            process.join(10)
            process.kill()  # where it has not ended by itself
            process.join()

    def wait(self) -> None:
        """Until both are ready."""
        for rank in range(SIZE):
            self.answer(rank)

    def seconds(self, name: str, ranks: Sequence[int], threads: int, repeats: int) -> tuple[float, float]:
        """Of one call, by the slowest of those who are asked; and of the processors' time that all of them used."""
        for rank in ranks:
            self.pipes[rank].send((name, threads, repeats))
        answers = [self.answer(rank) for rank in ranks]
        return max(taken for taken, _ in answers), sum(used for _, used in answers)

    def answer(self, rank: int) -> tuple[float, float]:
        try:
            return self.pipes[rank].recv()
        except EOFError:
            raise BadInput("one of the two processes that were measured has died, perhaps for want of memory") from None


def serve(rank: int, meeting: Path, ready: Ready[Plan], plan: Plan, orders: Connection) -> None:
    """What each of the two does, until the pipe is closed."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=SIZE)
    timed = ready(plan, Team(rank, SIZE))
    gc.collect()
    gc.disable()  # a collection would fall on whoever is running
    orders.send((0.0, 0.0))
    while True:
        try:
            name, threads, repeats = orders.recv()
        except EOFError:
            break
        torch.set_num_threads(threads)
        before = time.process_time()
        taken = timed[name](repeats)
        orders.send((taken, time.process_time() - before))
    dist.destroy_process_group()
