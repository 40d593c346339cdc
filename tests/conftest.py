"""What the tests share: quick experiments, and processes that can be killed."""

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import apart
import pytest
import torch

from vitlab import train
from vitlab.cli import main

if "gpu" not in sys.argv:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same bits everywhere are promised on the CPU
os.environ["OMP_NUM_THREADS"] = "1"  # tiny models: threads cost more than they give, in children
torch.set_num_threads(1)  # and here
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

QUICK = (
    "epochs=3", "data.limit=128", "batch=16", "patch=14", "width=16", "depth=2", "checkpoint=0", "warmup=0.5",
)  # fmt: skip
"""Overrides that make `digits` train in about a second, with a checkpoint after every step."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first in each of two processes, which begin with one half of the list each."""
    longest = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    half = len(others) // 2
    items[:] = longest[0::2] + others[:half] + longest[1::2] + others[half:]


def pytest_collection_finish() -> None:
    """What is imported and collected by now stays: looking through it for waste took a tenth of the time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def processes():
    """Processes that start at once, with vitlab already imported, and may be killed."""
    return apart.server()


@pytest.fixture
def one_core(monkeypatch):
    """This process may use one core of a machine that says it has eight."""
    before = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def begin(tmp_path, tmp_path_factory):
    """Begin the command line, or another call, in a process and an empty folder of its own."""
    return lambda *words, call=apart.command_line: apart.Started(tmp_path_factory.mktemp("p"), tmp_path, call, *words)


@pytest.fixture
def program(begin):
    """The command line as a process of its own, from its start to its end."""

    def call(*words: object, status: int = 0) -> subprocess.CompletedProcess:
        done = begin(*words).end()
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return call


@pytest.fixture
def vitlab(tmp_path, monkeypatch, capfd, processes):
    """The command line in this process, in an empty folder, with all that it and its children print."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object, status: int = 0) -> subprocess.CompletedProcess:
        capfd.readouterr()
        ended = 0
        try:
            main([*map(str, words)])
        except SystemExit as end:
            ended = end.code or 0
        printed = capfd.readouterr()
        assert ended == status, printed.out + printed.err
        return subprocess.CompletedProcess(words, ended, printed.out, printed.err)

    return call


def refused(done: subprocess.CompletedProcess) -> str:
    """The one line of a refusal; anything more is a failure."""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("vitlab: ")
    return lines[0]


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A finished quick run that tests may read but not change."""
    return train("digits", *QUICK, runs=tmp_path_factory.mktemp("runs"), quiet=True).folder
