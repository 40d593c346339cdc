"""Every area for as long as it is told, then a table: make torture [MINUTES=10] [SEED=0] [ONLY=crash,damage]."""

import argparse
import os
import pkgutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from importlib import import_module
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import apart
import torch

import torture
from torture import Outcome
from vitlab.console import plain_table, terminal
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import write_json
from vitlab.errors import BadInput, choose

PATIENCE = 60.0  # seconds that the last step of an area may take once the time is over
READY = "ready"
SHOWN = 20  # losses that are printed; the record has them all


def areas() -> dict[str, str]:
    """The modules of the package that have trials, by their short names."""
    names = [found.name for found in pkgutil.iter_modules(torture.__path__) if not found.name.startswith("_")]
    modules = {name: f"torture.{name}" for name in names}
    return {name: module for name, module in modules.items() if hasattr(import_module(module), "trials")}


def promise(module: str) -> str:
    """What an area puts to the test: the first line of what it says of itself."""
    return (import_module(module).__doc__ or "").partition("\n")[0]


def walk(module: str, seed: int, folder: Path, pipe: Connection) -> None:
    """An area's process: one step for each word that comes, until the other end of the pipe is closed."""
    os.setsid()  # Ctrl-C is answered by the runner alone, which then asks for the end
    signal.signal(signal.SIGTERM, lambda kind, frame: sys.exit())
    torch.set_num_threads(1)
    apart.PRELOADED.append("torture.warm")  # an area's processes are many, and forked from a server of its own
    with closing(import_module(module).trials(seed, folder)) as steps, suppress(EOFError, BrokenPipeError):
        pipe.send(READY)
        while True:
            pipe.recv()
            pipe.send(next(steps, None))


class Area:
    """One area: its process, the seconds it was given, and what came of them."""

    def __init__(self, name: str, module: str, seed: int, folder: Path):
        context = apart.server()
        self.name, self.seconds, self.began, self.ended = name, 0.0, time.monotonic(), False
        self.share = getattr(import_module(module), "SHARE", 1)
        self.rows: dict[str, tuple[int, list[str]]] = {}
        self.pipe, theirs = context.Pipe()
        folder.mkdir()
        self.process = context.Process(target=walk, args=(module, seed, folder, theirs))
        self.process.start()
        theirs.close()

    def ask(self) -> None:
        """For one more step."""
        self.began = time.monotonic()
        try:
            self.pipe.send("step")
        except OSError:
            self.hear()

    def hear(self) -> None:
        """What the step came to; a process that is gone is a loss of its own."""
        try:
            outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            outcome = Outcome("the area itself", 1, (f"it ended with status {self.process.exitcode}",))
            self.ended = True
        if outcome == READY:
            return
        self.seconds += time.monotonic() - self.began
        if outcome is None:
            self.ended = True
            return
        tried, lost = self.rows.get(outcome.what, (0, []))
        self.rows[outcome.what] = tried + outcome.tried, [*lost, *outcome.lost]

    def end(self) -> None:
        """No further step; one that is under way is given up, and may tidy up."""
        self.process.join(10)
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def share(tried: Sequence[Area], seconds: float, at_once: int) -> None:
    """Give the areas their time: always the next step to the one that had the least so far, of its share."""
    for area in tried:
        area.hear()  # that it is ready: what it imports is not counted
    until, busy = time.monotonic() + seconds, dict[Connection, Area]()
    while True:
        idle = [area for area in tried if area not in busy.values() and not area.ended]
        while idle and len(busy) < at_once and time.monotonic() < until:
            area = min(idle, key=lambda area: area.seconds / area.share)
            idle.remove(area)
            area.ask()
            busy[area.pipe] = area
        if not busy:
            return
        ready = wait(list(busy), timeout=max(until + PATIENCE - time.monotonic(), 0))
        for pipe in ready:
            assert isinstance(pipe, Connection)
            busy.pop(pipe).hear()
        if not ready:
            for area in busy.values():
                late = f"a step did not end within {time.monotonic() - area.began:.0f} s"
                area.rows["the area itself"] = 1, [late]
            return


def rows_of(tried: Sequence[Area]) -> list[dict[str, Any]]:
    return [
        {"area": area.name, "what": what, "tried": count, "lost": lost}
        for area in tried
        for what, (count, lost) in sorted(area.rows.items())
    ]


def show(rows: Sequence[Mapping[str, Any]], tried: Sequence[Area], seed: int) -> None:
    """The table of what was tried and what was lost, and how to see a loss again."""
    console, table = terminal(), plain_table("area", "what was tried", "cases", "lost")
    for row in rows:
        lost = len(row["lost"])
        table.add_row(row["area"], row["what"], f"{row['tried']:,}", str(lost), style="bold red" if lost else None)
    for column in table.columns[2:]:
        column.justify = "right"
    table.add_row("", "all", f"{sum(row['tried'] for row in rows):,}", str(sum(len(row["lost"]) for row in rows)))
    console.print(table, markup=False)
    console.print(", ".join(f"{area.name} {area.seconds:.0f} s" for area in tried), markup=False)
    losses = [f"lost: {row['area']}: {row['what']}: {line}" for row in rows for line in row["lost"]]
    for line in losses[:SHOWN]:
        console.print(line, markup=False)
    if len(losses) > SHOWN:
        console.print(f"and {len(losses) - SHOWN} more, which --out keeps", markup=False)
    for area in sorted({row["area"] for row in rows if row["lost"]}):
        console.print(f"again: make torture ONLY={area} SEED={seed}", markup=False)


def asked(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make torture", description="The whole product under faults and bad input.")
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn at random (0)")
    parser.add_argument("--only", default="", help="areas, such as crash,damage; left out, all of them")
    parser.add_argument("--at-once", type=int, default=2, help="areas that run at the same time (2)")
    parser.add_argument("--out", type=Path, help="keep the record, as results/torture/full.json")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None, known: Mapping[str, str] | None = None) -> int:
    """Run the areas; 1 where anything was lost."""
    given, known = asked(words), known or areas()
    try:
        names = [choose(name, known, "area") for name in given.only.split(",") if name] or list(known)
    except BadInput as problem:
        print(f"make torture: {problem}", file=sys.stderr)
        return 2
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # as the tests: the same bits, on two cores
    terminal().print(f"{given.minutes:g} minutes for {', '.join(names)}, from seed {given.seed}", markup=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as folder:
        tried = [Area(name, known[name], given.seed, Path(folder) / name) for name in names]
        try:
            share(tried, 60 * given.minutes, given.at_once)
        except KeyboardInterrupt:
            print("stopped; this far:", file=sys.stderr)
        finally:
            for area in tried:
                area.process.terminate()
            for area in tried:
                area.end()
    minutes, rows = (time.monotonic() - began) / 60, rows_of(tried)
    show(rows, tried, given.seed)
    if given.out is not None:
        chosen = f"make torture MINUTES={given.minutes:g} SEED={given.seed}" + (
            f" ONLY={given.only}" * bool(given.only)
        )
        around = describe_environment(torch.device("cpu")) | {"command": chosen}
        about = [
            {"name": area.name, "promise": promise(known[area.name]), "seconds": round(area.seconds, 1)}
            for area in tried
        ]
        facts = {"seed": given.seed, "minutes": round(minutes, 2), "areas": about, "rows": rows}
        given.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(given.out, {"name": given.out.stem} | around | facts)
    return int(any(row["lost"] for row in rows))
