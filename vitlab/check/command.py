"""The verb: many targets, each in a process of its own, and what is shown of them."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from json import dumps
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import tyro

from vitlab.check import chosen
from vitlab.check.finding import Report
from vitlab.check.isolate import Limits, Order, check_apart, prepare
from vitlab.check.page import render
from vitlab.check.target import exists
from vitlab.check.terminal import show, show_probes, show_table
from vitlab.console import terminal
from vitlab.engine.storage import write
from vitlab.errors import BadInput, shorten
from vitlab.printed import Words
from vitlab.processes import cores

out = terminal()
left_out = partial(tyro.conf.arg, help_behavior_hint="")
FIRST = ("model.py", "vit.py", "main.py")  # of a submission that is a folder


def check(
    targets: Words = (),
    /,
    *,
    folder: Annotated[Path | None, left_out(metavar="FOLDER")] = None,
    model: Annotated[str | None, left_out(metavar="NAME")] = None,
    shape: Annotated[str | None, left_out(metavar="CxYxX")] = None,
    classes: Annotated[int | None, left_out(metavar="COUNT")] = None,
    loaders: Annotated[str | None, left_out(metavar="NAME")] = None,
    only: Annotated[tuple[str, ...], left_out(metavar="PROBE…")] = (),
    skip: Annotated[tuple[str, ...], left_out(metavar="PROBE…")] = (),
    list: bool = False,
    json: bool = False,
    html: Annotated[Path | None, left_out(metavar="FILE")] = None,
    seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 60.0,
    memory: Annotated[float, tyro.conf.arg(metavar="GIGABYTES")] = 8.0,
) -> None:
    """Find mistakes in any PyTorch ViT, by probing it from outside.

    Each model runs in a process of its own, which is stopped if it hangs. That guards against accidents, not against
    malice: check only code that you would run. Exit status 1 where a mistake was found.

    Args:
        targets: file.py, file.py:Class(width=64), a run's folder, timm:NAME, transformers:NAME or torchvision:NAME.
        folder: Check every Python file of a folder, and one of each folder in it; makes one table.
        model: What to build from each file that names nothing, such as 'ViT(image_size=28)'.
        shape: Channels, height and width of a picture, such as 1x28x28 (default: it is found).
        classes: How many outputs there should be (default: they are counted).
        loaders: A function in the file that returns (train, test) loaders (default: those it holds by such names).
        only: Ask these probes only.
        skip: Leave these probes out.
        list: List the probes: what each asks, and where it draws the line.
        json: Print JSON.
        html: Write a page with the evidence as pictures.
        seconds: Seconds to wait for the model to be built, and for each answer.
        memory: Gigabytes that a model may use.
    """
    if list:
        return show_probes(out)
    found, empty = submissions(folder) if folder else ([], [])
    if not (named := [*targets, *found]):
        raise BadInput("nothing to check: write vitlab check FILE.py:CLASS, or --folder FOLDER")
    if not chosen(only, skip, loaders=True):
        raise BadInput("no probe is left to ask: --skip names all that --only does")
    writable(html)
    order = Order(model or "", read_shape(shape), classes, loaders or "", only, skip, Limits(seconds, memory))
    reports = []
    with progress(json) as tell:
        for report in check_all(named, order, tell):
            reports.append(report)
            if not json and not folder:
                show(out, report)
    if json:
        print(to_json(reports))
    elif folder or len(reports) > 1:
        show_table(out, reports, empty)
    if html:
        write(html, render(reports).encode())
    if not all(report.healthy for report in reports):
        sys.exit(1)


def writable(page: Path | None) -> None:
    """Refuse a page that cannot be written, before minutes are spent on it."""
    if page is None:
        return
    if page.is_dir() or not os.access(page.parent, os.W_OK | os.X_OK):
        why = "it is a folder" if page.is_dir() else f"{page.parent} is no folder that can be written to"
        raise BadInput(f"cannot write {shorten(str(page))}: {why}")


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A line that says what is being asked, where somebody sits before the terminal."""
    if quiet or not out.is_terminal:
        yield lambda text: None
        return
    with out.status("importing") as status:
        yield status.update


def check_all(targets: Sequence[str], order: Order, tell: Callable[[str], None]) -> Iterator[Report]:
    """Each target's report, in order; several side by side, each with its share of the cores."""
    for target in targets:
        exists(target)
    side_by_side = max(min(cores(), len(targets)), 1)
    shared, stop = replace(order, threads=max(cores() // side_by_side, 1)), Event()

    def one(target: str) -> Report:
        return check_apart(target, shared, lambda name: tell(f"{target}: {name}"), stop)

    prepare(len(targets))
    with ThreadPoolExecutor(side_by_side) as pool:
        try:
            yield from pool.map(one, targets)
        except BaseException:
            stop.set()  # every process is ended before this one is
            pool.shutdown(cancel_futures=True)
            raise


def submissions(folder: Path) -> tuple[list[str], list[str]]:
    """Every Python file of a folder, and of each folder in it the one that holds the model; and folders without one."""
    if not folder.is_dir():
        raise BadInput(f"no folder {shorten(str(folder))}")
    found = [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("_")]
    empty = []
    for inner in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))):
        files = sorted(inner.glob("*.py"))
        found += [inner / name for name in FIRST if inner / name in files][:1] or files[:1]
        empty += [str(inner)] * (not files)
    if not found:
        raise BadInput(f"no Python file in {shorten(str(folder))}")
    return [str(path) for path in found], empty


def read_shape(text: str | None) -> tuple[int, int, int] | None:
    """`1x28x28` → (1, 28, 28)."""
    if not text:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        raise BadInput(f"'{shorten(text)}' is no picture shape: write channels, height and width as 1x28x28")
    channels, height, width = map(int, parts)
    return channels, height, width


def to_json(reports: Sequence[Report]) -> str:
    return dumps([fields(report) for report in reports], indent=2, ensure_ascii=False)


def fields(report: Report) -> dict[str, Any]:
    return {"healthy": report.healthy, **asdict(report)}
