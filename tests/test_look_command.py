"""vitlab look and vitlab.look: files, words and pages, for good input and bad."""

import importlib
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from conftest import QUICK
from kinds import build, small_attention, small_multiscale, small_vit, some_pictures
from matplotlib.image import BboxImage
from PIL import Image, ImageOps

import vitlab
from vitlab import cli, lab
from vitlab.errors import BadInput
from vitlab.look import Shown, drawing, figures, inside, look, places, trust
from vitlab.look.album import Choice, draw_album, file_names
from vitlab.look.colours import grey, overlay, palette
from vitlab.look.words import describe_look
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Uniform
from vitlab.model.heads import Mean
from vitlab.model.multiscale import ClassAttention, LateClassToken
from vitlab.model.positions import NoPositions, Rotary, Sinusoidal2d
from vitlab.model.tokens import SeveralScales

SEVEN = Path(__file__).resolve().parent.parent / "docs" / "seven.png"


@pytest.fixture(scope="module")
def looked(trained: Path, tmp_path_factory) -> tuple[Path, str]:
    """The folder that one look left, and what it said."""
    out = tmp_path_factory.mktemp("look") / "new" / "folder"
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(cli.out, "print", lambda text, **_: said.append(str(text)))
        cli.main(["look", str(trained), str(SEVEN), "test:3", "--out", str(out), "--tested", "5"])
    return out, "\n".join(said)


def test_a_look_leaves_drawings_and_a_page(looked: tuple[Path, str]) -> None:
    folder, said = looked
    names = ["contact", "measures", "positions", "trust"]
    names += [f"{picture}-{kind}" for picture in ("seven", "test-3") for kind in ("heads", "layers")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{name}.{kind}" for name in names for kind in ("png", "svg")] + ["look.html"]
    )
    for path in folder.glob("*.png"):
        with Image.open(path) as image:
            image.load()
            assert min(image.size) > 200
            assert len(image.convert("RGB").resize((64, 64)).getcolors(4096)) > 20, path
    for path in folder.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
    assert "16 drawings in" in said


def test_a_look_says_what_it_did(looked: tuple[Path, str], trained: Path) -> None:
    said = looked[1]
    seen = vitlab.look(trained, [SEVEN, "test:3"])
    assert "attention from the class token; 2 layers of 4 heads" in said
    assert "maps verified: map × values gives every layer's own tokens" in said
    assert f"seven.png: {seen.classes[seen.guesses[0]]}" in said
    assert "resized from 112×112 to 28×28" in said
    best = [int(row.argmax()) for row in seen.lens[1]]
    assert f"logit lens: input {best[0]} (" in said
    assert "on 5 pictures, lead over deleting and inserting patches in random order, in points" in said


def test_the_same_look_gives_the_same_bytes(looked: tuple[Path, str], trained: Path, tmp_path: Path) -> None:
    cli.main(["look", str(trained), str(SEVEN), "test:3", "--out", str(tmp_path), "--tested", "5"])
    for path in looked[0].iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_layer_and_head_choose_what_is_drawn(trained: Path, tmp_path: Path) -> None:
    cli.main(["look", str(trained), "test:3", "--layer", "2", "--head", "3", "--tested", "0", "--out", str(tmp_path)])
    assert (tmp_path / "test-3-heads.png").exists()
    assert not (tmp_path / "test-3-layers.png").exists(), "which shows all layers"
    seen = vitlab.look(trained, ["test:3"])
    with drawing.styled():
        one, every = (
            figures.draw_heads(seen, 0, seen.streams[0], 0, chosen) for chosen in (([1], [2]), ([0, 1], None))
        )
    written = [text.get_text() for text in one.texts]
    assert {"picture", "head 3", "layer 2"} < {*written}
    assert not {"head 2", "layer 1", "mean of heads"} & {*written}
    pictures = [artist for artist in every.artists if isinstance(artist, BboxImage)]
    assert len(pictures) == 1 + 2 * 5  # the picture; two layers of a mean and four heads


