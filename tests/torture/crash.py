"""Killed at any instant, everything goes on to the same bits; no half-written file is read, no lock is left."""

import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture import Outcome
from torture.jobs import JOBS, Broken, Job
from torture.trouble import BEGUN, AtChange, InWrite, begin

SHARE = 3  # of the time: each case is a process or several
KINDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGXFSZ)
LIMIT = 60.0  # seconds for a step that is not killed


@dataclass(frozen=True)
class Subject:
    """A job with what it needs, and what it comes to when nobody kills it."""

    job: Job
    template: Path
    expected: Mapping[str, Any]
    seconds: float
    changes: int  # of files
    largest: int  # bytes of a file

    @classmethod
    def of(cls, job: Job, folder: Path) -> "Subject":
        """Do the job twice: the first time also loads what no other had loaded."""
        template, changes = folder / "template", 0
        template.mkdir(parents=True)
        job.prepare(template)
        for name in ("first", "second"):
            place, log = Path(shutil.copytree(template, folder / name)), folder / f"{name}.log"
            step = job.step(place)
            assert step is not None
            started = begin(step, place, folder / f"{name}.printed", AtChange(signal.SIGKILL, 0, log))
            started.wait_for(lambda path=folder / f"{name}.printed" / BEGUN: path.exists())
            began = time.monotonic()
            done = started.end(LIMIT)
            seconds, changes = time.monotonic() - began, log.stat().st_size
            assert done.returncode == 0, done.stderr
        largest = max(path.stat().st_size for path in place.rglob("*") if path.is_file())
        return cls(job, template, job.result(place), seconds, changes, largest)


@dataclass(frozen=True)
class Kill:
    """A signal, and when it comes."""

    kind: signal.Signals
    after: float | None = None  # seconds
    change: int = 0  # of a file, before which it comes
    size: int = 0  # of a file, at which it comes

    def __str__(self) -> str:
        if self.after is not None:
            return f"after {self.after:.3f} s"
        return f"before change {self.change} of a file" if self.change else f"at {self.size} bytes of a file"

    @property
    def trouble(self) -> Callable[[], None]:
        return AtChange(self.kind, self.change) if self.kind != signal.SIGXFSZ else InWrite(self.size)

    def strike(self, subject: Subject, place: Path, printed: Path) -> subprocess.CompletedProcess | None:
        """Begin the job's next step and end it so; how it ended, or nothing if there was nothing left to do."""
        step = subject.job.step(place)
        if step is None:
            return None
        started = begin(step, place, printed, self.trouble)
        if self.after is not None:
            started.wait_for(lambda: (printed / BEGUN).exists() or started.process.exitcode is not None)
            started.process.join(self.after)
            with suppress(ProcessLookupError):
                started.send(self.kind)
        return started.end(LIMIT)


def drawn(kind: signal.Signals, subject: Subject, chance: random.Random) -> Kill:
    """Some moment of a job, half of them those at which a file changes."""
    if kind == signal.SIGXFSZ:
        return Kill(kind, size=int(256 * (subject.largest / 256) ** chance.random()))
    if chance.random() < 0.5:
        return Kill(kind, change=chance.randint(1, subject.changes))
    return Kill(kind, after=chance.uniform(0, subject.seconds))


def misbehaved(kind: signal.Signals, done: subprocess.CompletedProcess) -> str | None:
    """What is wrong with how a process ended after a signal."""
    allowed = {0, -kind} if kind in (signal.SIGKILL, signal.SIGXFSZ) else {0, -signal.SIGTERM, 130}
    lines = done.stderr.strip().splitlines()
    if done.returncode not in allowed or (kind == signal.SIGINT and done.returncode < 0):
        return f"status {done.returncode}, {lines[-1:]}"
    if done.returncode == 130 and not (len(lines) == 1 and lines[0].startswith("vitlab: ")):
        return f"it said {lines[-3:]}"
    return None


def went_on(subject: Subject, place: Path, printed: Path) -> None:
    """Let the job end, to the result that it always has."""
    step = subject.job.step(place)
    if step is not None:
        done = begin(step, place, printed).end(LIMIT)
        if done.returncode:
            raise Broken(f"it did not go on: status {done.returncode}, {done.stderr.strip().splitlines()[-1:]}")
    differences(subject, place)


def differences(subject: Subject, place: Path) -> None:
    found, expected = subject.job.result(place), subject.expected
    odd = [name for name in sorted(expected.keys() | found.keys()) if found.get(name) != expected.get(name)]
    if odd:
        raise Broken(f"it came to other {', '.join(odd)}")


def tried(subject: Subject, kind: signal.Signals, chance: random.Random, place: Path) -> tuple[int, list[str]]:
    """Kill a job several times and let it end: how often it was killed, and what went wrong."""
    shutil.copytree(subject.template, place)
    kills, history = 0, []
    try:
        for link in range(subject.job.kills):
            kill = drawn(kind, subject, chance)
            done = kill.strike(subject, place, place.with_name(f"{place.name}-{link}"))
            if done is None:
                break
            kills += done.returncode != 0
            history.append(str(kill))
            wrong = misbehaved(kind, done)
            if wrong:
                raise Broken(wrong)
            subject.job.inspect(place, subject.expected)
        went_on(subject, place, place.with_name(f"{place.name}-end"))
    except Exception as problem:
        return max(kills, 1), [
            f"{'; '.join(history)}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
        ]
    return kills, []


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    """Jobs by turns, always the one that had the least time so far; each is killed several times by one signal."""
    spent, counts, subjects = dict.fromkeys((job.name for job in JOBS), 0.0), Counter[str](), dict[Job, Subject]()
    while True:
        name = min(spent, key=spent.__getitem__)
        number = counts[name]
        counts[name] += 1
        chance = random.Random(f"{seed} {name} {number}")  # whatever came before it
        turn, place = divmod(number, len(KINDS))
        kind = random.Random(f"{seed} {name} {turn}").sample(KINDS, len(KINDS))[place]  # each once in a turn
        job, here = chance.choice([job for job in JOBS if job.name == name]), folder / "now"
        if job not in subjects:
            subjects[job] = Subject.of(job, folder / f"job-{JOBS.index(job)}")
        began = time.monotonic()
        kills, lost = tried(subjects[job], kind, chance, here / "place")
        spent[name] += time.monotonic() - began
        shutil.rmtree(here)
        what = f"{name}, {'killed in a write' if kind == signal.SIGXFSZ else f'killed by {kind.name}'}"
        yield Outcome(what, kills, tuple(f"trial {number}, {job}: {line}" for line in lost))
