"""The verb export as its page shows it: every command there, and the files that they leave."""

import contextlib
import io
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import QUICK, refused
from huggingface_hub import ModelCard
from PIL import Image
from test_docs import blocks, commands_of
from torch import nn

import vitlab as package
from vitlab.cli import main
from vitlab.engine.storage import read_tensors, write_tensors
from vitlab.export import Hub, Mismatch, Subject, TorchExport, export
from vitlab.export.graph import Form
from vitlab.export.onnx import session_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/export.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Done:
    """A folder in which every command of the page was called, and what each printed."""

    folder: Path
    printed: dict[str, str]

    @property
    def run(self) -> package.Run:
        return package.open_run(self.folder / "runs/digits")


@pytest.fixture(scope="module")
def done(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(trained, folder / "runs/digits")
    (folder / "docs").mkdir()
    shutil.copy(ROOT / "docs/seven.png", folder / "docs")
    shutil.copytree(folder / "docs", folder / "PICTURES")
    printed = {}
    with contextlib.chdir(folder):
        for command in commands_of("docs/export.md"):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                main(shlex.split(command)[1:])
            printed[command] = out.getvalue()
        yield Done(folder, printed)


def normalised(run: package.Run, pictures: torch.Tensor) -> torch.Tensor:
    return (pictures - run.card.mean[0]) / run.card.deviation[0]


def test_an_onnx_file_says_what_it_is_and_needs_neither_torch_nor_vitlab(done: Done) -> None:
    assert "28×28 alone, since positions.table was made for that size" in done.printed["vitlab export runs/digits"]
    model = onnx.load("runs/digits/model.onnx")
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["classes"]) == list("0123456789")
    assert (facts["run"], facts["data"], "licence" in facts) == ("digits", "digits", False)
    assert float(facts["test_accuracy"]) == done.run.result["test_accuracy"]
    assert {(each.domain, each.version) for each in model.opset_import} == {("", 20)}
    assert b"/" not in b"".join(node.SerializeToString() for node in model.graph.node), "no path of this machine"
    code = blocks(PAGE, "python")[0] + "\nimport sys\nassert not {'torch', 'vitlab'} & {*sys.modules}\n"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    likeliest, share = said.stdout.split()
    (found,) = package.predict(done.run, ["docs/seven.png"])
    assert likeliest == found.classes[0]
    assert float(share) == pytest.approx(found.probabilities[0], abs=1e-4), "at the same temperature"


