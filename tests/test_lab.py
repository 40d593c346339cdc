"""The verbs from Python, for every model and the corners of the settings."""

import gc
import shlex
import shutil
import weakref
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from conftest import QUICK
from kinds import CLASSES, build, small_vit
from PIL import Image

import vitlab
from vitlab.data import Sample
from vitlab.data.dataset import DataSet, Part
from vitlab.data.prepared import Normalise, describe, unit
from vitlab.engine.evaluation import evaluate_part
from vitlab.experiment import Testing as Reading  # pytest would take a Test… for a class of tests
from vitlab.given import Loaded
from vitlab.model import Shape
from vitlab.report.gather import commands

SMALL = (*(word for word in QUICK if not word.startswith(("patch", "epochs"))), "epochs=1")


class Text(HTMLParser):
    """The words of a page."""

    def __init__(self, page: str):
        super().__init__()
        self.words: list[str] = []
        self.shown = True
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.shown = tag not in ("style", "script")

    def handle_data(self, data: str) -> None:
        self.words += data.split() if self.shown else []


def words_of(run: vitlab.Run) -> str:
    return " ".join(Text(run.report.read_text(encoding="utf-8")).words)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("model=multi-scale", "join=mean"), "one map for each scale"),
        (("model=multi-scale", "join=class-attention"), "one map for each scale"),
        (("model=multi-scale", "join=late-class-token"), "What it looks at"),
        (("tokens=several-scales", "patches=7,14"), "attention from the class token."),
        (("tokens=conv-patches", "patch=14", "attention=linformer", "attention.k=3"), "are negative"),
        (("tokens=conv-patches", "patch=14", "head=first-token"), "attention from the first patch."),
        (("tokens=conv-patches", "patch=14", "head=mean", "registers=2"), "averaged over all patches"),
        (("tokens=conv-patches", "patch=14", "depth=0", "optimiser=adamw"), "this model has no blocks"),
        (("tokens=conv-patches", "patch=28", "epochs=0"), "test accuracy"),
        (("tokens=conv-patches", "patch=14", "validation=0"), "training"),
        (("tokens=conv-patches", "patch=14", "precision=bfloat16", "qk_norm=yes"), "What it looks at"),
        (("tokens=conv-patches", "patch=14", "across=batch", "head=mean"), "attends across the batch"),
        (("tokens=linear-patches", "patch=14", "twice=yes", "output=softmax", "start=torch", "copies=yes"), "patch"),
        (("model=multi-scale", "output=log-softmax", "normalise=half"), "one map for each scale"),
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
    uneven, whole = (
        evaluate_part(run.model(), test, normalise, bfloat16=False, testing=Reading(at_once=n)) for n in (300, 2000)
    )
    assert uneven.logits.shape == (2000, 10)
    assert torch.allclose(uneven.logits, whole.logits, atol=1e-5)


def test_whole_batches_alone_are_counted_where_the_last_is_dropped() -> None:
    """Report R1: batches of 64 leave 16 of 10,000 pictures unread."""
    network = build(small_vit(), Shape(1, 4, 4))
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(0, 256, (10_000, 1, 4, 4), dtype=torch.uint8, generator=generator)
    part = Part(pictures, torch.arange(10_000) % CLASSES)
    normalise = Normalise(describe(DataSet("own", tuple("abcde"), part, part), part, part), torch.device("cpu"))
    whole, dropped, fitting = (
        evaluate_part(network, part, normalise, bfloat16=False, testing=testing)
        for testing in (Reading(64), Reading(64, drop_last=True), Reading(100, drop_last=True))
    )
    assert (whole.count, dropped.count, fitting.count) == (10_000, 9_984, 10_000)
    assert torch.equal(dropped.labels, part.labels[:9_984])
    assert torch.equal(dropped.logits, whole.logits[:9_984])
    assert dropped.correct == int((whole.guesses == whole.labels)[:9_984].sum())


