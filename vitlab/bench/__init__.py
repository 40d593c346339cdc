"""The bench verb: speed and memory, measured by turns in one run, kept as records and shown on one page."""

from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes

from vitlab.bench.contenders import CONTENDERS
from vitlab.bench.page import lines_of, write_page
from vitlab.bench.parts import All, Part
from vitlab.bench.record import Row, fastest_other, groups, save, table_of
from vitlab.bench.scale import Took
from vitlab.bench.scale_page import scale_lines
from vitlab.console import terminal
from vitlab.data.words import one_line
from vitlab.engine.run import describe_environment
from vitlab.errors import BadInput
from vitlab.given import find_device
from vitlab.settings import kinds_of

console = terminal()
PARTS = tuple(name.lower() for name in kinds_of(Part))
WIDE = 130  # letters that a table needs


def bench(part: OmitSubcommandPrefixes[OmitArgPrefixes[Part]] = All()) -> None:  # noqa: B008 (frozen)
    """Measure speed and memory, and write docs/performance.md.

    Args:
        part: What to measure; each has its own --help.
    """
    where, before = find_device(part.device), torch.get_num_threads()
    part.check(where.type)
    torch.set_num_threads(part.threads)
    try:
        for name, config, runs in part.measure(where, tell):
            record = record_of(name, config | {"threads": part.threads}, where)
            path = save(record, runs, part.out)
            write_page(part.out, part.page)
            show(record, runs)
            console.print(f"{path} and {part.page} written\n", markup=False)
    except torch.OutOfMemoryError as problem:
        raise BadInput(f"the GPU's memory is too small for this part: {one_line(problem)}") from None
    finally:
        torch.set_num_threads(before)


def tell(words: str) -> None:
    console.print(words, markup=False)


def record_of(name: str, config: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A record without its runs."""
    around = describe_environment(device)
    kept = {key: around[key] for key in ("command", "device", "date")}
    return {"name": name} | kept | {"versions": around["versions"] | versions(), "config": config}


def show(record: dict[str, Any], runs: list[Any]) -> None:
    """A comparison as tables, curves as what they come to."""
    if isinstance(runs[0], Row):
        for group in groups(runs).values():
            console.print(table_of(group), width=max(console.width, WIDE))
            for row in group:
                if row.ratio is None:
                    tell(f"{row.contender}: {row.note}")
            tell(f"{fastest_other(group)}\n")
        return
    kept = [asdict(run) for run in runs]
    for line in scale_lines(record | {"runs": kept}) if isinstance(runs[0], Took) else lines_of(record["name"], kept):
        tell(line)


def versions() -> dict[str, str]:
    """The version of every contender's library, and of torchvision, whose transforms the reports' style uses."""
    found = {}
    for package in sorted({contender.package for contender in CONTENDERS} - {"torch"} | {"torchvision", "onnxruntime"}):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
