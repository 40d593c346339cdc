"""Numbers at their limits, in pictures, labels, weights and settings: a right result, or one line that says why not."""

import math
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from apart import Started, command_line
from PIL import Image

from vitlab.engine.storage import read_tensors, write_tensors

from . import Outcome

SMALL = ("epochs=1", "batch=8", "width=8", "depth=1", "heads=2", "warmup=0", "validation=0.3")
NO_NUMBER = re.compile(r"(?<![\w./-])(nan|[-+]?inf|infinity)(?![\w/-])", re.IGNORECASE)

Words = tuple[str, ...]


def arrays(path: Path, train: Any, labels: Any, test: Any = None, test_labels: Any = None, **more: Any) -> str:
    """Pictures and labels in a file, as `vitlab train` is told of them."""
    given = {"x_train": train, "y_train": labels} | more
    if test is not None:
        given |= {"x_test": test, "y_test": test_labels}
    np.savez(path, **given)
    return f"npz:{path}"


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def floats(value: float) -> np.ndarray:
    """Pictures from 0 to 1 with one pixel of this value."""
    pictures = np.random.default_rng(0).random((20, 8, 8), np.float32)
    pictures[3, 4, 5] = value
    return pictures


def folder(path: Path, *counts: int, value: int | None = None, size: tuple[int, int] = (8, 8)) -> str:
    """A folder for each class with so many pictures, of one grey or of noise."""
    for place, count in enumerate(counts):
        (path / f"class {place}").mkdir(parents=True)
        for number in range(count):
            pixels = noise(*size[::-1]) if value is None else np.full(size[::-1], value, np.uint8)
            Image.fromarray(pixels).save(path / f"class {place}" / f"{number}.png")
    return f"folder:{path}"


def plain(path: Path) -> str:
    return arrays(path, noise(20, 8, 8), TWO)


TWO = np.arange(20) % 2
DATA: dict[str, Callable[[Path], Words]] = {
    "all black": lambda p: (arrays(p, noise(20, 8, 8) * 0, TWO), "patch=4"),
    "all white": lambda p: (arrays(p, noise(20, 8, 8) * 0 + 255, TWO), "patch=4"),
    "all black, in folders": lambda p: (folder(p, 6, 6, value=0), "patch=4"),
    "one class": lambda p: (arrays(p, noise(20, 8, 8), TWO * 0), "patch=4"),
    "one class, in folders": lambda p: (folder(p, 6), "patch=4"),
    "one picture": lambda p: (arrays(p, noise(1, 8, 8), [0]), "patch=4"),
    "one picture of each class": lambda p: (arrays(p, noise(3, 8, 8), [0, 1, 2]), "patch=4"),
    "one picture, in folders": lambda p: (folder(p, 1, 0), "patch=4"),
    "one of each class, and a test": lambda p: (arrays(p, noise(2, 8, 8), [0, 1], noise(1, 8, 8), [1]), "patch=4"),
    "a class missing from the test": lambda p: (arrays(p, noise(20, 8, 8), TWO, noise(4, 8, 8), [1] * 4), "patch=4"),
    "a class of the test not learned": lambda p: (arrays(p, noise(20, 8, 8), TWO, noise(4, 8, 8), [2] * 4), "patch=4"),
    "an empty test part": lambda p: (arrays(p, noise(20, 8, 8), TWO, noise(0, 8, 8), TWO[:0]), "patch=4"),
    "an empty training part": lambda p: (arrays(p, noise(0, 8, 8), TWO[:0], noise(4, 8, 8), TWO[:4]), "patch=4"),
    "an empty class, in folders": lambda p: (folder(p, 6, 0, 6), "patch=4"),
    "1×1 pictures": lambda p: (arrays(p, noise(20, 1, 1), TWO), "patch=1"),
    "1×1 pictures, in folders": lambda p: (folder(p, 6, 6, size=(1, 1)),),
    "1×64 pictures": lambda p: (arrays(p, noise(20, 1, 64), TWO), "patch=1"),
    "1,000 classes": lambda p: (arrays(p, noise(2000, 4, 4), np.arange(2000) % 1000), "patch=2", "batch=500"),
    "labels far apart": lambda p: (arrays(p, noise(20, 8, 8), TWO * (2**62)), "patch=4"),
    "a label below 0": lambda p: (arrays(p, noise(20, 8, 8), TWO - 1), "patch=4"),
    "a label out of range": lambda p: (arrays(p, noise(20, 8, 8), TWO * 7, classes=np.array(["a", "b"])), "patch=4"),
    "labels that are no whole numbers": lambda p: (arrays(p, noise(20, 8, 8), TWO + 0.5), "patch=4"),
    "NaN in a picture": lambda p: (arrays(p, floats(math.nan), TWO), "patch=4"),
    "infinity in a picture": lambda p: (arrays(p, floats(math.inf), TWO), "patch=4"),
    "a pixel below 0": lambda p: (arrays(p, floats(-1e-3), TWO), "patch=4"),
    "a subnormal pixel": lambda p: (arrays(p, floats(1e-42), TWO), "patch=4"),
}  # fmt: skip
RATES: dict[str, Words] = {
    f"{name}={value}": (f"{name}={value}", *more)
    for name, more in (("learning_rate", ()), ("weight_decay", ()), ("matrix_rate", ("optimiser=muon",)))
    for value in ("1e2", "1e10", "1e38", "1e300")
} | {
    "start=torch, no norm": ("block.norm=none", "start=torch", "learning_rate=10", "clip=0", "final_norm=no"),
    "ema, huge rate": ("learning_rate=1e30", "ema=0.9"),
    "epsilon=0": ("epsilon=0", "learning_rate=1"),
    "bfloat16, huge rate": ("precision=bfloat16", "learning_rate=1e30"),
    "base=1e300": ("positions=rotary", "heads=1", "base=1e300"),
    "label_smoothing, mixup=1e-300": ("label_smoothing=0.999", "mixup=1e-300"),
}  # fmt: skip
WEIGHTS: dict[str, float] = {"NaN": math.nan, "infinity": math.inf, "-infinity": -math.inf, "1e38": 1e38, "0": 0.0}


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    chance = random.Random(seed)
    while True:
        for place, name in enumerate(chance.sample([*DATA, *RATES], len(DATA) + len(RATES))):
            here = folder / "case"
            here.mkdir(parents=True)
            pictures = here / "pictures.npz"
            words = DATA[name](pictures) if name in DATA else (plain(pictures), "patch=4", *RATES[name])
            yield from case("pictures" if name in DATA else "settings", name, words, here, chance)
            if place % 8 == 0:
                spoilt = chance.choice([*WEIGHTS])
                yield from damaged(spoilt, chance, here)
            shutil.rmtree(here)


