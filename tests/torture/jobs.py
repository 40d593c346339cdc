"""What the product does that leaves files: how it is begun and gone on with, what it leaves, and when that is whole."""

import gzip
import hashlib
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import chdir, redirect_stdout
from dataclasses import dataclass, replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image

from vitlab import cli, train
from vitlab.data import catalogue
from vitlab.data.formats import IDX_MEMBERS
from vitlab.data.mapped import open_mapped
from vitlab.data.named import PUBLISHED
from vitlab.data.origins import Mirror
from vitlab.data.published import Published, read_cache
from vitlab.data.sources import Folder
from vitlab.engine.run import Run
from vitlab.engine.storage import read_tensors
from vitlab.study.ledger import Ledger
from vitlab.study.store import open_study, read_url

TINY = (
    "data.source=npz:own.npz", "epochs=3", "limit=24", "batch=8", "width=8", "depth=1", "tokens=conv-patches",
    "patch=4", "heads=2", "checkpoint=0", "validation=0.2", "warmup=0.5",
)  # fmt: skip
"""Overrides that make `digits` learn a little noise in a fifth of a second, with a checkpoint after every step."""
RICH = ("optimiser=muon", "ema=0.9", "model.block.dropout=0.1", "cutmix=1", "rotate=10")
CLOCK = {"train_seconds", "images_per_second", "peak_memory", "seconds", "compile_seconds"}
COUNTS = (1500, 300)  # pictures of the published set
OLD = b"what was there before"
Step = tuple[Callable[..., None], tuple[object, ...]]  # a call in a process of its own, in the job's folder


def words(*given: object) -> Step:
    """vitlab WORDS"""
    return call_verb, given


def call_verb(*given: object) -> None:
    run_verb([*map(str, given)], alone=True)


run_verb = cli.run_verb


class Broken(Exception):
    """What lies in a folder cannot be what it is taken for."""


@dataclass(frozen=True)
class Job:
    """Something that is done in a folder of its own."""

    kills: ClassVar[int] = 6  # how often it is killed before it may end
    name: str

    def prepare(self, folder: Path) -> None:
        """Put there what it needs."""
        np.savez(folder / "own.npz", **noise())

    def step(self, folder: Path) -> Step | None:
        """What is to be done next, as the folder stands; nothing, when all is done."""
        raise NotImplementedError

    def result(self, folder: Path) -> Mapping[str, Any]:
        """What was made, without what the clock decides."""
        raise NotImplementedError

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        """Read all that would be read as whole, after a kill at any moment."""
        raise NotImplementedError


def noise() -> dict[str, np.ndarray]:
    return {
        "x_train": np.random.default_rng(0).integers(0, 255, (48, 8, 8), dtype=np.uint8), "y_train": np.arange(48) % 2,
    }  # fmt: skip


@dataclass(frozen=True)
class Training(Job):
    """A run, begun by a verb and gone on with by resume."""

    verb: tuple[str, ...]
    settings: tuple[str, ...] = ()

    def step(self, folder: Path) -> Step | None:
        run = Run(folder / "runs" / "run")
        if run.finished:
            return None
        if (run.folder / "experiment.json").exists():
            return words("resume", "runs/run")
        return words(*self.verb, *TINY, *self.settings, "--name", "run")

    def result(self, folder: Path) -> Mapping[str, Any]:
        return outcome(Run(folder / "runs" / "run"))

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        inspect_run(Run(folder / "runs" / "run"), expected)


def outcome(run: Run) -> dict[str, Any]:
    """All that a run found, but the clock and the memory."""
    lines = [{key: value for key, value in line.items() if key not in CLOCK} for line in run.metrics()]
    result = {key: value for key, value in run.result.items() if key not in CLOCK}
    files = {path.name: bits(path) for path in sorted(run.folder.glob("*.safetensors"))}
    return {"metrics": lines, "result": result, **files}


def bits(path: Path) -> str:
    """SHA-256 of the tensors of a file."""
    tensors, total = read_tensors(path)[0], hashlib.sha256()
    for name in sorted(tensors):
        total.update(f"{name}{tensors[name].dtype}{tuple(tensors[name].shape)}".encode())
        total.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def inspect_run(run: Run, expected: Mapping[str, Any]) -> None:
    """Every file of a run that stands under its own name is whole, and of an ended run none is missing."""
    if not (run.folder / "experiment.json").exists():
        return
    assert run.experiment
    assert run.card
    assert run.environment
    assert len(run.metrics()) <= len(expected["metrics"])
    for path in run.folder.glob("*.safetensors"):
        if bits(path) != expected.get(path.name) and path != run.checkpoint:
            raise Broken(f"{path.name} is not what it will be")
    if run.finished:
        assert outcome(run) == expected
        if run.report.exists() and not run.report.read_bytes().rstrip().endswith(b"</html>"):
            raise Broken("the report of an ended run is cut short")


