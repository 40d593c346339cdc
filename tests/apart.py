"""Processes that start at once: forked from a server that has imported vitlab, each with its own folder and output."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

from vitlab.cli import main

PRELOADED = ["vitlab.cli", "torch._dynamo", "vitlab.study.crew", "psycopg"]


def server() -> multiprocessing.context.BaseContext:
    """Start the server where there is none yet; it has the environment of the first test that asks for it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    forkserver.ensure_running()
    return context


class Started:
    """A call in a process and a session of its own, with the environment of this moment; what it prints is in files."""

    def __init__(self, printed: Path, cwd: Path, call: Callable[..., Any], *words: object):
        self.words, self.out, self.err = words, printed / "out", printed / "err"
        self.out.touch()
        self.process = server().Process(target=enter, args=((self.out, self.err), cwd, dict(os.environ), call, words))
        self.process.start()

    def said(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def wait_for(self, what: Callable[[], Any], seconds: float = 60) -> None:
        """Until something is so, which must be while the process runs."""
        until = time.monotonic() + seconds
        while not what():
            assert self.process.exitcode is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.005)

    def send(self, kind: signal.Signals) -> None:
        """A signal to all of the session, as a terminal sends it."""
        try:
            os.killpg(self.process.pid, kind)
        except ProcessLookupError:  # it has no session yet, being still on its way to `enter`
            os.kill(self.process.pid, kind)

    def end(self, seconds: float = 250) -> subprocess.CompletedProcess:
        """Its status and its words; a process that does not end is killed and is a failure."""
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.send(signal.SIGKILL)
            self.process.join()
            raise AssertionError(f"no end within {seconds} s: {self.said()}")
        return subprocess.CompletedProcess(
            self.words, self.process.exitcode, self.out.read_text(), self.err.read_text()
        )


def enter(
    printed: tuple[Path, Path], cwd: Path, environment: dict[str, str], call: Callable[..., Any], words: tuple
) -> None:
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # a server that vitlab started holds it back
    for place, path in enumerate(printed, start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), place)
    sys.stdout.reconfigure(line_buffering=True)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    call(*words)


def command_line(*words: object) -> None:
    """vitlab WORDS"""
    sys.argv = ["vitlab", *map(str, words)]
    main()


def script(code: str) -> None:
    """python - < CODE"""
    sys.argv = ["-"]
    exec(compile(code, "<stdin>", "exec"), {"__name__": "__main__"})
