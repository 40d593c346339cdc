"""vitlab transfer: runs that look, check, report, predict and finetune take; and files that are refused unread."""

import json
import os
import pickle
import zipfile
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch
from conftest import QUICK, refused
from foreign_models import as_folder, as_safetensors, hugging, pictures_of, timm_model
from kinds import refusal
from torch import nn

import vitlab as package
from vitlab.data import Sample
from vitlab.transfer.files import read_file
from vitlab.transfer.found import network_of
from vitlab.transfer.mapping import TOLERANCE
from vitlab.transfer.sources import find

FROG = Path(__file__).parent.parent / "docs/frog.png"
MINI = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48, "image_size": 32,
    "patch_size": 8, "id2label": {0: "cat", 1: "dog", 2: "frog"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "deit"
    path.mkdir()
    as_folder(hugging("DeiTForImageClassificationWithTeacher", **MINI), path)
    return path


def test_a_model_as_it_is_answers_as_before_to_every_verb(vitlab, folder: Path) -> None:
    done = vitlab("transfer", folder)
    assert "as it was, in runs/deit: vitlab look, check and predict take it" in done.stdout
    run = package.open_run("runs/deit")
    pictures = pictures_of(32, 4)
    with torch.inference_mode():
        theirs = hugging("DeiTForImageClassificationWithTeacher", **MINI)(pictures).logits
        torch.testing.assert_close(run.model()(pictures), theirs, **TOLERANCE)
    assert run.card.classes == ("cat", "dog", "frog")
    assert run.card.mean == (0.485, 0.456, 0.406)
    said = json.loads(vitlab("predict", "runs/deit", FROG, "--format", "jsonl").stdout)
    assert set(said["classes"]) == {"cat", "dog", "frog"}
    assert package.look("runs/deit", [FROG], token="distillation").streams[0].looking == "from the distillation token"
    assert "no mistakes found" in vitlab("check", "runs/deit", "--only", "reach", "positions", "output").stdout
    for verb in ("report", "evaluate"):
        assert "this model came without" in refused(vitlab(verb, "runs/deit", status=2))
    assert "takes no settings" in refused(vitlab("transfer", folder, "epochs=2", status=2))


def test_a_run_is_not_put_outside_the_folder_of_the_runs(vitlab, folder: Path, tmp_path: Path) -> None:
    for name in ("../outside", ".hidden"):
        assert f"'{name}' is no name for a run" in refused(vitlab("transfer", folder, "--name", name, status=2))
    assert list(tmp_path.iterdir()) == [folder]


def test_a_model_for_other_pictures_is_an_ordinary_run(vitlab, folder: Path, monkeypatch) -> None:
    read, load = [], Sample.load
    monkeypatch.setattr(Sample, "load", lambda self, place: read.append(place) or load(self, place))
    done = vitlab("transfer", folder, "data.source=digits", "limit=100", "--road", "resize", "--name", "own")
    assert "filters for 3 channels made ones for 1 channel" in done.stdout
    assert "pictures are resized to 32×32" in done.stdout
    assert "of a linear probe on the features" in done.stdout
    run = package.open_run("runs/own")
    started = find(str(folder))
    name = "blocks.1.attention.qkv.weight"
    assert torch.equal(run.model().state_dict()[name], started.tensors[name]), "a probe moves nothing but the logits"
    assert json.loads((run.folder / "transfer.json").read_text())["road"] == "resize"
    assert run.result["count"] == 2000
    assert len(read) == 1, "the pictures are read once"
    assert "trained in" not in done.stdout
    said = run.report.read_text("utf-8")
    assert "No epoch was trained: the weights came from elsewhere, and stayed as they were." in said
    assert "a logistic regression on the features of 100 training pictures" in said
    assert "No epoch has been recorded" not in said
    assert "7" in vitlab("predict", "runs/own", FROG.with_name("seven.png"), "--top", 10).stdout


def test_a_run_of_ours_is_carried_to_other_pictures(vitlab) -> None:
    """From 28×28 to 32×32 and three channels; the patch that is asked for is taken."""
    trained = package.train("digits", *QUICK, "tokens=conv-patches", "epochs=0", quiet=True).folder
    done = vitlab("transfer", trained, f"data.source=npz:{made_arrays()}", "patch=8", "epochs=1", "batch=8", "--quiet")
    assert "positions resampled from 2×2 to 4×4" in done.stdout
    run = package.open_run(f"runs/{trained.name}-2")
    assert run.experiment.model.tokens.patch == 8
    assert run.result["epochs"] == 1
    assert "knn_accuracy" not in run.result
    assert "is a run already" in refused(vitlab("transfer", trained, status=2))
    refusing = vitlab("transfer", trained, f"data.source=npz:{made_arrays()}", "width=24", status=2)
    assert "is made for other pictures" in refused(refusing)


def made_arrays() -> Path:
    import numpy as np  # noqa: PLC0415

    chance = np.random.default_rng(0)
    parts = {
        name: chance.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)
        for name, count in (("x_train", 24), ("x_test", 8))
    }
    labels = {"y_train": np.arange(24) % 2, "y_test": np.arange(8) % 2}
    np.savez("arrays.npz", **parts, **labels)
    return Path("arrays.npz")