@dataclass(frozen=True)
class Study(Job):
    """The trials of a small study, by one worker; one that is lost with its worker five times is given up."""

    kills: ClassVar[int] = 4
    storage: str = "sqlite:///study.db"

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        create = ("study", "create", "s", "--space", "width=8,16", *TINY, "epochs=2", "--grace", "0.4")
        with chdir(folder), redirect_stdout(StringIO()):
            call_verb(*create, "--storage", self.storage)

    def step(self, folder: Path) -> Step | None:
        if all(slot.settled is not None for slot in self.slots(folder)):
            return None
        return words("study", "work", "s", "--storage", self.storage, "--workers", 1)

    def slots(self, folder: Path) -> list[Any]:
        return Ledger(open_study("s", read_url(self.storage.replace("study.", f"{folder}/study.")))).slots()

    def result(self, folder: Path) -> Mapping[str, Any]:
        runs = {path.name: outcome(Run(path)) for path in sorted((folder / "runs" / "s").iterdir())}
        for slot in self.slots(folder):
            ended = [each for each in slot.attempts if each.state.name == "COMPLETE"]
            if len(ended) != 1 or slot.live:
                raise Broken(f"trial {slot.number} has {len(ended)} ends, and {len(slot.live)} attempts still live")
            runs[f"slot {slot.number}"] = (slot.state, ended[0].values)
        return runs

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        self.slots(folder)
        for path in (folder / "runs" / "s").glob("*"):
            inspect_run(Run(path), expected[path.name])


@dataclass(frozen=True)
class Get(Job):
    """A published set, from a mirror in a folder."""

    def prepare(self, folder: Path) -> None:
        (folder / "mirror").mkdir()
        for name, array in zip(IDX_MEMBERS, digits(), strict=True):
            data = struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()
            (folder / "mirror" / f"{name}.gz").write_bytes(gzip.compress(data, 1))

    def step(self, folder: Path) -> Step | None:
        return None if (folder / "data" / "mnist.safetensors").exists() else (get, ())

    def result(self, folder: Path) -> Mapping[str, Any]:
        train, test = read_cache(published(folder), folder / "data" / "mnist.safetensors")
        return {"sum": int(train.pictures.sum()), "labels": test.labels.tolist()}

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        if self.step(folder) is None:
            assert self.result(folder) == expected


def digits() -> tuple[np.ndarray, ...]:
    chance = np.random.default_rng(1)
    pairs = [
        (chance.integers(0, 256, (count, 28, 28), np.uint8), chance.integers(0, 10, count, np.uint8))
        for count in COUNTS
    ]
    return *pairs[0], *pairs[1]


def published(folder: Path) -> Published:
    total = hashlib.sha256(b"".join(array.tobytes() for array in digits())).hexdigest()
    origin = Mirror((folder / "mirror").resolve().as_uri() + "/", tuple(f"{name}.gz" for name in IDX_MEMBERS))
    return replace(PUBLISHED["mnist"], counts=COUNTS, digest=total, origins=(origin,))


def get() -> None:
    catalogue.PUBLISHED["mnist"] = published(Path())
    call_verb("data", "get", "mnist", "--data", "data")


@dataclass(frozen=True)
class Page(Job):
    """A file that a verb makes of a finished run, in the place of an older one."""

    verb: tuple[str, ...]
    file: str

    def prepare(self, folder: Path) -> None:
        super().prepare(folder)
        for seed in (0, 1):
            own = (f"data.source=npz:{folder}/own.npz", f"seed={seed}")
            train("digits", *TINY, *own, name=f"run{seed}", runs=folder, device="cpu", quiet=True)
        (folder / "out").mkdir()
        (folder / "out" / self.file).write_bytes(OLD)

    def step(self, folder: Path) -> Step | None:
        done = (folder / "out" / self.file).read_bytes() != OLD
        return None if done else words(*self.verb, "--out", f"out/{self.file}")

    def result(self, folder: Path) -> Mapping[str, Any]:
        return {self.file: hashlib.sha256((folder / "out" / self.file).read_bytes()).hexdigest()}

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        if self.step(folder) is None and self.result(folder) != expected:
            raise Broken(f"{self.file} is neither the old one nor the new one")


@dataclass(frozen=True)
class Cache(Job):
    """Pictures of an archive as one file, mapped into memory."""

    def prepare(self, folder: Path) -> None:
        chance = np.random.default_rng(2)
        with zipfile.ZipFile(folder / "many.zip", "w") as archive:
            for number in range(300):
                file = BytesIO()
                Image.fromarray(chance.integers(0, 255, (48, 48, 3), dtype=np.uint8)).save(file, "PNG")
                archive.writestr(f"{'ab'[number % 2]}/{number}.png", file.getvalue())

    def step(self, folder: Path) -> Step | None:
        return None if list((folder / "data").glob("*.pictures")) else (build_cache, ())

    def result(self, folder: Path) -> Mapping[str, Any]:
        (path,) = (folder / "data").glob("*.pictures")
        found = open_mapped(path)
        if found is None:
            raise Broken(f"{path.name} is damaged")
        digest = hashlib.sha256(found.rows[:].numpy().tobytes()).hexdigest()
        return {"pictures": digest, "labels": found.index.labels.tolist(), "bytes": path.stat().st_size}

    def inspect(self, folder: Path, expected: Mapping[str, Any]) -> None:
        if self.step(folder) is None:
            assert self.result(folder) == expected


def build_cache() -> None:
    Folder("many.zip", memory=0).load(Path("data"))


JOBS: tuple[Job, ...] = (
    Training("train", ("train", "digits")),
    Training("train", ("train", "digits"), RICH),
    Training("pretrain", ("pretrain", "mae", "digits")),
    Training("pretrain", ("pretrain", "dino", "digits")),
    Study("study work"),
    Study("study work", "journal:study.log"),
    Get("data get"),
    Page("export", ("export", "run0"), "model.onnx"),
    Page("export", ("export", "run0", "--to", "torch-export"), "model.pt2"),
    Page("report", ("report", "run0"), "report.html"),
    Page("report", ("report", "run0", "run1"), "comparison.html"),
    Cache("picture cache"),
)
