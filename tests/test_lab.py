"""The verbs from Python, for every model and the corners of the settings."""

from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from conftest import QUICK
from PIL import Image

import vitlab
from vitlab.data import Sample
from vitlab.data.prepared import Normalise
from vitlab.engine.evaluation import evaluate_part

SMALL = (*(word for word in QUICK if not word.startswith(("patch", "epochs"))), "epochs=1")


class Text(HTMLParser):
    """The words of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.words: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()


def words_of(run: vitlab.Run) -> str:
    return " ".join(Text(run.report.read_text(encoding="utf-8")).words)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("model=multi-scale", "join=mean"), "one map for each scale"),
        (("model=multi-scale", "join=class-attention"), "one map for each scale"),
        (("model=multi-scale", "join=late-class-token"), "What it looks at"),
        (("tokens=several-scales", "patches=7,14"), "from the class token to each patch"),
        (("tokens=conv-patches", "patch=14", "attention=linformer", "attention.k=3"), "negative"),
        (("tokens=conv-patches", "patch=14", "head=first-token"), "from the first patch to each patch"),
        (("tokens=conv-patches", "patch=14", "head=mean", "registers=2"), "as the mean head reads them"),
        (("tokens=conv-patches", "patch=14", "depth=0", "optimiser=adamw"), "What it looks at"),
        (("tokens=conv-patches", "patch=28", "epochs=0"), "test accuracy"),
        (("tokens=conv-patches", "patch=14", "validation=0"), "training"),
        (("tokens=conv-patches", "patch=14", "precision=bfloat16", "qk_norm=yes"), "What it looks at"),
    ],
)
def test_every_model_trains_reports_and_reads_the_same_again(tmp_path, changes, said):
    run = vitlab.train("digits", *SMALL, *changes, runs=tmp_path, quiet=True)
    assert said.lower() in words_of(run).lower()
    assert run.finished
    assert vitlab.evaluate(run).accuracy == run.result["test_accuracy"]


def test_the_last_partial_test_batch_is_counted(trained):
    """R1 tested 9,984 pictures of 10,000; 2,000 is no multiple of 300 either."""
    run = vitlab.open_run(trained)
    assert vitlab.evaluate(run).count == 2000 == run.result["count"]
    test, normalise = Sample().load(trained).test, Normalise(run.card, torch.device("cpu"))
    uneven, whole = (evaluate_part(run.model(), test, normalise, bfloat16=False, batch=n) for n in (300, 2000))
    assert uneven.logits.shape == (2000, 10)
    assert torch.allclose(uneven.logits, whole.logits, atol=1e-5)


def test_a_model_says_the_same_of_a_picture_file_and_of_its_pixels(trained, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (28, 28), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    run = vitlab.open_run(trained)
    card = run.card
    expected = (torch.from_numpy(pixels).double() / 255 - card.mean[0]) / card.deviation[0]
    assert torch.allclose(vitlab.load_pictures(run, [tmp_path / "noise.png"])[0, 0].double(), expected, atol=1e-5)
    with torch.inference_mode():
        logits = run.model()(expected.float()[None, None])
    found = vitlab.predict(run, [tmp_path / "noise.png"])[0]
    assert found.classes[0] == card.classes[int(logits.argmax())]


def test_an_experiment_of_ones_own_can_be_trained(tmp_path):
    own = vitlab.override(
        vitlab.Experiment(model=vitlab.ViT(width=8, depth=1)), [*SMALL, "width=8", "heads=2", "patch=14"]
    )
    run = vitlab.train(own, runs=tmp_path, name="own", quiet=True)
    assert run.experiment == own
    assert len(run.metrics()) == 1
