"""What the page shows besides a look: colours, the first example, the confusion matrix."""

import base64
import json
from pathlib import Path
from typing import Any

import torch

from vitlab.data.named import PUBLISHED
from vitlab.errors import BadInput
from vitlab.look.colours import palette
from vitlab.page.engine import Engine
from vitlab.page.pictures import Pictures

SITE = Path(__file__).parent / "site"
MOST = 24  # pictures of a cell
FIRST = 28  # the place of the picture that is shown first among those to choose from: a seven in the shipped sheet


def palettes() -> list[str]:
    """The scales of the maps, from 0 and with two sides: red, green, blue, alpha in bytes."""
    return [base64.b64encode(palette(signed).tobytes()).decode() for signed in (False, True)]


def first_view(engine: Engine) -> bytes:
    """All that the page needs to show one picture before it has asked anyone."""
    pictures = engine.pictures.coded()
    place = FIRST if len(pictures) > FIRST else 0
    shown = pictures[place] if pictures else {"pixels": base64.b64encode(bytes(engine.blank.numel())).decode()}
    answer = engine.look(engine.decode(shown["pixels"]), [], relevance=True)
    view = {"model": engine.facts, "palettes": palettes(), "picture": shown, "answer": answer | {"milliseconds": 0.0}}
    return json.dumps(view).encode()


@torch.inference_mode()
def cell(engine: Engine, truth: int, guess: int) -> list[dict[str, Any]]:
    """Test pictures of one class that the model took for another; where its data are not here, of the page's own."""
    classes = len(engine.card.classes)
    if not (0 <= truth < classes and 0 <= guess < classes):
        raise BadInput(f"classes are counted from 0 to {classes - 1}")
    test = engine.test
    if test is None:
        labels = torch.tensor(engine.pictures.labels)
        guesses = engine.network.logits(engine.normalised(engine.pictures.pixels)).argmax(dim=-1)
    else:
        labels, guesses = test.labels, engine.evaluation.guesses
    places = ((labels == truth) & (guesses == guess)).nonzero().flatten()[:MOST].tolist()
    found = [engine.pictures.pixels[place] if test is None else test.pictures[place] for place in places]
    return Pictures(torch.stack(found), (truth,) * len(found)).coded() if found else []


def confusion(engine: Engine) -> dict[str, Any]:
    """counts[i][j]: test pictures of class i that the model took for class j; and what fetches them, if anything."""
    kind = engine.run.experiment.data.source.kind
    return {
        "counts": engine.evaluation.confusion().tolist(), "classes": list(engine.card.classes),
        "fetched": f"vitlab data get {kind}" if kind in PUBLISHED else None,
    }  # fmt: skip