def test_a_run_that_drops_the_last_test_batch_says_how_many_it_counted(trained, tmp_path) -> None:
    whole = vitlab.open_run(trained).evaluation
    run = vitlab.train("digits", *QUICK, "at_once=300", "drop_last=yes", runs=tmp_path, quiet=True)
    assert run.result["count"] == 1800 == vitlab.evaluate(run).count
    assert run.result["test_accuracy"] == int((whole.guesses == whole.labels)[:1800].sum()) / 1800
    assert vitlab.open_run(run.folder).experiment.testing == Reading(300, drop_last=True)


@pytest.mark.parametrize("model", [("tokens=conv-patches", "patch=14"), ("model=multi-scale",)], ids=["vit", "scales"])
@pytest.mark.parametrize("output", ["softmax", "log-softmax"])
def test_whatever_a_model_gives_to_its_loss_it_is_judged_by_its_logits(tmp_path, output, model):
    run = vitlab.train("digits", *SMALL, *model, f"output={output}", runs=tmp_path, quiet=True)
    pixels = np.random.default_rng(1).integers(0, 255, (28, 28), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "noise.png")
    (found,) = vitlab.predict(run, [tmp_path / "noise.png"])
    network, given = run.model(), vitlab.load_pictures(run, [tmp_path / "noise.png"])
    with torch.inference_mode():
        logits = network.logits(given)[0].double()
        assert not torch.allclose(network(given)[0].double(), logits), "forward gives another form"
    expected = np.exp(logits.numpy()) / np.exp(logits.numpy()).sum()
    assert sum(found.probabilities) == pytest.approx(1, abs=1e-6)
    assert found.probabilities == pytest.approx(sorted(expected.tolist(), reverse=True), rel=1e-4)
    flatter = np.exp(expected) / np.exp(expected).sum()
    assert max(found.probabilities) > 1.05 * flatter.max(), "no softmax of a softmax"
    evaluation = vitlab.evaluate(run)
    first = Normalise(run.card, torch.device("cpu"))(unit(Sample().load(tmp_path).test.pictures[:20]))
    with torch.inference_mode():
        torch.testing.assert_close(evaluation.logits[:20], network.logits(first), rtol=1e-4, atol=1e-5)
    assert evaluation.accuracy == run.result["test_accuracy"]
    assert evaluation.loss == pytest.approx(run.result["test_loss"], rel=1e-6)


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


def test_pictures_are_loaded_once_and_let_go_before_others_are_loaded(monkeypatch):
    """Experiments on one device follow one another, and two sets of pictures may not fit."""
    few, fewer = (vitlab.override(vitlab.recipe("digits"), [f"limit={count}"]) for count in (30, 20))
    loaded, load, found = Loaded(None, torch.device("cpu")), Sample.load, []
    first = loaded.of(few)
    assert loaded.of(vitlab.override(few, ["seed=1"])) is first
    kept = weakref.ref(first.train.pictures)
    del first
    gc.collect()
    assert kept() is not None

    def noted(self, place):
        gc.collect()
        found.append(kept() is None)
        return load(self, place)

    monkeypatch.setattr(Sample, "load", noted)
    assert len(loaded.of(fewer).train) == 20
    assert found == [True]


def test_an_experiment_of_ones_own_can_be_trained(tmp_path):
    own = vitlab.override(
        vitlab.Experiment(model=vitlab.ViT(width=8, depth=1)), [*SMALL, "width=8", "heads=2", "patch=14"]
    )
    run = vitlab.train(own, runs=tmp_path, name="own", quiet=True)
    assert run.experiment == own
    assert len(run.metrics()) == 1


def test_a_run_is_known_by_its_folder_and_its_commands_can_be_pasted(trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "of mine")
    monkeypatch.chdir(tmp_path / "of mine")
    assert vitlab.open_run(".").name == "of mine"
    monkeypatch.chdir(tmp_path)
    for _, command in commands(vitlab.open_run("of mine")):
        program, _, run, *_ = shlex.split(command)
        assert program == "vitlab"
        assert run.removesuffix("/experiment.json") == "of mine"