def test_weights_in_8_bits_are_what_numpy_rounds_them_to(done: Done) -> None:
    (said,) = (text for command, text in done.printed.items() if "--int8" in command)
    assert said.splitlines()[-1].endswith("of 2,000 test pictures")
    stored = onnx.load("small.onnx").graph.initializer
    packed = [array for array in map(onnx.numpy_helper.to_array, stored) if array.dtype == np.int8]
    layers = [part for part in done.run.model().modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    weights = [part.weight.detach().flatten(1).double().numpy() for part in layers]
    assert len(packed) == len(weights)
    flat = [array.reshape(len(array), -1) for array in packed]
    for weight in weights:
        whole = np.rint(weight / (np.abs(weight).max(axis=1, keepdims=True) / 127))
        alike = [each for array in flat for each in (array, array.T) if each.shape == whole.shape]
        near = [np.abs(array.astype(float) - whole).max() for array in alike]
        assert min(near) <= 1, "a weight on the line between two steps may fall to either side in float32"
    ratio = Path("small.onnx").stat().st_size / Path("runs/digits/model.onnx").stat().st_size
    assert ratio < 0.6, "a tiny model, whose graph weighs as much as its weights, and here has more outputs"
    found = session_of(Path("small.onnx"), exact=True)(torch.rand(2, 1, 28, 28))
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == {
        "logits": (2, 10), "probabilities": (2, 10), "attention": (2, 2, 4, 5, 5), "layers": (2, 3, 10),
    }  # fmt: skip
    facts = {entry.key: entry.value for entry in onnx.load("small.onnx").metadata_props}
    assert json.loads(facts["attention"]) == [{"output": "attention", "extra": ["class"], "grids": [[2, 2]]}]


def test_a_torch_program_answers_without_vitlab(done: Done) -> None:
    program = torch.export.load("runs/digits/model.pt2").module()
    pictures = torch.rand(5, 1, 28, 28)
    with torch.no_grad():
        logits = done.run.model().logits(normalised(done.run, pictures))
    torch.testing.assert_close(program(pictures)["logits"], logits, rtol=1e-4, atol=1e-5)


def test_a_folder_of_other_things_is_not_exported_into(trained: Path, tmp_path: Path) -> None:
    mine, subject = tmp_path / "mine/README.md", Subject(package.open_run(trained))
    mine.parent.mkdir()
    export(subject, Hub(), mine.parent)
    export(subject, Hub(), mine.parent)
    shutil.rmtree(mine.parent)
    mine.parent.mkdir()
    mine.write_text("my own")
    with pytest.raises(package.BadInput, match="mine holds other files"):
        export(subject, Hub(), mine.parent)
    assert [path.read_text() for path in mine.parent.iterdir()] == ["my own"]


def test_a_run_goes_to_the_hub_and_back_with_a_card_that_the_hub_reads(done: Done) -> None:
    run, library = done.run, import_module("vitlab.export.pretrained")
    model = library.Pretrained.from_pretrained("runs/digits/hub")
    pictures = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        logits = run.model().logits(normalised(run, pictures))
        torch.testing.assert_close(model(pictures), logits, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.probabilities(pictures), (logits / run.temperature).softmax(dim=-1))
    card, result = ModelCard.load("runs/digits/hub/README.md"), run.result
    assert (card.data.library_name, card.data.license, model.licence) == ("vitlab", "mit", "mit")
    (measured,) = card.data.eval_results
    assert measured.metric_value == pytest.approx(result["test_accuracy"], abs=1e-6)
    stated = [f"{100 * result[name]:.2f} %" for name in ("test_accuracy", "low", "high")]
    stated += [f"{sum(weight.numel() for weight in run.model().parameters()):,}", f"{run.temperature:.3f}"]
    assert [text for text in stated if text not in card.text] == []
    assert "| `model.attention.heads` | 4 |" in card.text
    example = blocks(card.text, "python")[0].replace('"digits"', '"runs/digits/hub"')
    exec("import torch\npictures = torch.rand(1, 1, 28, 28)\n" + example, {})
    exec(blocks(PAGE, "python")[1], {})
    model.save_pretrained("again")
    assert Path("again/README.md").read_bytes() == Path("runs/digits/hub/README.md").read_bytes()
    assert package.predict("again", ["docs/seven.png"]) == package.predict(run, ["docs/seven.png"])
    with pytest.raises(package.BadInput, match="docs holds no model of vitlab"):
        library.Pretrained.from_pretrained("docs")


def test_an_export_again_forgets_a_calibration_that_the_run_no_longer_has(trained: Path, tmp_path: Path) -> None:
    run = package.open_run(shutil.copytree(trained, tmp_path / "run"))
    main(["calibrate", str(run.folder)])
    command = ["export", str(run.folder), "--to", "hub", "--out", str(tmp_path / "hub")]
    main(command)
    assert (tmp_path / "hub/calibration.json").exists()
    run.calibration.unlink()
    main(command)
    assert not (tmp_path / "hub/calibration.json").exists()
    model = import_module("vitlab.export.pretrained").Pretrained.from_pretrained(tmp_path / "hub")
    pictures = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        logits = run.model().logits(normalised(run, pictures))
        torch.testing.assert_close(model.probabilities(pictures), logits.softmax(dim=-1))


def test_what_goes_to_the_hub_does_not_tell_where_the_pictures_lie(tmp_path: Path) -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (40, 28, 28), np.uint8)
    for place, picture in enumerate(pictures):
        path = tmp_path / f"someone/at home/cats/{place % 2}/{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    own = tmp_path / "someone/at home/cats"
    (own / "1/broken.png").write_bytes(b"none")
    words = (f"data.source=folder:{own}", "data.source.unreadable=skip", "limit=0", "epochs=1")
    run = package.train("digits", *QUICK, *words, name="cats", runs=tmp_path / "runs", quiet=True)
    command = shlex.join(["vitlab", "train", "digits", *words, "--runs", str(tmp_path / "runs")])
    told = json.loads((run.folder / "environment.json").read_text()) | {"command": command}
    (run.folder / "environment.json").write_text(json.dumps(told))
    card = json.loads((run.folder / "data.json").read_text())
    assert f"{own}/1/broken.png" in " ".join(card["notes"])
    card["notes"].append(f"40 pictures on disk, not in memory: {tmp_path}/someone/at home/cache/cats.pictures")
    (run.folder / "data.json").write_text(json.dumps(card))
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    library = import_module("vitlab.export.pretrained")
    library.Pretrained(str(run.folder), "mit").save_pretrained(tmp_path / "shared")
    main(["export", str(run.folder), "--to", "hub", "--out", str(tmp_path / "hub")])
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before, "the run stays as it is"
    for folder in (tmp_path / "shared", tmp_path / "hub"):
        texts = {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".json", ".jsonl", ".md")}
        assert texts.keys() >= {"experiment.json", "environment.json", "data.json", "config.json", "README.md"}
        said = [(name, part) for name, text in texts.items() for part in own.parent.parts[1:] if f"{part}/" in text]
        assert said == []
        assert not [name for name, text in texts.items() if "someone" in text or "at home" in text]
        shared = package.open_run(folder)
        assert shared.experiment.data.source.path == "cats"
        assert shared.environment["command"].startswith("vitlab train digits data.source=folder:cats ")
        assert "1 picture skipped: cats/1/broken.png (" in " ".join(shared.card.notes)
        assert shared.card.notes[-1] == "40 pictures on disk, not in memory: cats.pictures"
        some = torch.rand(2, 1, 28, 28)
        with torch.no_grad():
            answer = library.Pretrained.from_pretrained(str(folder))(some)
            torch.testing.assert_close(answer, run.model().logits(normalised(run, some)), rtol=1e-4, atol=1e-5)
    assert library.Pretrained.from_pretrained(str(tmp_path / "shared")).licence == "mit"