def case(where: str, name: str, words: Words, here: Path, chance: random.Random) -> Iterator[Outcome]:
    """Train, and if there is a run, ask every verb about it."""
    told = Told(f"{where} at their limits", name, here)
    yield told.asked("train", words[0], *SMALL, *words[1:], "--name", "run", "--device", "cpu")
    if (here / "runs" / "run" / "result.json").exists():
        for verb in verbs(here, chance):
            yield told.asked(*verb)


def damaged(name: str, chance: random.Random, here: Path) -> Iterator[Outcome]:
    """A good run in which a share of one matrix has become something else."""
    shutil.rmtree(here)
    here.mkdir()
    told = Told("weights at their limits", name, here)
    yield told.asked("train", plain(here / "pictures.npz"), *SMALL, "patch=4", "--name", "run", "--device", "cpu")
    path = here / "runs" / "run" / "weights.safetensors"
    weights, facts = read_tensors(path)
    spoilt = chance.choice(sorted(weights))
    weights[spoilt].view(-1)[:: chance.choice((1, 7))] = WEIGHTS[name]
    write_tensors(path, weights, facts)
    told = Told(told.what, f"{name} in {spoilt}", here)
    for verb in verbs(here, chance):
        yield told.asked(*verb)


def verbs(here: Path, chance: random.Random) -> list[Words]:
    """What is asked about a run; `check`, which takes a quarter of a minute, about one in eight."""
    Image.fromarray(noise(8, 8)).save(here / "picture.png")
    run = "runs/run"
    asked: list[Words] = [
        ("evaluate", run), ("evaluate", run, "--as-json"), ("predict", run, "picture.png", "--format", "jsonl"),
        ("report", run), ("look", run, "picture.png", "--tested", "4"), ("calibrate", run),
        ("export", run, "--to", "torch-export"), ("finetune", run, "epochs=1", "--name", "more"),
    ]  # fmt: skip
    return [*asked, ("check", run)] if chance.random() < 0.125 else asked


@dataclass(frozen=True)
class Told:
    """What a case is a case of, its name, and its folder."""

    what: str
    name: str
    here: Path

    def asked(self, *words: str) -> Outcome:
        """One command in a process of its own, and what is wrong with how it ended."""
        done = Started(self.here, self.here, command_line, *words).end(120)
        for path in (self.here / "out", self.here / "err"):
            path.unlink()
        page = self.here / "runs" / "run" / "report.html"
        wrong = fault(done) or (shown(page) if words[0] in ("train", "report") and page.exists() else "")
        again = " ".join(words).replace(f"{self.here}/", "")
        return Outcome(self.what, lost=(f"{self.name}: vitlab {again}: {wrong}",) if wrong else ())


def fault(done: subprocess.CompletedProcess) -> str:
    """Why an end is neither a right result nor one clear line with status 2."""
    if "Traceback" in done.stderr or "Warning" in done.stderr:
        return f"not one line: {done.stderr[-400:]!r}"
    if done.returncode == 2:
        lines = done.stderr.strip().splitlines()
        return "" if len(lines) == 1 and lines[0].startswith("vitlab: ") else f"status 2 and {done.stderr!r}"
    if done.returncode not in ((0, 1) if done.args[0] == "check" else (0,)):
        return f"status {done.returncode}: {done.stderr[-400:]!r}"
    found = NO_NUMBER.search(done.stdout)
    return (
        f"{found[0]} called a result: {done.stdout[max(found.start() - 200, 0) : found.end() + 80]!r}" if found else ""
    )


def shown(page: Path) -> str:
    """Where a report shows as a figure what is no number."""
    text = re.sub(r"<(script|style|pre)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = NO_NUMBER.search(re.sub(r'"data:[^"]*"', "", text))
    return f"report.html shows {text[max(found.start() - 80, 0) : found.end() + 40]!r}" if found else ""