class Hostile:
    def __init__(self, command: str):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("suffix", [".bin", ".pth", ".pt"])
@pytest.mark.parametrize("old", [False, True], ids=["zip", "old"])
def test_a_file_that_would_run_code_is_refused_and_runs_none(vitlab, tmp_path: Path, suffix: str, old: bool) -> None:
    path, trace = tmp_path / f"evil{suffix}", tmp_path / "ran"
    torch.save({"model": {"head.weight": Hostile(f"touch {trace}")}}, path, _use_new_zipfile_serialization=not old)
    line = refused(vitlab("transfer", path, status=2))
    assert "is refused, since it holds more than numbers: it would call posix.system" in line
    assert not trace.exists()
    pickle.loads(pickle.dumps(Hostile(f"touch {trace}")))  # and it would have
    assert trace.exists()


def test_a_bare_pickle_and_a_model_of_a_class_are_refused_too(tmp_path: Path) -> None:
    (tmp_path / "bare.pth").write_bytes(pickle.dumps(Hostile(f"touch {tmp_path}/ran")))
    torch.save(nn.Linear(2, 2), tmp_path / "whole.pth")
    for name, expected in (("bare.pth", "more than numbers"), ("whole.pth", "it would call torch.nn.modules")):
        assert expected in refusal(read_file, tmp_path / name)
    assert not (tmp_path / "ran").exists()


BROKEN = {
    "empty": b"", "text": b"hello there", "zip": None, "pickle of nothing": pickle.dumps(None),
    "list": pickle.dumps([1, 2]), "words": pickle.dumps({"epoch": 3}),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_refused_in_one_line(case: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pth"
    if BROKEN[case] is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x/data.pkl", b"garbage")
    else:
        path.write_bytes(BROKEN[case])
    text = refusal(read_file, path)
    assert str(path) in text
    assert len(text) < 300


def test_parts_listed_in_an_index_are_joined_and_stay_in_their_folder(tmp_path: Path) -> None:
    model = hugging("DeiTForImageClassificationWithTeacher", **MINI)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    index = tmp_path / "model.safetensors.index.json"
    assert index.exists()
    network = network_of(find(str(tmp_path)))
    pictures = pictures_of(32)
    with torch.inference_mode():
        torch.testing.assert_close(network(pictures), model(pictures).logits, **TOLERANCE)
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    assert "must name files beside it" in refusal(find, str(tmp_path))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch) -> Path:
    """The hub's cache on a machine without a network."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(cache: Path, name: str) -> Path:
    """Where the files of a model of the hub lie."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    return folder / "snapshots" / ("0" * 40)


def test_what_needs_a_network_says_so_in_one_line(cache: Path) -> None:
    for source in ("hf:google/vit-base-patch16-224", "timm:vit_tiny_patch16_224"):
        text = refusal(find, source)
        assert f"{source} cannot be fetched" in text
        assert "with the file at hand, give" in text


def test_what_was_fetched_once_is_read_from_the_cache(cache: Path) -> None:
    model = hugging("DeiTForImageClassificationWithTeacher", **MINI)
    as_folder(model, cached(cache, "me/small"))
    tiny = timm_model("vit_tiny_patch16_224")
    as_safetensors(tiny, cached(cache, "timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k"))
    with torch.inference_mode():
        for source, pictures, theirs in (
            ("hf:me/small", pictures_of(32), model(pictures_of(32)).logits),
            ("timm:vit_tiny_patch16_224", pictures_of(224), tiny(pictures_of(224))),
        ):
            torch.testing.assert_close(network_of(find(source))(pictures), theirs, **TOLERANCE)


def test_a_safetensors_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = Path(as_safetensors(timm_model("vit_tiny_patch16_224", img_size=32, depth=1), tmp_path))
    path.write_bytes(path.read_bytes()[:-10])
    assert "is damaged or cut short" in refusal(read_file, path)