@dataclass(frozen=True)
class Wrong(Hub):
    """Writes another model than it was given."""

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        super().write(subject, form, path)
        tensors, facts = read_tensors(path / "weights.safetensors")
        write_tensors(path / "weights.safetensors", tensors | {"head.logits.bias": torch.ones(10)}, facts)


def test_an_export_that_answers_otherwise_is_an_error_and_leaves_nothing(trained: Path, tmp_path: Path) -> None:
    subject = Subject(package.open_run(trained))
    with pytest.raises(Mismatch, match="digits as hub is not kept: logits of 1×1×28×28 pictures differ"):
        export(subject, Wrong(), tmp_path / "wrong")
    assert not list(tmp_path.iterdir())
    export(subject, Hub(), tmp_path / "right")
    assert list(tmp_path.iterdir()) == [tmp_path / "right"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--to", "onyx"),
            "no format called 'onyx': choose from hf, hub, onnx, timm, torch-export; did you mean 'onnx'?",
        ),
        (("--to", "torch-export", "--int8"), "--to torch-export has no --int8"),
        (("--push", "me/mine"), "--push is for --to hub"),
    ],
)
def test_what_cannot_be_exported_is_refused(trained: Path, vitlab, words, said) -> None:
    assert said in refused(vitlab("export", trained, *words, status=2))


def test_a_full_disk_does_not_end_the_process(trained) -> None:
    target, subject = TorchExport(), Subject(package.open_run(trained))
    with pytest.raises(OSError, match="No space left"):
        target.write(subject, target.form(subject), Path("/dev/full"))
