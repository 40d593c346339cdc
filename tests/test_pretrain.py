"""Learning without labels as a user does it: pretrain, fine-tune, and what labels are worth."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import QUICK, refused
from kinds import refusal
from PIL import Image
from safetensors.torch import load_file

import vitlab as package
from vitlab import lab
from vitlab.given import load_data
from vitlab.pretrain.labels import Study
from vitlab.settings import from_json

FEW = (*QUICK, "checkpoint=30", "optimiser=adamw", "tokens=conv-patches", "head=mean", "patch=7")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> package.Run:
    return lab.train("digits", "objective=mae", *FEW, runs=tmp_path_factory.mktemp("runs"), device="cpu", quiet=True)


@pytest.fixture
def photos(tmp_path) -> Path:
    """Pictures side by side, of no class."""
    random = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for i in range(24):
        Image.fromarray(random.integers(0, 256, (12, 12, 3), np.uint8)).save(tmp_path / "photos" / f"{i}.png")
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    return tmp_path / "photos"


@pytest.mark.parametrize("how", ["mae", "dino"])
def test_pretrain_leaves_a_run_that_every_verb_takes(vitlab, how, tmp_path):
    done = vitlab("pretrain", how, "digits", *FEW, "--device", "cpu")
    assert "k-NN accuracy" in done.stdout
    assert "on the raw pixels" in done.stdout
    run = package.open_run(tmp_path / f"runs/digits-{how}")
    assert run.experiment.objective.kind == how
    assert vitlab("evaluate", run.folder).stdout.startswith(f"test accuracy {run.result['test_accuracy']:.2%}")
    vitlab("look", run.folder, "test:0", "--tested", "4")
    tuned = vitlab("finetune", run.folder, "epochs=1", "--device", "cpu")
    assert f"runs/digits-{how}-finetuned" in tuned.stdout
    vitlab("report", run.folder, f"runs/digits-{how}-finetuned")


def test_fine_tuning_starts_from_the_other_runs_weights_but_for_the_logits(pretrained, tmp_path):
    tuned = lab.finetune(pretrained, "epochs=0", "limit=100", runs=tmp_path, device="cpu", quiet=True)
    ours, theirs = load_file(tuned.weights), load_file(pretrained.weights)
    assert ours.keys() == theirs.keys()
    moved = {name for name in ours if not torch.equal(ours[name], theirs[name])}
    assert moved == {"head.logits.weight", "head.logits.bias"}
    assert tuned.environment["start"]["run"] == pretrained.name
    assert tuned.experiment.objective.kind == "supervised"


def test_a_fine_tuned_run_can_be_moved_and_resumed_without_the_other(pretrained, tmp_path, monkeypatch):
    whole = lab.finetune(pretrained, name="whole", runs=tmp_path, device="cpu", quiet=True)
    run = package.Run(tmp_path / "stopped")
    run.folder.mkdir()
    data = load_data(whole.experiment, None)
    run.begin(whole.experiment, data.card, torch.device("cpu"), pretrained)
    moved = run.folder.rename(tmp_path / "moved")
    resumed = lab.resume(moved, device="cpu", quiet=True)
    assert all(
        torch.equal(a, b) for a, b in zip(*(load_file(r.weights).values() for r in (whole, resumed)), strict=True)
    )


def test_a_start_that_does_not_fit_is_refused_before_there_is_a_folder(pretrained, tmp_path):
    text = refusal(lambda: lab.finetune(pretrained, "width=32", runs=tmp_path / "runs", device="cpu", quiet=True))
    assert "weights.safetensors does not fit this model" in text
    small = np.random.default_rng(0).integers(0, 256, (40, 14, 14), np.uint8)
    np.savez(tmp_path / "small.npz", images=small, labels=np.arange(40) % 2)
    words = (f"data.source=npz:{tmp_path / 'small.npz'}", "limit=0", "validation=0.2")
    text = refusal(lambda: lab.finetune(pretrained, *words, runs=tmp_path / "runs", device="cpu", quiet=True))
    assert "digits learned from pictures of 1×28×28, and these are 1×14×14" in text
    assert "data.source.size=28x28, or" in text
    assert "vitlab transfer" in text
    assert not (tmp_path / "runs").exists()


def test_pictures_of_other_channels_are_said_to_be_read_in_those_of_the_start(pretrained, tmp_path):
    random = np.random.default_rng(0)
    for place in range(40):
        path = tmp_path / f"own/{place % 2}/{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (28, 28, 3), np.uint8)).save(path)
    words = (f"data.source=folder:{tmp_path / 'own'}", "data.source.size=28", "epochs=0", "limit=0", "validation=0.2")

    def tune(*more: str) -> None:
        lab.finetune(pretrained, *words, *more, runs=tmp_path / "runs", device="cpu", quiet=True)

    # what is chosen for one's own pictures would read them in one channel, were it not asked for otherwise
    text = refusal(lambda: tune("data.source.channels=3"))
    assert "digits learned from pictures of 1×28×28, and these are 3×28×28" in text
    assert "where they are your own by data.source.channels=1, or" in text
    text = refusal(lambda: tune("data.source.channels=3", "data.source.size=21"))
    assert "by data.source.size=28x28 data.source.channels=1, or" in text
    tune("data.source.channels=1")


def test_pictures_without_labels_are_learned_from_and_not_judged(vitlab, photos, tmp_path):
    done = vitlab(
        "pretrain", "mae", "digits", f"data.source=folder:{photos}", *FEW[:-1], "patch=3", "limit=0", "--device", "cpu"
    )
    assert "note: no labels" in done.stdout
    assert "note: 1 other file ignored" in done.stdout
    assert "no test pictures, so no figure" in done.stdout
    assert "accuracy" not in done.stdout
    run = package.open_run(tmp_path / "runs/digits-mae")
    assert run.card.train + run.card.validation == 24
    assert run.result["count"] == 0
    assert "knn_accuracy" not in run.result
    assert "Learned without labels" in run.report.read_text(encoding="utf-8")
    refused_words = refused(
        vitlab("train", "digits", f"data.source=folder:{photos}", *FEW[:-1], "patch=3", "limit=0", status=2)
    )
    assert "have no labels" in refused_words
    assert "vitlab pretrain" in refused_words
    assert "no test pictures, so no figure" in vitlab("evaluate", run.folder).stdout
    told = json.loads(vitlab("evaluate", run.folder, "--as-json").stdout, parse_constant=pytest.fail)
    assert told.pop("classes") == {"unlabelled": {"right": 0, "count": 0}}
    assert told == {"accuracy": None, "low": None, "high": None, "loss": None, "balanced_accuracy": None, "count": 0}
    assert "no test pictures, so no figure" in vitlab("report", run.folder).stdout
    assert "look.html" in vitlab("look", run.folder, photos / "0.png").stdout
    assert "knows no classes" in refused(vitlab("predict", run.folder, photos / "0.png", status=2))
    assert "have no labels" in refused(vitlab("finetune", run.folder, status=2))
    assert "no labels, so none can be left out" in refused(vitlab("labels", run.folder, status=2))


def test_labels_are_counted_out_and_every_way_is_tried(vitlab, pretrained, tmp_path):
    words = ("labels", pretrained.folder, "epochs=1", "--shares", "0.2", "1", "--out", "study", "--device", "cpu")
    done = vitlab(*words)
    record = json.loads((tmp_path / "study/labels.json").read_text(encoding="utf-8"))
    ways = [(row["labels"], row["way"]) for row in record["runs"]]
    assert ways == [(n, way) for n in (26, 128) for way in ("probe", "finetuned", "scratch", "scratch-long")]
    assert from_json(package.Experiment, record["pretraining"]["config"], "record") == pretrained.experiment
    assert (record["config"]["objective"]["kind"], record["config"]["training"]["epochs"]) == ("supervised", 1)
    runs = {row["way"] + str(row["labels"]): row for row in record["runs"]}
    batch = pretrained.experiment.training.batch
    steps = {labels: runs[f"finetuned{labels}"]["epochs"] * (labels // min(batch, labels)) for labels in (26, 128)}
    assert steps == {26: 128 // batch, 128: 128 // batch}
    assert runs["probe128"]["test_accuracy"] == pytest.approx(pretrained.result["test_accuracy"], abs=0.003)
    for labels in (26, 128):
        tuned, longer = runs[f"finetuned{labels}"], runs[f"scratch-long{labels}"]
        plain = runs[f"scratch{labels}"]
        seconds = pretrained.result["train_seconds"] + tuned["train_seconds"]
        assert longer["epochs"] == round(plain["epochs"] * seconds / plain["train_seconds"])
        experiment = package.open_run(tmp_path / f"study/finetuned-{labels}-0").experiment
        assert (experiment.data.limit, experiment.seed) == (labels, 0)
        times, base = runs[f"finetuned{labels}"]["epochs"], pretrained.experiment.training
        assert experiment.training.measure == times * base.measure
        assert experiment.training.schedule.warmup == times * base.schedule.warmup
    assert "from scratch, in the same time" in " ".join(done.stdout.split())
    chart = ElementTree.parse(tmp_path / "study/labels.svg").getroot()
    titles = [line[0].text for line in chart.iter() if line.get("class") == "line"]
    assert titles == ["linear probe", "fine-tuned", "from scratch", "from scratch, in the same time"]
    assert {"26 labels", "128 labels"} <= {words.text for words in chart.iterfind(".//{*}text")}
    before = {path: path.read_bytes() for path in (tmp_path / "study").rglob("weights.safetensors")}
    vitlab(*words)
    assert before == {path: path.read_bytes() for path in (tmp_path / "study").rglob("weights.safetensors")}


def test_interrupted_when_it_is_called_again_it_keeps_what_it_had(pretrained, tmp_path):
    told = []

    def interrupt(line):
        told.append(line)
        if len(told) == 2:
            raise KeyboardInterrupt

    Study(pretrained, ("epochs=1",), (0.2,), 1, tmp_path, device="cpu").finish(lambda line: None)
    before = (tmp_path / "labels.json").read_bytes()
    with pytest.raises(KeyboardInterrupt):
        Study(pretrained, ("epochs=1",), (0.2,), 1, tmp_path, device="cpu").finish(interrupt)
    rows, kept = (json.loads(text)["runs"] for text in (before, (tmp_path / "labels.json").read_bytes()))
    assert [row["way"] for row in kept] == ["probe", "finetuned", "scratch", "scratch-long"]
    assert kept == rows


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shares": (0.0,)}, "shares of the labels lie above 0"),
        ({"shares": ()}, "shares of the labels lie above 0"),
        ({"shares": (1.5,)}, "shares of the labels lie above 0"),
        ({"seeds": 0}, "seeds must be 1 or more"),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(pretrained, tmp_path, changes, said):
    given = {"shares": (1.0,), "seeds": 1} | changes
    assert said in refusal(lambda: Study(pretrained, (), given["shares"], given["seeds"], tmp_path, device="cpu"))


def test_a_study_needs_a_run_without_labels(tmp_path):
    run = lab.train("digits", *FEW, "epochs=1", runs=tmp_path, device="cpu", quiet=True)
    assert "learned from labels" in refusal(lambda: Study(run, (), (1.0,), 1, tmp_path, device="cpu"))
