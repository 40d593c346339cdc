"""What is exported, where it is put, and the proof that it answers as the model does."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from vitlab.data.prepared import Card
from vitlab.engine.run import Run, own_version
from vitlab.engine.storage import make_folder, write
from vitlab.errors import BadInput
from vitlab.export.graph import Form
from vitlab.model import Network

MARK = "config.json"  # what each export has that is a folder, and what is put there first
# What only some exports have: of an earlier one it would go on speaking, of a temperature that is no longer the run's.
SOMETIMES = ("calibration.json", "predictions.safetensors", "preprocessor_config.json")
TOLERANCE = 1e-4  # largest difference of an answer, as a share of the largest number in the model's own
Answer = Callable[[Tensor], dict[str, Tensor]]  # pictures in 0 … 1 (b, c, y, x) → logits, and what else there is


class Mismatch(BadInput):
    """An export answers otherwise than the model, so it is not kept."""


@dataclass(frozen=True, eq=False)
class Subject:
    """A finished run, on its way out."""

    run: Run
    licence: str | None = None  # of the weights, if it is known

    @cached_property
    def network(self) -> Network:
        return self.run.model()

    @cached_property
    def card(self) -> Card:
        return self.run.card

    def facts(self) -> dict[str, str]:
        """What a file says of itself."""
        card, result = self.card, self.run.result
        known = {"vitlab": own_version(), "run": self.run.name, "data": card.name, "temperature": self.run.temperature}
        if result["count"]:
            known |= {"test_accuracy": result["test_accuracy"], "test_pictures": result["count"]}
        return {name: str(fact) for name, fact in known.items()} | ({"licence": self.licence} if self.licence else {})


class Target(Protocol):
    """A format: it writes a subject to a file or folder, and loads that again with the library that its users have."""

    kind: ClassVar[str]

    @property
    def file(self) -> str:
        """The name of the file or folder, where the user gives none."""

    def form(self, subject: Subject) -> Form:
        """What the export must answer."""

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        """Write it, as a file or a folder."""

    def load(self, path: Path) -> Answer:
        """What was written, as its users will run it; it answers in logits at least."""


def export(subject: Subject, target: Target, out: Path | None = None) -> "Kept":
    """Write, load again, run, compare; only then put it in its place."""
    form, place = target.form(subject), out or subject.run.page(target.file)
    with TemporaryDirectory() as folder:
        made = Path(folder) / target.file
        target.write(subject, form, made)
        if made.is_dir():
            check_free(place)
        answer = target.load(made)
        gap = compare(form, answer, f"{subject.run.name} as {target.kind}")
        size = keep(made, place)
    return Kept(place, size, gap, form)


@dataclass(frozen=True, eq=False)
class Kept:
    """An export that answered as the model does."""

    path: Path
    size: int  # bytes
    gap: float  # the largest difference, as a share of the largest number in the model's own answer
    form: Form


@torch.no_grad()
def compare(form: Form, answer: Answer, what: str) -> float:
    """The largest difference between an export and the model, over batches, sizes and outputs, if it is small."""
    largest = 0.0
    for place, shape in enumerate(form.sizes()):
        pictures = torch.rand(shape, generator=torch.Generator().manual_seed(place))
        expected, found = form.answer(pictures), answer(pictures)
        if "logits" not in found:
            raise Mismatch(f"{what} is not kept: it gives no logits")
        for name, given in found.items():
            where = f"{name} of {'×'.join(map(str, shape))} pictures"
            if given.shape != expected[name].shape:
                raise Mismatch(
                    f"{what} is not kept: {where} are {tuple(given.shape)}, not {tuple(expected[name].shape)}"
                )
            gap = float((given - expected[name]).abs().max() / expected[name].abs().max().clamp(min=1e-30))
            if not gap <= TOLERANCE:
                raise Mismatch(
                    f"{what} is not kept: {where} differ from the model's by {gap:.1e} of the largest, "
                    f"and {TOLERANCE:.0e} is allowed"
                )
            largest = max(largest, gap)
    return largest


def check_free(place: Path) -> None:
    """A folder of other things stays as it is: an export has a README.md, and weights, which would replace theirs."""
    if place.is_dir() and not (place / MARK).exists() and any(place.iterdir()):
        raise BadInput(f"{place} holds other files: name a new folder by --out")


def keep(made: Path, place: Path) -> int:
    """Put a file, or every file of a folder, where it belongs; returns how many bytes."""
    if made.is_dir():
        make_folder(place)
        for name in SOMETIMES:
            if not (made / name).exists():
                (place / name).unlink(missing_ok=True)
        return sum(keep(path, place / path.name) for path in sorted(made.iterdir(), key=lambda path: path.name != MARK))
    content = made.read_bytes()
    make_folder(place.parent)
    write(place, content)
    return len(content)


def needed(*names: str, extra: str = "export") -> list[Any]:
    """Libraries of an extra, which are loaded where they are used.

    Left alone, onnxruntime gives this machine a number, keeps it in the user's cache and reports to its makers.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        with no_complaints():
            return [import_module(name) for name in names]
    except ModuleNotFoundError as error:
        raise BadInput(f"this needs {error.name}: pip install 'vitlab[{extra}]'") from None


@contextmanager
def no_complaints() -> Iterator[None]:
    """What libraries in C++ write to the terminal while they are loaded is left out."""
    try:
        terminal = os.dup(2)
    except OSError as error:
        if error.errno != errno.EBADF:
            raise
        yield  # there is none
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
