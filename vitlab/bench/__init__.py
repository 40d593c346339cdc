"""The bench verb: vitlab's training step and data path against other libraries and the reports' style, by turns."""

from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import torch
from tyro.conf import Positional

from vitlab.bench.contenders import CONTENDERS
from vitlab.bench.pipeline import compare_data_paths, compare_epochs
from vitlab.bench.record import Row, fastest_other, groups, save, table_of, write_page
from vitlab.bench.shapes import SHAPES, ShapeName
from vitlab.bench.training import compare_steps
from vitlab.console import terminal
from vitlab.engine.run import describe_environment
from vitlab.errors import BadInput
from vitlab.lab import find_device

What = Literal["training", "data", "epoch", "all"]
console = terminal()


def bench(
    what: Positional[What] = "all",
    /,
    *,
    rounds: int = 30,
    shapes: tuple[ShapeName, ...] = ("R1", "R0", "R4"),
    pictures: int = 6400,
    threads: int = 2,
    device: str = "auto",
    out: Path = Path("results/bench"),
    page: Path = Path("docs/bench.md"),
) -> None:
    """Measure training step, data path and a whole epoch against other libraries, as ratios in one run.

    Args:
        what: The part to measure.
        rounds: Turns that each contender gets; a ratio is the median over them.
        shapes: The reports' shapes to train.
        pictures: Pictures in a pass of the data path and in an epoch.
        threads: CPU threads that torch may use.
        device: auto, cpu or cuda.
        out: Folder of the records.
        page: The page that is written from the records.
    """
    if rounds < 1 or threads < 1:
        raise BadInput(f"rounds and threads must be 1 or more, not {rounds} and {threads}")
    if not 64 <= pictures <= 10_000:
        raise BadInput(f"pictures must be from 64, one batch, to 10000, the embedded digits, not {pictures}")
    where, before = find_device(device), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        rows = [row for group in measure(what, rounds, shapes, where, pictures) for row in show(group)]
    finally:
        torch.set_num_threads(before)
    around = describe_environment(where)
    record = {
        "name": f"{what}-{where.type}",
        "command": around["command"],
        "device": around["device"],
        "date": around["date"],
        "versions": around["versions"] | versions(),
        "config": {
            "rounds": rounds,
            "threads": threads,
            "pictures": pictures,
            "shapes": {name: str(SHAPES[name]) for name in shapes},
            "settings": {name: asdict(SHAPES[name]) for name in shapes},
        },
    }
    path = save(record, rows, out)
    write_page(out, page)
    console.print(f"{path} and {page} written", markup=False)


def measure(
    what: What, rounds: int, shapes: tuple[ShapeName, ...], device: torch.device, pictures: int
) -> Iterator[list[Row]]:
    """The rows of each comparison as soon as it is done."""
    if what in ("training", "all"):
        for name in shapes:
            yield compare_steps(SHAPES[name], rounds, device)
    if what in ("data", "all"):
        for work in {SHAPES[name].picture: SHAPES[name] for name in shapes}.values():
            yield compare_data_paths(work, passes(rounds), device, pictures)
    if what in ("epoch", "all"):
        yield compare_epochs(passes(rounds), device, pictures)


def passes(rounds: int) -> int:
    """A pass over thousands of pictures is steadier than a few steps, so it needs fewer turns."""
    return -(-rounds // 5)


def show(rows: list[Row]) -> list[Row]:
    for (part, work), group in groups(rows).items():
        console.print(table_of(part, work, group))
        for row in group:
            if row.ratio is None:
                console.print(f"{row.contender}: {row.note}", markup=False)
        console.print(f"{fastest_other(group)}\n", markup=False)
    return rows


def versions() -> dict[str, str]:
    """The version of every contender's library, and of torchvision, whose transforms the reports' style uses."""
    found = {}
    for package in sorted({contender.package for contender in CONTENDERS} - {"torch"} | {"torchvision"}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
