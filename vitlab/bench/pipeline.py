"""The data path, from stored uint8 pictures to a normalised float batch on the device."""

import random
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader

from vitlab.bench.measure import Call, take_turns
from vitlab.bench.record import Row
from vitlab.bench.reports import Loading, Transform, loader
from vitlab.bench.shapes import PADDING, Work
from vitlab.data.augment import Augment
from vitlab.data.dataset import DataSet, Part
from vitlab.data.prepared import Card, Normalise, describe, move, unit
from vitlab.foreign import foreign

AUGMENTS = {"plain": Augment(), "crop and flip": Augment(crop=PADDING, flip=True)}
LOADINGS = {
    "cpu": (Loading(), Loading(2), Loading(2, persistent=True)),
    "cuda": (Loading(4, pinned=True), Loading(8, True, True), Loading(16, True, True)),
}


def compare_data_paths(work: Work, rounds: int, device: torch.device, count: int) -> list[Row]:
    """Pictures a second, plain and augmented, in vitlab's batches and in the reports' DataLoader."""
    data = noise(work, count)
    card = describe(data, data.train, Part(data.train.pictures[:0], data.train.labels[:0]))
    rows = []
    for kind, augment in AUGMENTS.items():
        transform = one_by_one(card, bool(augment.crop))
        calls: dict[str, Call] = {"vitlab": batched(data.train, card, augment, work.batch, device)}
        for loading in LOADINGS[device.type]:
            calls[f"DataLoader, {loading}"] = reading(loader(data.train, transform, work.batch, loading), device)
        timings = take_turns(calls, rounds, 1, device)
        seen = count // work.batch * work.batch
        for name, timing in timings.items():
            note = "in batches" if name == "vitlab" else f"{transforms_used()}, picture by picture"
            row = Row(f"data, {kind}", str(work.picture), name, note=note)
            rows.append(row.timed(timing, timings["vitlab"], seen))
    return rows


def noise(work: Work, count: int) -> DataSet:
    """Random pictures: how long a step takes does not depend on what is on them."""
    shape = (count, work.picture.channels, work.picture.height, work.picture.width)
    part = Part(torch.randint(0, 256, shape, dtype=torch.uint8), torch.arange(count) % work.classes)
    return DataSet("noise", tuple(map(str, range(work.classes))), part, part)


def batched(part: Part, card: Card, augment: Augment, batch: int, device: torch.device) -> Call:
    """vitlab's path: gather, augment and normalise a batch at once where the data lies."""
    stored, normalise = move(part, device), Normalise(card, device)
    generator = torch.Generator(device=device)

    def run() -> None:
        for chosen in torch.randperm(len(stored)).to(device).split(batch):
            if len(chosen) == batch:
                normalise(augment(unit(stored.pictures[chosen]), generator))

    return run


def reading(batches: DataLoader[Any], device: torch.device) -> Call:
    def run() -> None:
        with warnings.catch_warnings():
            # The loader forks while torch's threads live; Python 3.12 says so each time.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            for pictures, labels in batches:
                pictures.to(device), labels.to(device)

    return run


def transforms_used() -> str:
    return "torchvision's transforms" if find_spec("torchvision") else "transforms on PIL pictures"


def one_by_one(card: Card, augmented: bool) -> Transform:
    """torchvision's transforms where it is installed, or the same steps in plain Python."""
    if find_spec("torchvision"):
        library = foreign("torchvision.transforms")
        moves = [library.RandomCrop(card.height, padding=PADDING), library.RandomHorizontalFlip()] if augmented else []
        return library.Compose([*moves, library.ToTensor(), library.Normalize(card.mean, card.deviation)])
    return Steps([*([crop, flip] if augmented else []), to_tensor, PerPicture(card)])


class Steps:
    """One transform after the other, on one picture."""

    def __init__(self, steps: list[Callable[[Any], Any]]):
        self.steps = steps

    def __call__(self, picture: Image.Image) -> Tensor:
        value: Any = picture
        for step in self.steps:
            value = step(value)
        return value


def crop(picture: Image.Image) -> Image.Image:
    padded = ImageOps.expand(picture, PADDING)
    left, top = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
    return padded.crop((left, top, left + picture.width, top + picture.height))


def flip(picture: Image.Image) -> Image.Image:
    return ImageOps.mirror(picture) if random.random() < 0.5 else picture


def to_tensor(picture: Image.Image) -> Tensor:
    pixels = torch.from_numpy(np.array(picture)).view(picture.height, picture.width, -1)
    return pixels.permute(2, 0, 1).contiguous().float().div(255)


class PerPicture:
    """(x − mean) / deviation for one picture, its constants made into tensors each time, as torchvision does."""

    def __init__(self, card: Card):
        self.mean, self.deviation = card.mean, card.deviation

    def __call__(self, picture: Tensor) -> Tensor:
        mean, deviation = (torch.as_tensor(values).view(-1, 1, 1) for values in (self.mean, self.deviation))
        return picture.clone().sub_(mean).div_(deviation)