def test_without_pictures_the_first_classes_are_shown(trained: Path, tmp_path: Path, monkeypatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(cli.out, "print", lambda text, **_: said.append(str(text)))
    cli.main(["look", str(trained), "--out", str(tmp_path), "--tested", "0", "--layer", "1", "--head", "1"])
    labels = vitlab.open_run(trained).evaluation.labels
    first = [int((labels == label).nonzero()[0]) for label in range(6)]
    assert [line.partition(":")[2].split(":")[0] for line in said if line.startswith("test:")] == [
        f"{i}" for i in first
    ]


BAD = {
    "missing file": (["none.png"], "none.png"),
    "empty file": (["empty.png"], "no picture format"),
    "corrupt file": (["cut.png"], "cannot be read as a picture"),
    "too large a picture": (["huge.png"], "its pixels are far too many"),
    "folder": (["."], "cannot be read"),
    "no such test picture": (["test:2000"], "the test part has 2,000 pictures, the first is test:0"),
    "layer": (["test:0", "--layer", "3"], "no layer 3: this model has 2 layers, counted from 1"),
    "layer 0": (["test:0", "--layer", "0"], "no layer 0"),
    "head": (["test:0", "--head", "9"], "no head 9: this model has 4 heads, counted from 1"),
    "token": (["test:0", "--token", "clas"], "no token 'clas': name 'class' or a patch by its row,column"),
    "patch": (["test:0", "--token", "3,1"], "there are 2 rows and 2 columns"),
    "label": (["test:0", "--label", "ten"], "no class called 'ten'"),
    "tested": (["test:0", "--tested", "-1"], "0 or more pictures"),
    "too many": ([f"test:{n}" for n in range(65)], "65 pictures are too many to draw at a time"),
    "no number": (["test:abc"], "write test: and its number, such as test:17"),
    "a device that holds nothing": (["test:0", "--device", "meta"], "no device 'meta'"),
    "device": (["test:0", "--device", "abacus"], "no device 'abacus'"),
    "out is a file": (["test:0", "--out", "empty.png"], "empty.png"),
}


@pytest.fixture(scope="module")
def bad_files(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    (folder / "empty.png").touch()
    (folder / "cut.png").write_bytes(SEVEN.read_bytes()[:200])
    Image.new("1", (20_000, 20_000)).save(folder / "huge.png")
    return folder


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_loses_nothing(
    name: str, trained: Path, bad_files: Path, capsys, monkeypatch
) -> None:
    words, expected = BAD[name]
    monkeypatch.chdir(bad_files)
    before = sorted(bad_files.iterdir())
    given = words if "--out" in words else [*words, "--out", "drawn"]
    with pytest.raises(SystemExit) as ended:
        cli.main(["look", str(trained), *given])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("vitlab: ")
    assert expected in line
    assert sorted(bad_files.iterdir()) == before


MODELS = {
    "linformer": small_vit(attention=small_attention(Linformer)),
    "uniform, mean, rotary": small_vit(attention=Uniform(), head=Mean(), positions=Sinusoidal2d()),
    "registers": small_vit(registers=3, positions=NoPositions()),
    "scales in one sequence": small_vit(tokens=SeveralScales((4, 8))),
    "multi-scale": small_multiscale(),
    "multi-scale, joined by attention": small_multiscale(join=ClassAttention()),
    "multi-scale, as written": small_multiscale(join=LateClassToken()),
    "one layer, rotary": small_vit(depth=1, positions=Rotary(), width=32),
}


SHAPES = [Shape(1, 8, 16), Shape(3, 16, 8), Shape(5, 8, 8)]


@pytest.mark.parametrize(("name", "shape"), [(name, SHAPES[place % 3]) for place, name in enumerate(MODELS)])
def test_every_kind_of_model_and_picture_is_drawn(name: str, shape: Shape, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delitem(drawing.METADATA, "png")  # one kind of file will do
    network = build(MODELS[name], shape).eval()
    seen = look(network, torch.randn(1, shape.channels, shape.height, shape.width))
    tested = trust(network, seen.pictures, seen, steps=2, orders=1)
    files = draw_album(seen, network, tested, tmp_path, Choice())
    grids = sum(len(stream.layout.grids) for stream in seen.attending)
    tables = sum(len(found.layout.grids) for found in places(network))
    assert len(files) == 3 + 2 * grids + tables
    assert all(path.stat().st_size > 1000 for path in files)


def test_a_tensor_of_another_size_is_resized_and_that_is_said() -> None:
    network, pictures = build(small_vit()).eval(), torch.randn(2, 3, 16, 32)
    seen = look(network, pictures)
    assert {shown.note for shown in seen.shown} == {"resized from 16×32 to 8×16"}
    expected = torch.nn.functional.interpolate(pictures, (8, 16), mode="bilinear", antialias=True)
    torch.testing.assert_close(seen.logits, network.logits(expected).detach())
    alone = look(network, pictures[0])
    torch.testing.assert_close(alone.logits, seen.logits[:1])


@pytest.mark.parametrize(
    ("pictures", "words"),
    [
        (torch.zeros(1, 1, 8, 16), "pictures of 3×8×16, or many of them, and was given 1×1×8×16"),
        (torch.zeros(8, 16), "was given 8×16"),
        (torch.zeros(0, 3, 8, 16), "was given 0×3×8×16"),
        (torch.zeros(1, 3, 8, 16, dtype=torch.uint8), "normalised floats"),
        (torch.full((1, 3, 8, 16), torch.nan), "no numbers"),
    ],
)
def test_tensors_that_do_not_fit_are_refused(pictures: torch.Tensor, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        vitlab.look(build(small_vit()), pictures)


def test_a_network_knows_no_files_and_no_names() -> None:
    network = build(small_vit())
    with pytest.raises(BadInput, match="a tensor of pictures"):
        vitlab.look(network, ["a.png"])
    with pytest.raises(BadInput, match="names of its classes"):
        vitlab.look(network, some_pictures(1), label="cat")
    assert vitlab.look(network, some_pictures(2), label=3).target.tolist() == [3, 3]
    with pytest.raises(BadInput, match="named in words, such as 'class'"):
        vitlab.look(network, some_pictures(1), token=3)
    with torch.no_grad():
        network.head.logits.bias.fill_(torch.nan)
    with pytest.raises(BadInput, match="diverged"):
        vitlab.look(network, some_pictures(1))


def test_the_function_is_not_hidden_by_its_folder() -> None:
    """`vitlab.look` is the verb; the folder of the same name is imported from, not used as a name."""
    importlib.import_module("vitlab.look.heat")
    assert vitlab.look is lab.look


def test_label_chooses_the_class_of_relevance(trained: Path) -> None:
    for label in ("3", "8"):
        assert vitlab.look(trained, ["test:0"], label=label).target.tolist() == [int(label)]


def test_test_pictures_keep_their_class_and_files_are_shown_as_they_are(trained: Path) -> None:
    seen = vitlab.look(trained, [SEVEN, "test:3"])
    assert seen.shown[0].pixels.shape == (1, 112, 112), "at its own resolution"
    assert np.array_equal(seen.shown[0].pixels[0], np.asarray(Image.open(SEVEN).convert("L")))
    assert seen.shown[1].truth == int(vitlab.open_run(trained).evaluation.labels[3])
    torch.testing.assert_close(seen.pictures[:1], vitlab.load_pictures(trained, [SEVEN]))
    inverted = vitlab.look(trained, [SEVEN], invert=True)
    torch.testing.assert_close(inverted.pictures, vitlab.load_pictures(trained, [SEVEN], invert=True))


@pytest.mark.parametrize("size", [(300, 100), (100, 300), (20, 10)])
def test_a_picture_is_shown_as_it_was_cut(size: tuple[int, int], trained: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    (shown,) = vitlab.look(trained, [tmp_path / "wide.png"]).shown
    side = min(size)
    left, top = (size[0] - side) // 2, (size[1] - side) // 2
    assert np.array_equal(shown.pixels.transpose(1, 2, 0), pixels[top : top + side, left : left + side])
    assert shown.note == f"resized from {size[1]}×{size[0]} to 28×28, of it only the middle {side}×{side}"


def test_pictures_of_five_channels_come_from_the_test_part(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    parts = {name: random.integers(0, 256, (40, 5, 8, 12)).astype(np.uint8) for name in ("x_train", "x_test")}
    labels = {name: np.arange(40) % 2 for name in ("y_train", "y_test")}
    np.savez(tmp_path / "five.npz", **parts, **labels)
    words = [word for word in QUICK if not word.startswith(("data.limit", "patch"))]
    run = vitlab.train(
        "digits", *words, f"data.source=npz:{tmp_path / 'five.npz'}", "patch=4", runs=tmp_path, quiet=True
    )
    drawn = lab.draw(run, vitlab.look(run, ["test:1"]), tested=3)
    assert drawn.page == run.folder / "look" / "look.html"
    with pytest.raises(BadInput, match="a picture file gives 1 channel or 3, not 5"):
        vitlab.look(run, [SEVEN])
    (tmp_path / "five.npz").unlink()
    with pytest.raises(BadInput, match=r"five\.npz"):
        vitlab.look(run, ["test:1"])
    elsewhere = lab.draw(run, look(run.model(), torch.randn(2, 5, 8, 12)), tmp_path / "out")
    assert "the test part is not at hand" in elsewhere.note
    assert elsewhere.trust.count == 2


def test_what_is_swapped_is_shown_swapped(trained: Path) -> None:
    plain, swapped = (vitlab.look(trained, SEVEN, invert=invert).shown[0] for invert in (False, True))
    assert np.array_equal(swapped.pixels, 255 - plain.pixels)
    assert "dark and light swapped" in swapped.note
    assert "swapped" not in plain.note


def test_a_dark_digit_on_white_is_said_to_seem_swapped(trained: Path, tmp_path: Path) -> None:
    ImageOps.invert(Image.open(SEVEN).convert("L")).save(tmp_path / "dark.png")
    shown = vitlab.look(trained, [tmp_path / "dark.png", SEVEN]).shown
    assert "dark and light seem swapped (--invert)" in shown[0].note
    assert "swapped" not in shown[1].note


def test_files_of_the_same_name_are_called_by_their_paths(trained: Path, tmp_path: Path) -> None:
    paths = [tmp_path / name / "seven.png" for name in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_bytes(SEVEN.read_bytes())
    seen = vitlab.look(trained, [*paths, "test:1"])
    assert [shown.name for shown in seen.shown] == [*map(str, paths), "test:1"]


def test_names_are_drawn_as_they_are_written(trained: Path, tmp_path: Path) -> None:
    """What matplotlib would take for a formula, and letters that its font lacks."""
    path = tmp_path / "$\\frac{$ $x$ 漢.png"
    path.write_bytes(SEVEN.read_bytes())
    seen = vitlab.look(trained, [path])
    drawn = lab.draw(trained, replace(seen, classes=tuple(f"cost $5_{n} to $6" for n in range(10))), tmp_path, tested=0)
    assert (tmp_path / "frac-x-漢-heads.png") in drawn.files


def test_a_file_name_that_is_no_utf8_is_drawn_with_its_odd_bytes_escaped(trained: Path, tmp_path: Path) -> None:
    path = Path(os.fsdecode(bytes(tmp_path) + b"/sch\xf6n.png"))
    path.write_bytes(SEVEN.read_bytes())
    seen = vitlab.look(trained, [path])
    assert seen.shown[0].name == "sch\\udcf6n.png"
    lab.draw(trained, seen, tmp_path / "out", tested=0, layer=1, head=1)
    assert (tmp_path / "out/contact.svg").exists()
    twice = tmp_path / "twice" / path.name
    twice.parent.mkdir()
    twice.write_bytes(SEVEN.read_bytes())
    assert all(shown.name.isprintable() for shown in vitlab.look(trained, [path, twice]).shown)


def test_a_look_at_a_calibrated_run_says_that_its_probabilities_are_those_before(trained: Path) -> None:
    seen = vitlab.look(trained, ["test:3"])
    (line,) = (line for line in describe_look(seen, calibrated=True) if line.startswith("test:3: "))
    assert line.endswith(" (before calibration)")
    assert "calibration" not in "\n".join(describe_look(seen))


def test_a_failure_while_drawing_leaves_the_folder_as_it_was(trained: Path, tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(figures, "draw_trust", fail)  # near the last
    with pytest.raises(KeyboardInterrupt):
        lab.draw(trained, vitlab.look(trained, ["test:0"]), tmp_path / "new", tested=0)
    assert list(tmp_path.iterdir()) == []


def test_a_layer_that_only_some_scales_have_is_drawn_there(tmp_path: Path) -> None:
    network = build(small_multiscale(join=ClassAttention())).eval()
    seen = look(network, some_pictures(1))
    tested = trust(network, seen.pictures, seen, steps=2, orders=1)
    names = {path.name for path in draw_album(seen, network, tested, tmp_path, Choice(layer=2))}
    assert {name for name in names if "heads" in name} == {
        f"picture-1-heads-{n}.{k}" for n in (1, 2) for k in ("png", "svg")
    }
    with pytest.raises(BadInput, match="no layer 3: this model has 2 layers"):
        draw_album(seen, network, tested, tmp_path, Choice(layer=3))


def test_the_test_asks_for_the_class_and_the_token_of_the_look(trained: Path, tmp_path: Path, monkeypatch) -> None:
    asked = []

    def listen(network, pictures, token=None, target=None):
        asked.append((len(pictures), token, target if target is None else torch.as_tensor(target).tolist()))
        return inside(network, pictures, token, target)

    monkeypatch.setattr(lab, "inside", listen)
    for label, tested, token in (("3", 4, "1,2"), (None, 4, None), ("3", 0, None)):
        seen = vitlab.look(trained, ["test:0", "test:1"], label=label, token=token)
        lab.draw(trained, seen, tmp_path, tested=tested, layer=1, head=1)
    assert asked == [(4, "1,2", 3), (4, None, None), (2, None, [3, 3])]


def test_a_class_token_that_comes_too_late_is_said_to_see_nothing() -> None:
    late, sound = (
        look(build(small_multiscale(join=join())), some_pictures(1)) for join in (LateClassToken, ClassAttention)
    )
    assert late.blind
    assert not sound.blind
    said = "\n".join(describe_look(late))
    assert "nothing of the picture reaches the answer" in said
    assert "attention averaged over all patches; 2 layers of 2 heads, 2 layers of 2 heads" in said
    assert "nothing of the picture" not in "\n".join(describe_look(sound))


def test_other_peoples_models_are_refused_in_a_line() -> None:
    with pytest.raises(BadInput, match="its own models, and Linear is none of them"):
        vitlab.look(torch.nn.Linear(1, 1), some_pictures(1))


def test_file_names_are_safe_and_differ() -> None:
    network = build(small_vit())
    names = ["a/b.png", "b.png", "../../b.jpg", "test:3", "größe 1.png", "...", "-"]
    shown = tuple(Shown(np.zeros((3, 8, 16), np.uint8), Path(name).name) for name in names)
    seen = look(network, some_pictures(len(names)), shown=shown)
    assert file_names(seen) == ["b", "b-2", "b-3", "test-3", "größe-1", "picture", "picture-2"]


@pytest.mark.parametrize("signed", [False, True])
def test_a_map_is_laid_over_the_picture_pixel_by_pixel(signed: bool) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (3, 12, 20)).astype(np.uint8)
    weights = np.random.default_rng(1).normal(size=(3, 5)) if signed else np.random.default_rng(1).random((3, 5))
    found = overlay(picture, weights, signed, most=0.8, root=not signed)
    scale = palette(signed).astype(float)
    assert found.shape == (24, 40, 3), "8 pixels a patch: the picture's own resolution, doubled"
    for y in range(12):
        for x in range(20):
            share = weights[y // 4, x // 4] / 0.8
            share = share if signed else math_root(share)
            level = round(min(max((share + 1) / 2 if signed else share, 0), 1) * 254)
            *colour, alpha = scale[level]
            behind = 0.299 * picture[0, y, x] + 0.587 * picture[1, y, x] + 0.114 * picture[2, y, x]
            quiet = 127.5 + 0.5 * (behind - 127.5)
            expected = np.array(colour) * alpha / 255 + quiet * (1 - alpha / 255)
            assert np.abs(found[2 * y, 2 * x] - expected).max() <= 1.5
    assert grey(np.full((7, 2, 2), 51, np.uint8)) == pytest.approx(0.2)


def math_root(share: float) -> float:
    return share**0.5
