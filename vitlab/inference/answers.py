"""What a model says of picture files: read and answered a batch at a time, however many there are."""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from vitlab.data.pictures import Unreadable, decode, is_picture, read_picture, silent_pillow
from vitlab.data.prepared import Normalise, seem_swapped, unit
from vitlab.data.words import natural, shown
from vitlab.engine.run import Run
from vitlab.engine.storage import explain
from vitlab.errors import BadInput
from vitlab.given import Files, as_run, find_device, picture_files
from vitlab.processes import cores

BATCH = 256  # pictures read and answered together


@dataclass(frozen=True)
class Prediction:
    """What a model says of one picture: classes and probabilities, likeliest first."""

    picture: str
    classes: tuple[str, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Unread:
    """A file that could not be read as a picture."""

    picture: str
    reason: str


class Predictor:
    """A run's model on a device; probabilities = softmax(logits / T), T = 1 unless the run was calibrated."""

    def __init__(self, run: Run | Path | str, device: str = "auto", invert: bool = False):
        self.run = as_run(run)
        self.card = self.run.card
        if not self.card.labelled:
            raise BadInput(
                f"{self.run.folder} knows no classes: teach it some by 'vitlab finetune {self.run.folder}' and "
                "pictures with labels"
            )
        self.device, self.invert = find_device(device), invert
        self.network = self.run.model().to(self.device)
        self.normalise = Normalise(self.card, self.device)
        self.temperature = self.run.temperature
        self.seems_swapped = False  # whether the first pictures look as if dark and light were exchanged

    def answers(self, paths: Iterable[Path], batch: int = BATCH) -> Iterator[Prediction | Unread]:
        """Of each file in turn; no more than a batch is in memory."""
        rest = iter(paths)
        first = True
        with ThreadPoolExecutor(cores()) as pool:
            while some := list(islice(rest, batch)):
                with silent_pillow():
                    read = list(pool.map(self.read, some))
                pictures = [pixels for pixels in read if isinstance(pixels, Tensor)]
                if first and pictures:
                    first = False
                    self.seems_swapped = not self.invert and seem_swapped(torch.stack(pictures), self.card)
                answered = iter(self.answer(torch.stack(pictures)) if pictures else ())
                for path, pixels in zip(some, read, strict=True):
                    yield self.named(path, next(answered)) if isinstance(pixels, Tensor) else Unread(str(path), pixels)

    def read(self, path: Path) -> Tensor | str:
        """A file's pixels, or why there are none."""
        card = self.card
        try:
            return torch.from_numpy(decode(path, card.channels, card.height, card.width))
        except Unreadable as error:
            return f"{shown(path)} cannot be read as a picture: {error}"

    @torch.inference_mode()
    def answer(self, pictures: Tensor) -> Tensor:
        """uint8 (b, c, y, x) → probabilities (b, classes)."""
        given = self.normalise(unit((255 - pictures if self.invert else pictures).to(self.device)))
        found = (self.network.logits(given) / self.temperature).softmax(dim=-1).cpu()
        if not bool(found.isfinite().all()):
            raise BadInput(f"what {self.run.folder} answers are no numbers, so it names no class: has it diverged?")
        return found

    def named(self, path: Path, row: Tensor) -> Prediction:
        order = row.argsort(descending=True).tolist()
        return Prediction(str(path), tuple(self.card.classes[i] for i in order), tuple(row[order].tolist()))


def predict(run: Run | Path | str, pictures: Files, invert: bool = False) -> list[Prediction]:
    """Classify picture files, fitted to the run's size and channels as its training pictures were."""
    found = []
    for answer in Predictor(run, "cpu", invert).answers(picture_files(pictures)):
        if isinstance(answer, Unread):
            raise BadInput(answer.reason)
        found.append(answer)
    return found


def load_pictures(run: Run | Path | str, pictures: Files, invert: bool = False) -> Tensor:
    """Picture files as the run's model takes them: fitted and normalised, (b, c, y, x)."""
    card, named = as_run(run).card, picture_files(pictures)
    if not named:
        raise BadInput("no picture given to load")
    read = torch.stack([read_picture(path, card.channels, card.height, card.width) for path in named])
    return Normalise(card, torch.device("cpu"))(unit(255 - read if invert else read))


def files(given: Iterable[Path]) -> Iterator[Path]:
    """Files as they are named, and the visible picture files of folders and of those in them, in natural order."""
    for path in given:
        if path.is_dir():
            yield from walk(path)
        else:
            yield path


def walk(folder: Path, around: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Links are followed, but not back up to a folder `around`."""
    around |= {folder.resolve()}
    try:
        visible = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError as error:
        raise explain(error, f"cannot read {shown(folder)}") from error
    entries = sorted(visible, key=lambda entry: natural(entry.name))
    paths = [Path(entry.path) for entry in entries]
    yield from (path for path in paths if path.is_file() and is_picture(path.name))
    for path in paths:
        if path.is_dir() and path.resolve() not in around:
            yield from walk(path, around)
