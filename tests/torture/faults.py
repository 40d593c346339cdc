"""Full disks, closed folders, few handles, odd clocks, crowds: a right result or one clear line, and nothing lost."""

import ctypes
import itertools
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from torture import Outcome
from torture.crash import LIMIT, Subject, differences, went_on
from torture.jobs import JOBS, Broken, Job, words
from torture.trouble import AtChange, begin, no_trouble


@dataclass(frozen=True)
class LargestFile:
    """No file may have more than so many bytes: a write that does not fit fails, as on a full disk."""

    most: int

    def __call__(self) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.most, self.most))


@dataclass(frozen=True)
class FewHandles:
    """So many files may be opened beside those that are open."""

    more: int

    def __call__(self) -> None:
        taken = {int(name) for name in os.listdir("/proc/self/fd")}
        free = [number for number in range(len(taken) + self.more + 1) if number not in taken]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[self.more],) * 2)


def without_privileges() -> None:
    """Permissions hold for this process, even where it is root's."""
    if os.geteuid() == 0:
        header, nothing = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        failed = ctypes.CDLL(None, use_errno=True).capset(header, nothing)
        assert not failed, os.strerror(ctypes.get_errno())


@dataclass(frozen=True)
class ClockBack:
    """Every look at the clock is earlier than the last."""

    seconds: float

    def __call__(self) -> None:
        before, looks = time.time, 0

        def earlier() -> float:
            nonlocal looks
            looks += 1
            return before() - self.seconds * looks

        time.time = earlier


@contextmanager
def small_disk(folder: Path, room: int) -> Iterator[bool]:
    """A file system of its own at a folder, with so many bytes; false where this user may not mount one."""
    folder.mkdir(parents=True)
    mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={room}", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True, capture_output=True)


def refused_or_done(done: subprocess.CompletedProcess) -> None:
    """One line and status 2, or a good end."""
    lines = done.stderr.strip().splitlines()
    if done.returncode == 0 and not lines:
        return
    if not (done.returncode == 2 and len(lines) == 1 and lines[0].startswith("vitlab")):
        raise Broken(f"status {done.returncode}, {len(lines)} lines, the last: {lines[-1:]}")


@dataclass
class Case:
    """A job in a place of its own, and what chance has in store for it."""

    subject: Subject
    home: Path
    chance: random.Random
    place: Path = field(init=False)
    note: str = ""
    steps: int = 0

    def __post_init__(self) -> None:
        self.place = self.home / "place"

    def step(self, trouble: Callable[[], None] = no_trouble) -> subprocess.CompletedProcess | None:
        step = self.subject.job.step(self.place)
        if step is None:
            return None
        return begin(step, self.place, self.printed(), trouble).end(LIMIT)

    def printed(self) -> Path:
        self.steps += 1
        return self.home / f"printed-{self.steps}"

    def suffer(self, trouble: Callable[[], None]) -> None:
        """A step in trouble: it is refused or done, and what it leaves is whole."""
        done = self.step(trouble)
        if done is not None:
            refused_or_done(done)
        self.subject.job.inspect(self.place, self.subject.expected)

    def halfway(self) -> None:
        """Begun, and stopped at a change of a file by chance; or not begun at all."""
        if self.chance.random() < 0.7:
            self.step(AtChange(signal.SIGKILL, self.chance.randint(1, self.subject.changes)))

    def start(self) -> None:
        shutil.copytree(self.subject.template, self.place)


def full_disk(case: Case) -> None:
    """Sometimes a small file system, sometimes a largest file."""
    size = sum(path.stat().st_size for path in case.subject.template.rglob("*") if path.is_file())
    room = int(case.subject.largest ** case.chance.random()) + case.chance.choice([0, 4096, 65536])
    case.note = f"{room} bytes free"
    with small_disk(case.home / "disk", 2 * size + (1 << 16) + room) as mounted:
        if not mounted or case.chance.random() < 0.3:
            case.start()
            case.suffer(LargestFile(max(room, 512)))
            went_on(case.subject, case.place, case.printed())
            return
        case.place = case.home / "disk" / "place"
        case.start()
        with open(case.place.parent / "ballast", "wb") as file:  # fills what is free, but for some room
            free = os.statvfs(case.place)
            file.write(bytes(max(free.f_bavail * free.f_frsize - room, 0)))
        case.suffer(no_trouble)
        enlarge(case.place.parent)
        went_on(case.subject, case.place, case.printed())


