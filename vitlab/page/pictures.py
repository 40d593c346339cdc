"""Test pictures to choose from: those that come with the page, or the first of a run's own test part."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.given import tested_on

SHEETS = Path(__file__).parent / "sheets"  # for each data set a PNG: one column for each class, test pictures below
EACH = 4  # pictures of a class
SAME = {"digits": "mnist"}  # digits is a sample of MNIST's


@dataclass(frozen=True, eq=False)
class Pictures:
    """uint8 (p, c, y, x) and their classes."""

    pixels: Tensor
    labels: tuple[int, ...]

    def coded(self) -> list[dict[str, Any]]:
        return [
            {"pixels": base64.b64encode(picture.numpy().tobytes()).decode(), "label": label}
            for picture, label in zip(self.pixels, self.labels, strict=True)
        ]


def pictures_of(run: Run, data: Path | None) -> Pictures:
    """Pictures that the run has not learned from; none where its data are neither here nor come with the page."""
    card, chosen = run.card, run.experiment.data
    sheet = SHEETS / f"{SAME.get(chosen.source.kind, chosen.source.kind)}.png"
    if sheet.exists() and not chosen.classes:
        return read_sheet(sheet, card.height, card.width)
    none = Pictures(torch.zeros(0, card.channels, card.height, card.width, dtype=torch.uint8), ())
    try:
        test = tested_on(run, data).test
    except BadInput:  # the page is of use without them
        return none
    places = [
        int(place) for label in range(len(card.classes)) for place in (test.labels == label).nonzero().flatten()[:EACH]
    ][: EACH * 20]
    if not places:
        return none
    return Pictures(torch.stack([test.pictures[place] for place in places]), tuple(test.labels[places].tolist()))


def read_sheet(path: Path, height: int, width: int) -> Pictures:
    """Each class's pictures, one class after another."""
    with Image.open(path) as image:
        sheet = np.asarray(image)
    sheet = sheet[..., None] if sheet.ndim == 2 else sheet
    rows, columns = sheet.shape[0] // height, sheet.shape[1] // width
    cells = sheet.reshape(rows, height, columns, width, -1).transpose(2, 0, 4, 1, 3)
    pixels = torch.from_numpy(np.ascontiguousarray(cells.reshape(rows * columns, -1, height, width)))
    return Pictures(pixels, tuple(label for label in range(columns) for _ in range(rows)))


def write_sheet(path: Path, pictures: Tensor, classes: int) -> None:
    """uint8 (classes · rows, c, y, x), class after class → one PNG."""
    count, channels, height, width = pictures.shape
    rows = count // classes
    cells = pictures.view(classes, rows, channels, height, width).permute(1, 3, 0, 4, 2)
    sheet = cells.reshape(rows * height, classes * width, channels).numpy()
    Image.fromarray(sheet[..., 0] if channels == 1 else sheet).save(path, optimize=True)
