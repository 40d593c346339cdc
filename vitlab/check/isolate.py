"""Check a target in a process of its own, with limits of time and memory: what hangs or crashes ends in a line."""

import json
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import forkserver, get_context
from multiprocessing.connection import wait
from typing import Any

from vitlab.check import worker
from vitlab.check.finding import Asked, Finding, Picture, Report, ends_the_program, unknown
from vitlab.check.probes import PROBES
from vitlab.errors import BadInput, shorten
from vitlab.processes import interrupts_held

# A start asks how every earlier process ended, and of two threads that ask at once about one, one is told nothing.
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Limits:
    seconds: float = 60.0  # for building the model, and for each probe
    gigabytes: float = 8.0  # of memory

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.gigabytes <= 0:
            raise BadInput(f"seconds and memory must be more than 0, not {self.seconds:g} and {self.gigabytes:g}")


@dataclass(frozen=True)
class Order:
    """What to ask of every target."""

    model: str = ""
    shape: tuple[int, ...] | None = None
    classes: int | None = None
    loaders: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    threads: int = 0  # of each process; 0: as torch chooses


def check_apart(
    target: str, order: Order, tell: Callable[[str], None] = lambda probe: None, stop: threading.Event | None = None
) -> Report:
    """Ask the target every probe; one that hangs or ends its process is noted, and the rest is asked of a new one."""
    report, asked = Report(target), dict[str, Asked]()
    while True:
        with Process(target, replace(order, skip=(*order.skip, *asked)), stop or threading.Event()) as process:
            report, stopped_at, ended = follow(process, report, asked, tell)
        if ended:
            break
        if not stopped_at:
            return replace(report, trouble=process.last_words("while it was imported or built"))
        asked[stopped_at] = Asked(gone(process, order.limits), process.waited)
    return replace(report, asked={probe.name: asked[probe.name] for probe in PROBES if probe.name in asked})


def follow(
    process: "Process", report: Report, asked: dict[str, Asked], tell: Callable[[str], None]
) -> tuple[Report, str, bool]:
    """Read what the process says until it is done or silent: the report so far, the probe it was at, if it ended."""
    asking = ""
    while (said := process.next()) is not None:
        if "trouble" in said:
            printed = process.last_printed() if said["left"] else ""
            return replace(report, trouble=said["trouble"] + printed), "", True
        if "end" in said:
            return report, "", True
        if "model" in said:
            report = replace(report, **said | {"shape": tuple(said["shape"])})
        elif "asking" in said:
            asking = said["asking"]
            tell(asking)
        else:
            asked[said["asked"]] = Asked(read_finding(said["finding"]), said["seconds"])
            asking = ""
    return report, asking, False


def gone(process: "Process", limits: Limits) -> Finding:
    if process.late:
        return unknown(f"no answer within {limits.seconds:g} s")
    return ends_the_program(process.last_words("while it was asked"))


def read_finding(said: dict[str, Any]) -> Finding:
    pictures = [
        Picture(**picture | {"rows": tuple(tuple(row) for row in picture["rows"])}) for picture in said["evidence"]
    ]
    return Finding(**said | {"evidence": tuple(pictures)})


def prepare(targets: int) -> None:
    """Start the server from which every target's process is forked, so that torch is imported once for all of them.

    It runs nothing else: what a target does to its process is gone with it.
    """
    with interrupts_held():  # Ctrl-C is for the program that asks
        often = ["torch._dynamo"] if targets > 1 else []  # a second to import, where a probe wants it
        get_context("forkserver").set_forkserver_preload(["vitlab.cli", *often])
        forkserver.ensure_running()


class Process:
    """One worker: what it says comes through a pipe of its own, what the model prints is kept apart."""

    def __init__(self, target: str, order: Order, stop: threading.Event):
        self.limits, self.stop = order.limits, stop
        self.late, self.waited, self.printed = False, 0.0, b""
        self.buffer = b""
        context = get_context("forkserver")
        self.reader, told = context.Pipe(duplex=False)
        self.output, printed = context.Pipe(duplex=False)
        self.process = context.Process(target=worker.main, args=({"target": target} | asdict(order), told, printed))
        with ONE_AT_A_TIME:
            self.process.start()
        told.close()
        printed.close()
        self.drain = threading.Thread(target=self.keep_what_it_prints, daemon=True)
        self.drain.start()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.pid is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # and whatever it started
        self.process.kill()  # one that has no group of its own yet
        self.status()
        self.drain.join(timeout=5)
        if not self.drain.is_alive():  # else something that it started and that left its group still holds the pipe
            self.output.close()
        self.reader.close()

    def status(self) -> int:
        """How it ended, once it has."""
        wait([self.process.sentinel])
        with ONE_AT_A_TIME:
            status = self.process.exitcode
        assert status is not None
        return status

    def keep_what_it_prints(self) -> None:
        while block := os.read(self.output.fileno(), 65536):
            self.printed = (self.printed + block)[-4096:]

    def next(self) -> dict[str, Any] | None:
        """The next thing it says; none where it ended or the time is over."""
        started = time.monotonic()
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], 0.2)
            self.waited = time.monotonic() - started
            if self.stop.is_set():
                raise KeyboardInterrupt
            if not ready and self.waited > self.limits.seconds:
                self.late = True
                return None
            if not ready:
                continue
            block = os.read(self.reader.fileno(), 1 << 20)
            if not block:
                return None
            self.buffer += block
        line, _, self.buffer = self.buffer.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def last_words(self, when: str) -> str:
        if self.late:
            return (
                f"no answer within {self.limits.seconds:g} s {when}: if the file trains, put that below "
                "if __name__ == '__main__'"
            )
        status = self.status()
        how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        return f"its process {how} {when}{self.last_printed()}"

    def last_printed(self) -> str:
        """The last line that it printed, once it has ended: why it went is mostly in it."""
        self.status()
        self.drain.join(timeout=1)  # a process that it started may still hold the pipe
        lines = [line for line in self.printed.decode(errors="replace").splitlines() if line.strip()]
        return f"; it last printed: {shorten(lines[-1])}" if lines else ""
