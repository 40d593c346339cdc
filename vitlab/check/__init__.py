"""`vitlab check`: find the mistakes in anyone's Vision Transformer, by probing it from outside."""

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vitlab.check.finding import Asked, Finding, Probe, Report, ends_the_program, unknown
from vitlab.check.loaders import Loaders
from vitlab.check.probes import PROBES
from vitlab.check.shapes import subject_of
from vitlab.check.subject import AllAlike, NotFinite, Subject, first_line
from vitlab.errors import BadInput, choose

OURS = str(Path(__file__).parent)
FUNCTIONS = (torch.functional.__file__, functional.__file__)

__all__ = ["Finding", "Report", "assert_healthy", "check"]


def check(
    model: nn.Module | Callable[[], nn.Module],
    shape: tuple[int, int, int] | None = None,
    *,
    classes: int | None = None,
    train: Iterable | None = None,
    test: Iterable | None = None,
    only: Sequence[str] = (),
    skip: Sequence[str] = (),
) -> Report:
    """Ask a model (or what builds one) every probe; `shape`, (channels, height, width), is found where left out."""
    if not callable(model):
        raise TypeError(f"a model is an nn.Module or a function that builds one, not {type(model).__name__}")
    make = None if isinstance(model, nn.Module) else model
    built = model if isinstance(model, nn.Module) else model()
    subject = subject_of(built, shape, Loaders(train, test), make, classes)
    asked = {probe.name: ask(probe, subject) for probe in chosen(only, skip, loaders=test is not None)}
    name = type(subject.model).__name__
    return Report(name, name, subject.shape, subject.classes, subject.weights, asked)


def assert_healthy(
    model: nn.Module | Callable[[], nn.Module], shape: tuple[int, int, int] | None = None, **more: Any
) -> None:
    """For tests: fail with every mistake that the probes find, what shows it and how to mend it."""
    report = check(model, shape, **more)
    mistakes = report.named("mistake")
    if mistakes:
        lines = [f"{name}: {found.measured}. {found.meaning} {found.remedy}" for name, found in mistakes.items()]
        count = f"{len(mistakes)} mistake{'s' * (len(mistakes) != 1)}"
        raise AssertionError("\n".join([f"{count} in {report.model}", *lines]))


def chosen(only: Sequence[str], skip: Sequence[str], loaders: bool) -> list[Probe]:
    """The probes to ask: all of them, but those of the loaders only where there are loaders or they are named."""
    names = {probe.name: probe for probe in PROBES}
    for name in (*only, *skip):
        choose(name, names, "probe")
    wanted = {name for name, probe in names.items() if loaders or not probe.of_batches}
    return [probe for name, probe in names.items() if name in (only or wanted) and name not in skip]


def ask(probe: Probe, subject: Subject) -> Asked:
    """The probe's answer; a model that raises leaves its question open."""
    started = time.monotonic()
    try:
        finding = probe.ask(subject)
    except SystemExit as end:
        finding = ends_the_program(f"the model calls exit({end.code!r}) while it is asked")
    except (NotFinite, AllAlike, BadInput) as error:
        finding = unknown(str(error))
    except Exception as error:
        who = "vitlab's own probe failed, which is our fault, not the model's:" if is_ours(error) else "it raised"
        finding = unknown(f"{who} {first_line(error)}")
    return Asked(finding, time.monotonic() - started)


def is_ours(error: BaseException) -> bool:
    """Whether an error comes from these files, or from a function of torch called there, not from the model."""
    places = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    return [place for place in places if place not in FUNCTIONS][-1].startswith(OURS)
