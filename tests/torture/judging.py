"""One damaged file, read: refused in one line, or sound; whatever else comes of it is lost."""

import os
import random
import resource
import shutil
import sys
import time
import traceback
from pathlib import Path

import torch

from vitlab.errors import BadInput

from .bombs import BOMBS, MAKERS
from .commands import COMMANDS
from .mutations import damaged
from .readers import READERS, Reader, whole

MEMORY = 2 << 30  # bytes that reading may take
LONGEST = 600  # letters of a line that is still clear
FINE = ("read", "refused")
PROGRAMS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "os.fork", "pty.spawn", "socket.connect",
)  # fmt: skip

ran: list[str] = []  # what a file made the process do


def watch(event: str, given: tuple) -> None:
    """See every start of a program, and the one call that the files ask for."""
    if event in PROGRAMS or (event == "os.mkdir" and given[0] == "run-now"):
        ran.append(event)


class Judges:
    """The readers, and where each has its files; they are made when they are first asked for."""

    def __init__(self, seed: int, folder: Path):
        self.seed, self.folder = seed, folder
        self.readers = {reader.name: reader for reader in (*READERS, COMMANDS, BOMBS)}
        self.files: dict[str, list[tuple[str, bytes]]] = {}
        self.mark = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
        sys.addaudithook(watch)
        torch.set_num_threads(1)

    def write_mark(self, text: str) -> None:
        """Say which case is being read, and since when."""
        os.pwrite(self.mark, text.ljust(100).encode(), 0)

    def place(self, reader: Reader) -> Path:
        """The folder of a reader's files, all of them whole."""
        place = self.folder / reader.name
        if not place.exists():
            self.write_mark("")
            made = self.folder / "made"
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
            reader.make(made)
            made.rename(place)
        if reader.name not in self.files:
            self.files[reader.name] = [] if reader is BOMBS else list(whole(reader, place))
        return place

    def case(self, name: str, number: int) -> str:
        """`read`, `refused`, or what went wrong."""
        reader = self.readers[name]
        folder = self.place(reader)
        chance = random.Random(f"{self.seed} {name} {number}")
        if reader is BOMBS:
            self.write_mark("")
            file = reader.files[number % len(reader.files)]
            MAKERS[file](folder / file)
        self.write_mark(f"{name}\t{number}\t{time.monotonic()}")
        if reader is not BOMBS:
            file, content = chance.choice(self.files[name])
            form = reader.forms.get(file, file) if chance.random() < 0.6 else file
            (folder / file).write_bytes(damaged(form, content, chance))
        ran.clear()
        try:
            said = f"it ran {ran[0]}" if (said := judged(reader, folder, file)) and ran else said
        finally:
            if reader is BOMBS:
                shutil.rmtree(folder)
            else:
                (folder / file).write_bytes(content)
        return said if said in FINE else f"{file}: {said}"


def judged(reader: Reader, folder: Path, name: str) -> str:
    try:
        reader.read(folder, name)
        said = "read"
    except BadInput as refusal:
        said = "refused"
        if len(str(refusal)) > LONGEST:
            said = f"a refusal of {len(str(refusal))} letters: {str(refusal)[:200]}"
    except BaseException as error:
        said = one_line(error)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return said if peak <= MEMORY else f"took {peak / 2**30:.1f} GiB of memory"


def one_line(error: BaseException) -> str:
    """The error, and where of ours it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/vitlab/" in frame.filename]
    place = f"{frames[-1].filename.rpartition('/vitlab/')[2]}:{frames[-1].lineno}" if frames else "the torture"
    return f"{type(error).__name__} at {place}: {' '.join(str(error).split())[:200]}"