def closed_folder(case: Case) -> None:
    """Nothing in the folder can be written."""
    case.start()
    case.halfway()
    paths = [case.place, *case.place.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    case.suffer(without_privileges)
    for path, mode in modes.items():
        path.chmod(mode)
    went_on(case.subject, case.place, case.printed())


def closed_file(case: Case) -> None:
    """One of the files or folders cannot even be read."""
    case.start()
    case.halfway()
    path = case.chance.choice(sorted(case.place.rglob("*")))
    mode, case.note = path.stat().st_mode, str(path.relative_to(case.place))
    path.chmod(0)
    try:
        done = case.step(without_privileges)
    finally:
        if path.exists():  # what was begun and is of no use may be removed
            path.chmod(mode)
    if done is not None:
        refused_or_done(done)
    case.subject.job.inspect(case.place, case.subject.expected)
    went_on(case.subject, case.place, case.printed())


def few_handles(case: Case) -> None:
    case.start()
    more = case.chance.randint(0, 4)
    case.note = f"{more} more"
    case.suffer(FewHandles(more))
    went_on(case.subject, case.place, case.printed())


def clock_back(case: Case) -> None:
    case.start()
    case.halfway()
    done = case.step(ClockBack(10 ** case.chance.uniform(-3, 5)))
    if done is not None and done.returncode:
        raise Broken(f"status {done.returncode}, {done.stderr.strip().splitlines()[-1:]}")
    differences(case.subject, case.place)


def crowd(case: Case) -> None:
    """Two processes at once in one folder: each ends well or is refused, and the result is right."""
    case.start()
    case.halfway()
    step = case.subject.job.step(case.place)
    if step is not None:
        both = [begin(step, case.place, case.printed()) for _ in range(2)]
        ends = [each.end(LIMIT) for each in both]
        for done in ends:
            refused_or_done(done)
        if all(done.returncode for done in ends):
            raise Broken(f"both were refused: {[done.stderr for done in ends]}")
        case.subject.job.inspect(case.place, case.subject.expected)
    went_on(case.subject, case.place, case.printed())


def moved(case: Case) -> None:
    """Moved while nothing runs."""
    case.start()
    case.halfway()
    case.place = Path(shutil.move(case.place, case.place.with_name("elsewhere")))
    went_on(case.subject, case.place, case.printed())


def copied(case: Case) -> None:
    """Copied while nothing runs: both go on, to the same result."""
    case.start()
    case.halfway()
    for place in (Path(shutil.copytree(case.place, case.place.with_name("copy"))), case.place):
        went_on(case.subject, place, case.printed())


FAULTS: dict[str, Callable[[Case], None]] = {
    "disk full": full_disk,
    "read-only folder": closed_folder,
    "permission denied": closed_file,
    "few file handles": few_handles,
    "clock moving backwards": clock_back,
    "two processes at once": crowd,
    "moved while idle": moved,
    "copied while idle": copied,
}


FIRST = Path(__file__).parent.parent / "data" / "first-version"  # runs of vitlab's first commit
OLDER = (
    ("evaluate", "ended"), ("report", "ended"), ("calibrate", "ended"), ("look", "ended", "test:0"),
    ("export", "ended", "--to", "torch-export"), ("finetune", "ended", "epochs=1"), ("resume", "ended"),
    ("resume", "stopped"),
)  # fmt: skip


def older(given: tuple[str, ...], place: Path) -> None:
    """A run of the first version is read, or refused in one line; nothing that it holds is changed."""
    shutil.copytree(FIRST, place)
    refused_or_done(begin(words(*given), place, place.with_name("printed")).end(LIMIT))
    for path in FIRST.rglob("*.*"):
        if (place / path.relative_to(FIRST)).read_bytes() != path.read_bytes():
            raise Broken(f"{path.relative_to(FIRST)} is no longer what it was")


def problem_of(call: Callable[[], None]) -> str | None:
    try:
        call()
    except Exception as problem:
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    return None


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    """Every fault for every job by turns, in an order drawn from the seed, and some verbs on an older run."""
    subjects: dict[Job, Subject] = {}
    for number in itertools.count():
        chance, here = random.Random(f"{seed} {number}"), folder / "now"
        pairs = [(job, name) for job in JOBS for name in FAULTS]
        for place, (job, name) in enumerate(chance.sample(pairs, len(pairs))):
            if job not in subjects:
                subjects[job] = Subject.of(job, folder / f"job-{JOBS.index(job)}")
            case = Case(subjects[job], here, random.Random(f"{seed} {number} {job} {name}"))
            lost = problem_of(partial(FAULTS[name], case))
            shutil.rmtree(here, ignore_errors=True)
            yield Outcome(f"{job.name}, {name}", 1, (f"round {number}, {job}, {case.note}: {lost}",) if lost else ())
            if place % 12 == 0:
                given = chance.choice(OLDER)
                lost = problem_of(partial(older, given, here / "place"))
                shutil.rmtree(here)
                yield Outcome("runs of an older version", 1, (f"{' '.join(given)}: {lost}",) if lost else ())
