"""A trained model at work: folders of pictures, and probabilities that can be believed."""

import csv
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from PIL import Image

import vitlab as package
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.inference.answers import Predictor, files
from vitlab.inference.calibration import calibrate, describe, fit, kept


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five digits in folders within folders, a file that is no picture, and one that is broken."""
    pixels = np.random.default_rng(0).integers(0, 90, (5, 28, 28), dtype=np.uint8)
    for name, picture in zip(("b.png", "a.PNG", "deep/er/1.png", "deep/2.bmp", "deep/10.gif"), pixels, strict=True):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "own" / name)
    (tmp_path / "own/notes.txt").write_text("no picture, and not taken for one")
    for name in ("._b.png", "deep/.unseen/1.png"):  # as some systems leave them beside pictures
        (tmp_path / "own" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "own" / name).write_bytes(b"no picture")
    (tmp_path / "own/deep/broken.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing more")
    return tmp_path / "own"


def test_folders_are_walked_and_every_format_says_the_same(trained: Path, vitlab, folder: Path) -> None:
    done = vitlab("predict", trained, "own", "--format", "csv", status=1)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["picture"] for row in rows] == [
        "own/a.PNG", "own/b.png", "own/deep/2.bmp", "own/deep/10.gif", "own/deep/er/1.png",
    ]  # fmt: skip
    complaint, summary = done.stderr.splitlines()
    assert "own/deep/broken.png cannot be read as a picture" in complaint
    assert summary.startswith("vitlab: 5 pictures in ")
    assert summary.endswith(" a second; 1 could not be read")
    lines = vitlab("predict", trained, "own", "--format", "jsonl", status=1).stdout.splitlines()
    network, card = package.open_run(trained).model(), package.open_run(trained).card
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        with Image.open(folder.parent / row["picture"]) as opened:
            pixels = np.array(opened.convert("L"), float)
        given = torch.from_numpy((pixels / 255 - card.mean[0]) / card.deviation[0]).float()
        with torch.inference_mode():
            shares = np.exp(network.logits(given[None, None])[0].double().numpy())
        shares /= shares.sum()
        assert [float(row[label]) for label in card.classes] == pytest.approx(shares, abs=2e-6)
        assert row["guess"] == card.classes[shares.argmax()]
        assert float(row["probability"]) == pytest.approx(shares.max(), abs=2e-6)
        assert line["classes"] == [card.classes[i] for i in np.argsort(-shares)]
        assert line["probabilities"] == pytest.approx(sorted(shares, reverse=True), abs=1e-6)
    few = vitlab("predict", trained, "own/b.png", "--format", "csv", "--top", "2").stdout.splitlines()
    assert few[0] == "picture,class 1,probability 1,class 2,probability 2"
    assert vitlab("predict", trained, "own/b.png").stdout.startswith(f"own/b.png: {few[1].split(',')[1]} ")


def test_links_to_folders_are_followed_but_not_back_up(trained: Path, vitlab, folder: Path) -> None:
    (folder / "deep").rename(folder.parent / "elsewhere")
    (folder / "linked").symlink_to("../elsewhere")
    (folder.parent / "elsewhere/er/up").symlink_to(folder)
    (folder / "round").symlink_to(".")
    done = vitlab("predict", trained, "own", "--format", "csv", status=1)
    assert [row["picture"] for row in csv.DictReader(io.StringIO(done.stdout))] == [
        "own/a.PNG", "own/b.png", "own/linked/2.bmp", "own/linked/10.gif", "own/linked/er/1.png",
    ]  # fmt: skip


def test_no_more_than_a_batch_is_read_ahead(trained: Path, folder: Path) -> None:
    asked = []

    def endless():
        while True:
            asked.append(folder / "b.png")
            yield asked[-1]

    answers = Predictor(trained).answers(endless(), batch=4)
    for _ in range(5):
        next(answers)
    assert len(asked) == 8


def test_what_cannot_be_predicted_is_refused(trained: Path, vitlab, folder: Path) -> None:
    (folder.parent / "empty").mkdir()
    assert refused(vitlab("predict", trained, "empty", status=2)).endswith("no picture in empty")
    assert "did you mean 'csv'" in refused(vitlab("predict", trained, "own", "--format", "csw", status=2))
    assert "top must be 1 or more" in refused(vitlab("predict", trained, "own", "--top", "0", status=2))
    assert "broken.png cannot be read" in refused(vitlab("predict", trained, "own/deep/broken.png", status=2))
    assert list(files([folder / "nothing.png"])) == [folder / "nothing.png"]


def numpy_loss(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    warm = logits / temperature
    warm = warm - warm.max(axis=1, keepdims=True)
    return float((np.log(np.exp(warm).sum(axis=1)) - warm[np.arange(len(labels)), labels]).mean())


def numpy_error(logits: np.ndarray, labels: np.ndarray, temperature: float, bins: int) -> float:
    shares = np.exp(logits / temperature)
    shares /= shares.sum(axis=1, keepdims=True)
    sure, right = shares.max(axis=1), shares.argmax(axis=1) == labels
    place = np.minimum((sure * bins).astype(int), bins - 1)
    return sum(abs((right - sure)[place == b].sum()) for b in range(bins)) / len(labels)


@pytest.mark.parametrize("sharp", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_one_that_a_search_over_a_grid_finds(sharp: float) -> None:
    draw = np.random.default_rng(3)
    logits = draw.normal(size=(1000, 6)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([draw.choice(6, p=row) for row in shares])
    grid = np.exp(np.linspace(np.log(0.05), np.log(20), 1201))
    best = grid[np.argmin([numpy_loss(logits * sharp, labels, t) for t in grid])]
    found = fit(torch.from_numpy(logits * sharp), torch.from_numpy(labels))
    assert found == pytest.approx(best, rel=4e-3)
    assert found == pytest.approx(sharp, rel=0.1), "the labels were drawn at temperature 1"


def test_a_run_is_calibrated_on_held_out_pictures_and_predicts_by_it(trained: Path, vitlab, tmp_path, folder) -> None:
    shutil.copytree(trained, tmp_path / "run")
    before = package.predict("run", ["own/b.png"])[0].probabilities
    printed = vitlab("calibrate", "run").stdout
    stored = json.loads((tmp_path / "run/calibration.json").read_text())
    run = package.open_run("run")
    assert stored["validation"]["pictures"] == run.card.validation > 0
    assert f"fitted on {run.card.validation:,} pictures held out of training" in printed
    test = run.evaluation
    logits, labels, warm = test.logits.double().numpy(), test.labels.numpy(), stored["temperature"]
    assert stored["test"]["pictures"] == 2000
    assert stored["test"]["loss_after"] == pytest.approx(numpy_loss(logits, labels, warm), rel=1e-5)
    for name, temperature in (("error_before", 1.0), ("error_after", warm)):
        assert stored["test"][name] == pytest.approx(numpy_error(logits, labels, temperature, 10), abs=1e-3)
    again = np.array(before) ** (1 / warm)
    assert package.predict("run", ["own/b.png"])[0].probabilities == pytest.approx(again / again.sum(), abs=1e-5)
    assert "probabilities calibrated, temperature" in vitlab("predict", "run", "own", status=1).stderr


def test_calibrate_says_what_it_did_to_the_test_part_and_when_pictures_are_too_few(trained: Path, tmp_path) -> None:
    run = package.open_run(shutil.copytree(trained, tmp_path / "run"))
    found = calibrate(run)
    test = run.evaluation
    logits, labels = test.logits.double().numpy(), test.labels.numpy()
    before, after = (numpy_loss(logits, labels, temperature) for temperature in (1, found.temperature))
    said = describe(found, run)
    assert f"on 2,000 test pictures: loss {before:.4f} before, {after:.4f} after; calibration error" in said[1]
    assert "in doubt" not in " ".join(said)
    few = replace(found, validation=replace(found.validation, pictures=99))
    assert "so few as 99 held-out pictures leave the temperature in doubt" in " ".join(describe(few, run))


def test_a_line_break_in_a_files_name_does_not_break_the_line(trained: Path, vitlab, folder: Path) -> None:
    (folder / "b.png").rename(folder / "two\nlines.png")
    (line,) = vitlab("predict", trained, "own/two\nlines.png").stdout.splitlines()
    assert line.startswith("own/two\\nlines.png: ")


def test_no_temperature_is_fitted_on_pictures_that_were_learned(vitlab, trained, tmp_path) -> None:
    assert "comes with vitlab and stays as it is" in refused(vitlab("calibrate", "cifar10", status=2))
    shutil.copytree(trained, tmp_path / "run")
    card = json.loads((tmp_path / "run/data.json").read_text()) | {"validation": 0}
    (tmp_path / "run/data.json").write_text(json.dumps(card))
    with pytest.raises(package.BadInput, match="held no pictures out of training"):
        calibrate(tmp_path / "run")


def test_pictures_that_are_all_told_right_fit_no_temperature() -> None:
    """The likeliest temperature is 0 then, by which a picture of noise would be sure to be something."""
    logits, labels = torch.eye(10) * 3, torch.arange(10)
    with pytest.raises(BadInput, match="all of the 10 pictures that were held out are told right, so they fit no temp"):
        fit(logits, labels)
    with pytest.raises(BadInput, match="too few of the 10"):
        fit(logits, labels.flip(0))
    assert fit(logits, torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 8])) > 0.1


def test_one_picture_is_a_picture_and_what_is_none_is_refused(trained: Path, folder: Path) -> None:
    assert package.predict(trained, str(folder / "b.png")) == package.predict(trained, [folder / "b.png"])
    one = package.load_pictures(trained, folder / "b.png")
    assert torch.equal(one, package.load_pictures(trained, [str(folder / "b.png")]))
    for call in (package.predict, package.load_pictures, package.look):
        with pytest.raises(BadInput, match="named by their files here, and one was given as a ndarray"):
            call(trained, [np.zeros((28, 28))])
    with pytest.raises(BadInput, match="no picture given"):
        package.load_pictures(trained, [])


@pytest.mark.parametrize("content", ["[]", '{"temperature": 1, "validation": [], "test": null}', '{"temperature": 2}'])
def test_a_damaged_calibration_is_refused_where_a_card_would_show_it(tmp_path: Path, content: str) -> None:
    assert kept(Run(tmp_path)) is None
    (tmp_path / "calibration.json").write_text(content)
    with pytest.raises(BadInput, match=r"calibration\.json"):
        kept(Run(tmp_path))
