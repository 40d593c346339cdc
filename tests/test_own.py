"""An experiment is chosen for the user's own pictures: it fits them, and says why."""

import csv
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from test_docs import commands_of

import vitlab
from vitlab import Experiment, own, recipes
from vitlab.cli import main
from vitlab.data.survey import Survey
from vitlab.errors import BadInput
from vitlab.model import Shape
from vitlab.settings import override

SIDES = st.integers(1, 2000)


def chosen(survey: Survey, tested: float = 0.2) -> tuple[Experiment, list[own.Choice]]:
    sides, shape = own.grid(survey, None)
    found = [
        *shape, own.change(survey, sides), *own.model(survey), *own.length(survey, tested),
        *own.uneven(survey), *own.few(survey),
    ]  # fmt: skip
    words = [word for choice in found for word in choice.settings]
    return override(override(own.BASE, ["data.source=folder:x"]), words), found


def survey_of(sizes: dict[tuple[int, int], int], channels: int = 3, classes: int = 2, tests: int = 0) -> Survey:
    total = sum(sizes.values())
    counts = tuple(total // classes + (place < total % classes) for place in range(classes))
    return Survey(counts, tests, Counter(sizes), channels, True)


@settings(deadline=None, max_examples=150)
@given(
    sizes=st.dictionaries(st.tuples(SIDES, SIDES), st.integers(1, 500), min_size=1, max_size=4),
    channels=st.sampled_from([1, 3]),
    classes=st.integers(1, 5),
)
def test_whatever_the_pictures_are_the_model_fits_them(sizes, channels, classes):
    experiment, found = chosen(survey_of(sizes, channels, classes))
    size = experiment.data.source.size
    height, width = map(int, size.split("x")) if size else next(iter(sizes))
    assert max(height, width) <= max(own.LONGEST, 8), "no side is longer than is worth its time"
    network = experiment.model.build(Shape(channels, height, width), max(classes, 2))
    assert 1 <= network.layout.patches <= 2.5 * own.TOKENS
    assert all(choice.reason and "\n" not in choice.reason for choice in found)


@pytest.mark.parametrize(
    ("sizes", "size", "patch"),
    [
        ({(28, 28): 100}, "", 4),
        ({(32, 32): 100}, "", 4),
        ({(16, 16): 100}, "", 2),
        ({(64, 64): 100}, "", 8),
        ({(480, 640): 100}, "48x64", 8),
        ({(480, 640): 60, (640, 480): 40}, "48x64", 8),
        ({(30, 31): 10}, "32x32", 4),
        ({(50, 400): 10}, "8x64", 4),
    ],
)
def test_the_shape_of_pictures_is_kept_and_few_patches_are_made_of_them(sizes, size, patch):
    experiment, _ = chosen(survey_of(sizes))
    assert (experiment.data.source.size, experiment.model.tokens.patch) == (size, patch)


@pytest.mark.parametrize(("sizes", "crop"), [({(64, 64): 9}, 8), ({(20, 400): 9}, 0), ({(240, 640): 9}, 3)])
def test_long_pictures_are_not_shifted_out_of_sight(sizes, crop):
    assert chosen(survey_of(sizes))[0].augment.crop == crop


@pytest.mark.parametrize(
    ("sizes", "lost"), [({(64, 64): 9}, ""), ({(60, 64): 9}, ""), ({(297, 210): 5, (210, 297): 5}, "29% of their area")]
)
def test_how_much_is_cut_off_is_said(sizes, lost):
    """Of A4, as high as wide in the middle, the long sides lose 1 - 210/297 of the picture."""
    reasons = " ".join(choice.reason for choice in chosen(survey_of(sizes))[1])
    assert (lost in reasons) if lost else ("is cut off" not in reasons)


@pytest.mark.parametrize(
    ("asked", "found", "not_found"),
    [
        (("data.source.size=32",), "patch=4", "data.source.size=64"),
        (("validation=0.2",), "epochs=", "validation=0 "),
        (("limit=20",), "about 20 pictures", "about 24 pictures"),
    ],
)
def test_what_is_asked_for_is_not_chosen_otherwise(pictures, asked, found, not_found):
    said = " ".join(f"{' '.join(each.settings)} {each.reason}" for each in own.choices(f"folder:{pictures}", asked))
    assert found in said
    assert not_found not in said


@pytest.mark.parametrize("how", ["mae", "dino"])
def test_without_labels_other_settings_are_chosen_and_fit(pictures, how):
    name = f"folder:{pictures}"
    found = own.choices(name, (), how)
    experiment = own.experiment(name, found)
    assert experiment.objective.kind == how
    assert how == "mae" or (experiment.objective.prototypes, experiment.training.ema) == (0, 0)
    network = experiment.model.build(Shape(3, 32, 32), 2)
    experiment.objective.build(network)


def test_more_pictures_are_shown_less_often_to_a_larger_model():
    shown = []
    for count in (40, 400, 4_000, 40_000):
        experiment, _ = chosen(survey_of({(32, 32): count}))
        learned = count * 0.8 * (1 - experiment.data.validation)
        shown.append((experiment.training.epochs, experiment.training.batch, experiment.model.width))
        assert experiment.training.batch <= learned
    assert shown == [(200, 16, 96), (200, 32, 96), (52, 64, 96), (5, 64, 192)]
    assert chosen(survey_of({(32, 32): 40}))[0].data.validation == 0


def test_grey_pictures_are_not_mirrored():
    grey, colour = (chosen(survey_of({(32, 32): 100}, channels))[0].augment for channels in (1, 3))
    assert (grey.flip, grey.trivial, grey.rotate) == (False, False, 10)
    assert (colour.flip, colour.trivial, colour.crop) == (True, True, 4)


def test_uneven_and_small_classes_are_remarked_on():
    _, found = chosen(Survey((90, 10), 0, Counter({(32, 32): 100}), 3, True))
    assert [choice.reason for choice in found if not choice.settings] == [
        "classes are uneven, 10 to 90 pictures: always naming the largest would be right for 90%"
    ]
    _, found = chosen(Survey((5, 6), 0, Counter({(32, 32): 11}), 3, True))
    assert "6 pictures a class are few" in found[-1].reason


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two kinds of noise, dark and light, of two sizes, and one file that is no picture."""
    random = np.random.default_rng(0)
    for label, low in (("dark", 0), ("light", 128)):
        (tmp_path / "shades" / label).mkdir(parents=True)
        for number in range(15):
            pixels = random.integers(low, low + 128, (12 + number % 2, 16, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "shades" / label / f"{number}.png")
    (tmp_path / "shades/light/notes.txt").write_text("no picture")
    return tmp_path / "shades"


def test_a_folder_is_a_recipe(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train", "folder:shades", "epochs=10"])
    said = " ".join(capsys.readouterr().out.split())
    assert "data.source.size=12x16 patch=2" in said
    assert "2 sizes, median sides 12 and 16: scaled to cover 12×16, 48 patches of 2×2" in said
    run = vitlab.open_run("runs/shades")
    assert run.result["test_accuracy"] == 1.0
    assert (run.card.height, run.card.width, run.card.train, run.card.test) == (12, 16, 24, 6)
    main(["settings", "folder:shades"])
    assert "12x16" in capsys.readouterr().out


def test_a_trained_model_learns_them_at_its_own_size_and_slower(trained, pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["finetune", str(trained), "data.source=folder:shades", "epochs=2"])
    said = " ".join(capsys.readouterr().out.split())
    assert "limit=0 what was chosen of the others says nothing of these" in said
    assert "data.source.size=28x28 as it has learned pictures" in said
    assert "epochs=2 batch=12 measure=1" in said
    assert "validation=0.1" not in said, "none is to spare"
    start = vitlab.open_run(trained).experiment
    ours = vitlab.open_run(next(Path("runs").iterdir())).experiment
    assert (ours.data.source.size, ours.training.epochs, ours.training.batch) == ("28x28", 2, 12)
    assert ours.training.optimiser.learning_rate == pytest.approx(start.training.optimiser.learning_rate / 4)
    assert ours.objective == start.objective
    whole = override(start, ["validation=0"])

    def chosen() -> list[str]:
        found = own.tuning(whole, vitlab.open_run(trained).card, ["data.source=folder:shades"])
        return [word for choice in found for word in choice.settings if word.startswith("validation")]

    assert chosen() == ["validation=0"]
    for picture in list(pictures.glob("*/*.png")):
        for number in range(9):
            shutil.copy(picture, picture.with_stem(f"{picture.stem}-{number}"))
    assert chosen() == ["validation=0.1"]
    assert own.tuning(start, vitlab.open_run(trained).card, ["epochs=1"]) == [], "of its own pictures nothing is chosen"


def test_how_pictures_are_read_is_said_before_they_are_surveyed(pictures, tmp_path, monkeypatch, capsys):
    (pictures / "dark/broken.png").write_bytes(b"no picture at all")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"unreadable=skip leaves them out"):
        recipes.recipe("folder:shades")
    for words in (
        ["train", "folder:shades"],
        ["pretrain", "mae", "folder:shades"],
        ["pretrain", "dino", "folder:shades"],
    ):
        main([*words, "unreadable=skip", "epochs=1", "width=24", "depth=1"])
    kinds = {name: vitlab.open_run(f"runs/{name}").experiment for name in ("shades", "shades-mae", "shades-dino")}
    assert [each.objective.kind for each in kinds.values()] == ["supervised", "mae", "dino"]
    assert {each.data.source.unreadable for each in kinds.values()} == {"skip"}
    main(["settings", "folder:shades", "unreadable=skip"])
    assert "12x16" in capsys.readouterr().out


def test_a_folder_that_has_changed_is_not_tested_on(pictures, tmp_path, monkeypatch, capsys):
    """It would be split anew, and what was learned from would test the model."""
    monkeypatch.chdir(tmp_path)
    main(["train", "folder:shades", "epochs=1", "width=24", "depth=1", "--quiet"])
    accuracy = vitlab.evaluate("runs/shades", device="cpu").accuracy
    assert accuracy == vitlab.open_run("runs/shades").result["test_accuracy"]
    (pictures / "dark/0.png").unlink()
    with pytest.raises(BadInput, match="have changed since it was trained"):
        vitlab.evaluate("runs/shades", device="cpu")
    capsys.readouterr()
    main(["look", "runs/shades", "shades/dark/1.png"])
    assert "the test part is not at hand (the pictures of runs/shades have changed" in " ".join(
        capsys.readouterr().out.split()
    )


def test_arrays_keep_their_size(tmp_path):
    file, random = tmp_path / "small.npz", np.random.default_rng(0)
    np.savez(file, images=random.integers(0, 255, (60, 15, 21), np.uint8), labels=np.arange(60) % 3)
    experiment = recipes.recipe(f"npz:{file}")
    assert (experiment.model.tokens.kind, experiment.model.tokens.patch) == ("conv-stem", 3)
    assert recipes.run_name(f"npz:{file}") == "small"


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadInput, match="nothing does not exist"):
        recipes.recipe(f"folder:{tmp_path}/nothing")
    with pytest.raises(BadInput, match=r"no .npz file at"):
        recipes.recipe(f"npz:{tmp_path}/nothing.npz")


def draw(shape: str, random: np.random.Generator) -> Image.Image:
    """A light disc, square or set of stripes on a dark ground, of any colour, somewhere."""
    picture = Image.new("RGB", (24, 20), tuple(random.integers(0, 60, 3).tolist()))
    pen, colour = ImageDraw.Draw(picture), tuple(random.integers(150, 255, 3).tolist())
    x, y = random.integers(0, 8), random.integers(0, 6)
    if shape == "striped":
        for place in range(0, 24, 6):
            pen.line((place, 0, place, 20), colour, 2)
    else:
        (pen.ellipse if shape == "round" else pen.rectangle)((x, y, x + 13, y + 12), colour)
    return picture


def test_the_tour_of_ones_own_pictures(tmp_path, monkeypatch, capsys):
    """Every command of docs/own-pictures.md, on a folder as it shows one."""
    random = np.random.default_rng(0)
    for shape in ("round", "square", "striped"):
        for folder, count in (("pictures", 100), ("more", 2)):
            (tmp_path / folder / shape).mkdir(parents=True)
            for number in range(count):
                slip = folder == "pictures" and number % 12 == 0  # labels have mistakes, and too easy a set fits no T
                draw("round" if slip else shape, random).save(tmp_path / folder / shape / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    said = {}
    for command in commands_of("docs/own-pictures.md"):
        short = ["epochs=12", "width=48", "depth=2"] if command == "vitlab train folder:pictures" else []
        main([*command.split()[1:], *short])
        said[command.split()[1]] = capsys.readouterr().out
    assert [*said] == ["train", "look", "calibrate", "predict", "export"]
    assert vitlab.open_run("runs/pictures").result["test_accuracy"] > 0.9
    answers = list(csv.DictReader(said["predict"].splitlines()))
    assert len(answers) == 6
    assert {"round", "square", "striped"} < {*answers[0]}
    assert (tmp_path / "runs/pictures/model.onnx").stat().st_size > 100_000
    assert (tmp_path / "runs/pictures/look/look.html").exists()
