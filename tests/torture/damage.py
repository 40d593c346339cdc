"""Every file that the product reads, damaged: it is refused in one line, or what is read is sound; nothing else.

Thousands of cases are read in one process, which has so much memory and no more, and is killed where a case takes too
long. A case is told by its reader, the seed and its number, and is damaged in the same way each time, so far as the
whole file is the same: a run has its date in it. The readers are listed in readers.py, the damage is in mutations.py.
"""

import os
import random
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from apart import server

from . import Outcome
from .judging import FINE, MEMORY, Judges

ADDRESSES = 4 << 30  # bytes that may be asked for, though they are perhaps never used
PATIENCE = 10.0  # seconds for a case
SLICE = 0.15  # seconds for which one reader reads, before it is another's turn
LIFE = 5_000  # cases, after which a process is renewed


@dataclass(frozen=True)
class Slice:
    """What came of some cases of one reader."""

    reader: str
    first: int
    cases: int
    lost: tuple[str, ...]


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    """Damage and read, every reader in turn, where files are written to memory if there is such a place."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else folder) as place:
        numbers: dict[str, int] = {}
        while True:
            yield from live(seed, Path(place), numbers)


def live(seed: int, folder: Path, numbers: dict[str, int]) -> Iterator[Outcome]:
    """One process, for as long as it lives; of one that does not end by itself, the case that ended it is lost."""
    at, said = folder / "at", ""
    at.write_bytes(b"")
    here, there = server().Pipe()
    process = server().Process(target=read_on, args=(there, seed, folder, dict(numbers)), daemon=True)
    process.start()
    there.close()
    try:
        with suppress(EOFError, OSError):
            while not said:
                here.send("read some")
                while not said and not here.poll(0.5):
                    late = seconds_at(at)
                    said = f"not read after {late:.0f} s" if late > PATIENCE else ""
                if not said:
                    done: Slice = here.recv()
                    numbers[done.reader] = done.first + done.cases
                    yield Outcome(f"damaged: {done.reader}", done.cases, done.lost)
    finally:
        here.close()  # by which a process that waits ends
        process.join(0 if said else 5)
        process.kill()
        process.join()
    if process.exitcode:
        reader, number, _ = at.read_text().split("\t")
        numbers[reader] = int(number) + 1
        lost = f"{case_name(seed, reader, int(number))}: {said or f'the process ended with {process.exitcode}'}"
        yield Outcome(f"damaged: {reader}", 1, (lost,))


def seconds_at(at: Path) -> float:
    """How long the case takes that is being read."""
    text = at.read_text().split("\t")
    return time.monotonic() - float(text[2]) if len(text) == 3 else 0.0


def case_name(seed: int, reader: str, number: int) -> str:
    return f"{reader}, seed {seed}, case {number}"


def read_on(told: Connection, seed: int, folder: Path, numbers: dict[str, int]) -> None:
    """Read damaged files until the process is old, or has taken too much memory; a later process begins with a bomb."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESSES,) * 2)
    os.chdir(folder)
    judges, read = Judges(seed, folder), 0
    names = [name for name in judges.readers if name != "bombs"]
    random.Random(f"{seed} {sum(numbers.values())}").shuffle(names)
    turns = (["bombs"] if numbers else []) + names
    with told, suppress(EOFError):
        while read < LIFE and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 <= MEMORY:
            told.recv()
            done = read_some(judges, turns[0], numbers.get(turns[0], 0))
            numbers[done.reader], read = done.first + done.cases, read + done.cases
            told.send(done)
            turns = turns[1:] or names


def read_some(judges: Judges, reader: str, first: int) -> Slice:
    cases, lost = 0, []
    judges.place(judges.readers[reader])  # which takes seconds, the first time
    until = time.monotonic() + SLICE
    while not cases or (time.monotonic() < until and reader != "bombs"):
        said = judges.case(reader, first + cases)
        if said not in FINE:
            lost.append(f"{case_name(judges.seed, reader, first + cases)}: {said}")
        cases += 1
    return Slice(reader, first, cases, tuple(lost))


if __name__ == "__main__":  # PYTHONPATH=tests python -m torture.damage SEED READER CASE: one case again
    with TemporaryDirectory() as temporary:
        os.chdir(temporary)
        sys.stdout.write(Judges(int(sys.argv[1]), Path(temporary)).case(sys.argv[2], int(sys.argv[3])) + "\n")
