"""The processes that train one run together, as torchrun starts them; most often there is one."""

import atexit
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from vitlab.chance import Share
from vitlab.engine.run import Run
from vitlab.errors import BadInput, shorten
from vitlab.experiment import Experiment

LOST = re.compile("gloo|nccl|connection (closed|reset|refused)", re.IGNORECASE)  # in what a broken collective raises
SENT = ("experiment.json", "data.json", "environment.json", "start.safetensors", "checkpoint.safetensors")


class Lost(BadInput):
    """Another process is gone."""


@dataclass(frozen=True)
class Team:
    """One of `size` processes. The first leads: it alone writes to the run's folder and speaks to the user.

    From `any_of` on, each method is a collective: all processes call it, in the same order. Alone, it gives back what
    it was given.
    """

    rank: int = 0
    size: int = 1
    job: str = ""  # names one call of torchrun, and stays when it starts its processes again
    again: bool = False  # whether it did so, after one of them had died

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def facts(self) -> dict[str, Any]:
        """For a run's environment."""
        return {"processes": self.size, "job": self.job} if self.job else {}

    def share(self, batch: int, device: torch.device) -> Share | None:
        """This process's pictures of a batch: pairs of one from its front and its mirror, since mixing mixes these."""
        if self.alone:
            return None
        if batch < 2 * self.size:
            raise BadInput(
                f"a batch of {batch} is too small for {self.size} processes: make it {2 * self.size} or more"
            )
        front = torch.arange(batch // 2, device=device).tensor_split(self.size)[self.rank]
        middle = torch.arange(batch // 2, batch - batch // 2, device=device) if self.leads else front[:0]
        return Share(self.rank, batch, torch.cat([front, middle, (batch - 1 - front).flip(0)]))

    def part(self, count: int) -> slice:
        """This process's part of a row; of one that is too short to be shared, all of it."""
        if count < self.size:
            return slice(count)
        return slice(count * self.rank // self.size, count * (self.rank + 1) // self.size)

    def begun(self, runs: Path, experiment: Experiment) -> Run | None:
        """The run of this experiment that the same call of torchrun began before one of its processes died."""
        begun = sorted(path.parent for path in runs.glob("*/experiment.json")) if self.again else []
        own = [run for run in map(Run, begun) if self.made(run)]
        return next((run for run in own if run.experiment == experiment), None)

    def made(self, run: Run) -> bool:
        """Whether this call of torchrun began it; a folder that cannot be read is another's."""
        try:
            return bool(run.environment.get("job") == self.job)
        except BadInput:
            return False

    def any_of(self, *wishes: bool) -> list[bool]:
        """For each wish, whether any process has it."""
        return [bool(self.highest(int(wish))) for wish in wishes]

    def highest(self, number: int) -> int:
        """The highest of the processes' numbers; asked of the host, so that no GPU is waited for."""
        if self.alone:
            return number
        found = torch.tensor(number)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return int(found)

    def sum(self, numbers: Tensor) -> Tensor:
        if self.alone:
            return numbers
        total = numbers.clone()
        dist.all_reduce(total)
        return total

    def gather(self, rows: Tensor, count: int) -> Tensor:
        """All `count` rows, of which each process has its part."""
        if self.alone or count < self.size:
            return rows
        whole = rows.new_zeros(count, *rows.shape[1:])
        whole[self.part(count)] = rows
        return self.sum(whole)

    def wrap(self, learner: nn.Module, labelled: bool) -> nn.Module:
        """The same learner, whose gradients are the means over all processes."""
        if self.alone:
            return learner
        renamed = "forward_sync_buffers" in signature(DistributedDataParallel).parameters  # from torch 2.13 on
        options: dict[str, Any] = {"forward_sync_buffers" if renamed else "broadcast_buffers": False}
        # Without labels the logits' weights have no part in the loss, and so no gradient.
        return DistributedDataParallel(learner, find_unused_parameters=not labelled, **options)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Say in one line that another process is gone, which shows at the next collective."""
        try:
            yield
        except RuntimeError as error:
            if self.alone or not LOST.search(str(error)):
                raise
            atexit.unregister(dist.destroy_process_group)  # it would wait for the one that is gone
            raise Lost(
                "another process of the team is gone, so this one ends too; its checkpoint stays, and 'torchrun "
                f"--max-restarts 3' would start them again from it ({shorten(str(error))})"
            ) from error

    def follow(self, run: Run | None) -> Run:
        """The leader's run; the others get what it holds so far in a folder of their own, which goes when they do."""
        if run and self.alone:
            return run
        files = self.broadcast(read_files(run.folder) | {"name": run.name.encode()} if run else {})
        if run:
            return run
        parent = Path(tempfile.mkdtemp(prefix="vitlab-"))
        atexit.register(shutil.rmtree, parent, ignore_errors=True)
        folder = parent / files.pop("name").decode()
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return Run(folder)

    def broadcast(self, files: Mapping[str, bytes]) -> dict[str, bytes]:
        """What the leader gives, for all."""
        sent = [dict(files)]
        dist.broadcast_object_list(sent, src=0)
        return sent[0]


ALONE = Team()


def read_files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SENT if (folder / name).exists()}


def place() -> tuple[int, int]:
    """Which of how many processes this is, as torchrun says."""
    return (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])) if "TORCHELASTIC_RUN_ID" in os.environ else (0, 1)


def check_gpus() -> None:
    """Refuse a team on GPUs in which not every process of this machine has its own: NCCL would not have it."""
    here, count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if here > count:
        gpus = f"{count} GPU{'s' * (count > 1)}"
        raise BadInput(f"{here} processes on a machine with {gpus}: start one for each GPU, or give --device cpu")


@cache
def the_team() -> Team:
    """The team that torchrun says this process is of; it meets here for the first time."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ALONE
    job = f"{os.environ['TORCHELASTIC_RUN_ID']} {platform.node()} {os.getppid()}"  # the parent outlives its children
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    team = Team(*place(), job, again=attempt > 0)
    own = int(os.environ["LOCAL_RANK"])
    if own < torch.cuda.device_count():  # else it may still train on a CPU
        torch.cuda.set_device(own)
    if not team.alone:
        # torchrun may keep one store over all attempts, in which the addresses of dead processes still stand.
        store, rank, size = next(rendezvous("env://"))
        store = dist.PrefixStore(f"vitlab attempt {attempt}", store)
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        atexit.register(dist.destroy_process_group)
    return team
