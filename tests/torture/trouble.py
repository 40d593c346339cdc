"""A step of a job in a process of its own, to which something happens while it runs."""

import os
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from apart import Started

from torture.jobs import Step
from vitlab import cli, interrupt

BEGUN = "begun"  # the file that says that a step has begun, beside what it prints


def no_trouble() -> None:
    pass


def begin(step: Step, folder: Path, printed: Path, trouble: Callable[[], None] = no_trouble) -> Started:
    """Begin a step; from the moment on that it answers signals, `trouble` has come over it."""
    printed.mkdir(parents=True)
    return Started(printed, folder, suffer, step, trouble, printed / BEGUN)


def suffer(step: Step, trouble: Callable[[], None], begun: Path) -> None:
    """The command line, with a step in the place of its verb; Ctrl-C counts while that runs, not before and after."""
    call, words = step

    def verb(_words: list[str], alone: bool) -> None:
        try:
            begun.touch()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            interrupt.listen()
            trouble()
            call(*words)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cli.run_verb = verb
    sys.argv = ["vitlab", *map(str, words)]
    cli.main()


CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "fcntl.flock", "sqlite3.connect"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


@dataclass(frozen=True)
class AtChange:
    """A signal just before the n-th change of a file: an opening to write, a flush to disk, a renaming, a lock …"""

    kind: int
    count: int  # 0: never
    log: Path | None = None  # a file that has a byte for each change, in the end

    def __call__(self) -> None:
        seen, flush = 0, os.fsync
        log = os.open(self.log, os.O_WRONLY | os.O_CREAT) if self.log else None

        def change() -> None:
            nonlocal seen
            seen += 1
            if log is not None:
                os.write(log, b".")
            if seen == self.count:
                os.kill(os.getpid(), self.kind)

        def listen(event: str, given: tuple) -> None:
            if event in CHANGES or (event == "open" and isinstance(given[2], int) and given[2] & WRITING):
                change()

        def flushed(file: int) -> None:
            change()
            flush(file)

        sys.addaudithook(listen)
        os.fsync = flushed


@dataclass(frozen=True)
class InWrite:
    """Killed when a file has grown to so many bytes, in the middle of a write."""

    most: int

    def __call__(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most, self.most))
