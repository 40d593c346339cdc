"""The process in which a stranger's model is built and asked, driven by `isolate`."""

import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from vitlab.check import ask, chosen
from vitlab.check.shapes import subject_of
from vitlab.check.subject import NotFinite, first_line
from vitlab.check.target import build
from vitlab.errors import BadInput


def main(job: dict[str, Any], told: Connection, printed: Connection) -> None:
    os.setsid()  # Ctrl-C is not for this process, and what the model starts can be ended with it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for place in (1, 2):
        os.dup2(printed.fileno(), place)
    printed.close()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    channel = os.fdopen(told.fileno(), "w", buffering=1)

    def tell(**what: Any) -> None:
        channel.write(json.dumps(what) + "\n")

    if job["threads"] and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(job["threads"])
    limit = int(job["limits"]["gigabytes"] * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    try:
        answer(job, tell)
    except BaseException as error:  # a model may raise anything, and may call exit
        sys.stdout.flush()
        tell(trouble=reason(error), left=isinstance(error, SystemExit))
    sys.stdout.flush()
    os._exit(0)  # whatever threads or exit hooks the user's code left behind


def answer(job: dict[str, Any], tell: Callable[..., None]) -> None:
    place = job["target"].partition(":")[0]
    sys.argv = [place]
    sys.path.insert(0, os.getcwd())
    if place.endswith(".py"):
        target = str(Path(place).resolve()) + job["target"][len(place) :]
        os.chdir(Path(place).resolve().parent)  # as if the user had started it there
    else:
        target = job["target"]
    channels, height, width = job["shape"] or (0, 0, 0)
    built = build(target, job["model"], job["loaders"], (channels, height, width) if channels else None)
    subject = subject_of(built.model, built.shape, built.loaders, built.make, job["classes"])
    subject.guessed = subject.guessed or built.guessed
    tell(
        model=type(subject.model).__name__, shape=subject.shape, classes=subject.classes, weights=subject.weights,
    )  # fmt: skip
    for probe in chosen(job["only"], job["skip"], built.loaders.test is not None):
        tell(asking=probe.name)
        tell(asked=probe.name, **asdict(ask(probe, subject)))
    tell(end=True)


def reason(error: BaseException) -> str:
    if isinstance(error, BadInput):
        return str(error)
    if isinstance(error, SystemExit):
        return f"it calls exit({error.code!r}) when it is imported or built"
    if isinstance(error, NotFinite):
        return f"for pictures of noise {error}"
    if isinstance(error, EOFError):
        return "it asks for input when it is imported or built"
    return f"{first_line(error)}{where(error)}"


def where(error: BaseException) -> str:
    """The last line of the user's own files that led to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if f.filename.startswith(os.getcwd()) and "site-packages" not in f.filename]
    return f" ({Path(mine[-1].filename).name}, line {mine[-1].lineno})" if mine else ""
