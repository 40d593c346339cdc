"""The models that come with the package: they are what they say, work at once, and stay as they are."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open

import vitlab
from vitlab.cli import main
from vitlab.data.prepared import Normalise, unit
from vitlab.engine.run import ZOO, zoo
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.settings import from_json

HERE = Path(__file__).resolve().parent
MOST = {"cifar10": 15_000_000, "mnist": 1_000_000}  # bytes
RECIPE = {"cifar10": "cifar10-light", "mnist": "mnist-best"}
FROG = str(HERE.parent / "docs/frog.png")


def everything() -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in ZOO.rglob("*")}


@pytest.mark.parametrize("name", zoo())
def test_a_shipped_model_is_small_and_one_of_its_recipes_record(name: str) -> None:
    run = vitlab.open_run(name)
    assert run.finished
    assert run.weights.stat().st_size <= MOST[name]
    with safe_open(run.weights, "pt") as file:
        kinds = {file.get_tensor(key).dtype for key in file.keys()}  # noqa: SIM118 (not a mapping)
    assert kinds <= {torch.float16, torch.int64, torch.bool}
    record = json.loads((HERE.parent / f"results/records/{RECIPE[name]}.json").read_text())
    result = run.result
    same = record["runs"][result["seed"]]
    assert from_json(Experiment, record["config"] | {"seed": result["seed"]}) == run.experiment
    assert same["train_seconds"] == result["train_seconds"]
    assert abs(same["test_accuracy"] - result["test_accuracy"]) < 5e-4, "half precision costs nothing to speak of"
    assert run.evaluation.accuracy == result["test_accuracy"]
    assert run.evaluation.count == run.card.test == 10_000
    assert f"{100 * result['test_accuracy']:.2f} %" in (HERE.parent / "docs/tour.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", zoo())
def test_the_shipped_weights_give_the_shipped_answers(name: str) -> None:
    """The first 200 test pictures; the stated accuracy is that of these answers over all 10,000."""
    run = vitlab.open_run(name)
    pictures = torch.from_numpy(np.load(HERE / f"data/{name}-first-200.npz")["pictures"])
    with torch.inference_mode():
        logits = run.model().logits(Normalise(run.card, torch.device("cpu"))(unit(pictures)))
    stated = run.evaluation
    torch.testing.assert_close(logits, stated.logits[:200], rtol=1e-3, atol=1e-3)
    assert (logits.argmax(dim=-1) == stated.labels[:200]).float().mean() > 0.9


def test_it_predicts_looks_and_learns_on_with_no_training_and_writes_nothing_into_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = everything()
    main(["predict", "cifar10", FROG])
    assert "frog.png: frog (9" in capsys.readouterr().out
    main(["look", "cifar10", FROG, "--layer", "8", "--head", "1", "--data", str(tmp_path / "none")])
    assert (tmp_path / "cifar10-look/look.html").stat().st_size > 10_000
    assert "cifar10-look/look.html" in capsys.readouterr().out
    for place, name in enumerate(("one", "two")):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (32, 32), (250 * place, 20 * number, 90)).save(tmp_path / f"pictures/{name}/{number}.png")
    words = ["data.source=folder:pictures", "epochs=1", "batch=8", "compile=no", "graph=no", "warmup=0", "cutmix=0"]
    main(["finetune", "cifar10", *words, "--quiet"])
    start = vitlab.open_run("runs/cifar10-finetuned").environment["start"]
    assert start["run"] == "cifar10"
    assert everything() == before


def test_a_folder_of_the_same_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    assert vitlab.open_run("cifar10").shipped, "a folder that is no run hides nothing"
    (tmp_path / "cifar10/experiment.json").write_text("{}")
    run = vitlab.open_run("cifar10")
    assert not run.shipped
    assert run.report == Path("cifar10/report.html")


def test_a_shipped_model_is_not_resumed_and_a_wrong_name_lists_the_right_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="or fit it to them by 'vitlab transfer cifar10'"):
        vitlab.finetune("cifar10", "data.source=digits", runs=tmp_path)
    with pytest.raises(BadInput, match=r"cifar10 comes trained with vitlab; .* 'vitlab finetune cifar10'"):
        vitlab.resume("cifar10")
    with pytest.raises(BadInput, match=r"no run at cifer10.* come with vitlab are cifar10, mnist"):
        vitlab.open_run("cifer10")


def test_pages_of_shipped_models_are_made_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = vitlab.open_run("cifar10")
    assert (run.report, run.drawings) == (Path("cifar10-report.html"), Path("cifar10-look"))
    assert vitlab.lab.common_parent([run, run]) == Path(".")
