"""Our runs in timm's and Hugging Face's own formats: loaded there, they give our answers; and they come back."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from kinds import build, refusal, small_vit, some_pictures

from vitlab import Experiment, Run, Shape, ViT
from vitlab.cli import main
from vitlab.data.prepared import Card
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.storage import write_tensors
from vitlab.foreign import foreign
from vitlab.model.attention import Linformer, Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import Distilled, FirstToken, Mean
from vitlab.model.positions import NoPositions, Rotary, Sinusoidal2d
from vitlab.model.tokens import LinearPatches, ShiftedPatches
from vitlab.transfer.found import network_of
from vitlab.transfer.mapping import TOLERANCE
from vitlab.transfer.out import to_hf, to_timm
from vitlab.transfer.sources import find

SQUARE, WIDE = Shape(3, 16, 16), Shape(1, 8, 16)


def a_run(folder: Path, model: Any, shape: Shape) -> Run:
    """A run of a model with drawn weights."""
    run, names = Run(folder / "own"), ("cat", "dog", "frog", "hen", "owl")
    run.folder.mkdir()
    mean = (0.4,) * shape.channels
    card = Card(
        "drawn", shape.channels, shape.height, shape.width, names, mean, (0.2,) * shape.channels, 0, 0, 0, "", ()
    )
    run.begin(Experiment(model=model), card, torch.device("cpu"))
    write_tensors(run.weights, build(model, shape).state_dict(), {})
    return run


BOTH: dict[str, tuple[ViT, Shape]] = {
    "plain": (small_vit(), WIDE),
    "linear": (small_vit(tokens=LinearPatches(4), attention=Softmax(heads=4, bias=False)), WIDE),
    "relu": (small_vit(block=Block(activation="relu", mlp=2.5)), SQUARE),
    "sinusoidal": (small_vit(positions=Sinusoidal2d()), SQUARE),
    "no-positions": (small_vit(positions=NoPositions()), SQUARE),
    "registers": (small_vit(registers=3), SQUARE),
    "layer-scale": (small_vit(block=Block(layer_scale=0.3), registers=1), SQUARE),
    "scale-alone": (small_vit(block=Block(layer_scale=0.3)), SQUARE),
    "distilled": (small_vit(head=Distilled()), SQUARE),
}
TIMM_ALONE = {
    "mean": (small_vit(head=Mean(), registers=2), WIDE),
    "no-norm": (small_vit(final_norm=False), SQUARE),
    "wide-registers": (small_vit(registers=2), WIDE),
}
HF_ALONE = {
    "gated": (small_vit(block=Block(activation="swiglu", mlp=3.0)), SQUARE),
    "epsilon": (small_vit(block=Block(epsilon=1e-5)), SQUARE),
}


@pytest.mark.parametrize("case", BOTH | TIMM_ALONE)
def test_timm_answers_as_we_do_and_it_comes_back(case: str, tmp_path: Path) -> None:
    model, shape = (BOTH | TIMM_ALONE)[case]
    run = a_run(tmp_path, model, shape)
    to_timm(run, tmp_path / "timm")
    theirs = foreign("timm").create_model(f"local-dir:{tmp_path}/timm", pretrained=True).eval()
    pictures = some_pictures(3, shape)
    with torch.inference_mode():
        torch.testing.assert_close(theirs(pictures), run.model()(pictures), **TOLERANCE)
        assert (theirs(pictures) - run.model()(pictures)).abs().max() < 1e-4
        assert tuple(theirs.pretrained_cfg["mean"]) == run.card.mean
        if case == "no-norm":  # no published ViT is without one
            assert "it lacks norm.weight, norm.bias" in refusal(find, str(tmp_path / "timm"))
            return
        found = find(str(tmp_path / "timm"))
        assert found.classes == run.card.classes
        torch.testing.assert_close(network_of(found)(pictures), run.model()(pictures), **TOLERANCE)


@pytest.mark.parametrize("case", BOTH | HF_ALONE)
def test_transformers_answer_as_we_do_and_it_comes_back(case: str, tmp_path: Path) -> None:
    model, shape = (BOTH | HF_ALONE)[case]
    run = a_run(tmp_path, model, shape)
    to_hf(run, tmp_path / "hf")
    written = {path.name for path in (tmp_path / "hf").iterdir()}
    assert written == {"config.json", "preprocessor_config.json", "model.safetensors"}
    (architecture,) = json.loads((tmp_path / "hf/config.json").read_text())["architectures"]
    loaded, info = getattr(foreign("transformers"), architecture).from_pretrained(
        tmp_path / "hf", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert loaded.config.id2label[2] == "frog"
    pictures = some_pictures(3, shape)
    found = find(str(tmp_path / "hf"))
    with torch.inference_mode():
        torch.testing.assert_close(loaded.eval()(pictures).logits, run.model()(pictures), **TOLERANCE)
        if architecture.startswith("Dinov2"):
            ours = run.model().features(pictures)
            torch.testing.assert_close(network_of(found).features(pictures), ours, **TOLERANCE)
        else:
            assert found.classes == run.card.classes
            torch.testing.assert_close(network_of(found)(pictures), run.model()(pictures), **TOLERANCE)
    assert json.loads((tmp_path / "hf/preprocessor_config.json").read_text())["image_std"] == [0.2] * shape.channels


STAY: dict[str, tuple[Any, str]] = {
    "tokens": (small_vit(tokens=ShiftedPatches(4)), "tokens shifted-patches has no counterpart"),
    "rotary": (small_vit(positions=Rotary()), "positions rotary has no counterpart"),
    "attention": (small_vit(attention=Linformer(heads=2, k=5)), "attention linformer has no counterpart"),
    "qk-norm": (small_vit(attention=Softmax(heads=2, qk_norm=True)), "attention.qk_norm True has no counterpart"),
    "after": (small_vit(block=Block(norm="after")), "block.norm after has no counterpart"),
    "output": (small_vit(output="softmax"), "output softmax has no counterpart"),
    "first": (small_vit(head=FirstToken()), "head first-token has no counterpart"),
}


@pytest.mark.parametrize("case", STAY)
def test_what_has_no_counterpart_stays_and_is_named(case: str, tmp_path: Path) -> None:
    model, expected = STAY[case]
    run = a_run(tmp_path, model, SQUARE)
    for send in (to_timm, to_hf):
        assert expected in refusal(send, run, tmp_path / "gone")
    assert not (tmp_path / "gone").exists()


def test_what_only_one_library_has_is_refused_by_the_other(tmp_path: Path) -> None:
    for i, (model, shape, send, expected) in enumerate(
        (
            (small_vit(head=Mean()), SQUARE, to_hf, "head mean has no counterpart in transformers"),
            (small_vit(registers=1), WIDE, to_hf, "on pictures that are not square"),
            (small_vit(block=Block(epsilon=1e-12)), SQUARE, to_timm, "block.epsilon 1e-12 has no counterpart in timm"),
            (small_vit(block=Block(activation="swiglu")), SQUARE, to_timm, "block.activation swiglu"),
            (small_vit(head=Distilled(), registers=1), SQUARE, to_timm, "head distilled with registers"),
            (small_vit(registers=1, block=Block(mlp=2.5)), SQUARE, to_hf, "block.mlp 2.5 gives 40 features"),
        )
    ):
        folder = tmp_path / str(i)
        folder.mkdir()
        assert expected in refusal(send, a_run(folder, model, shape), folder / "gone")


def test_a_folder_that_holds_something_is_not_written_over(tmp_path: Path) -> None:
    run = a_run(tmp_path, small_vit(), SQUARE)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert "and not empty" in refusal(to_timm, run, tmp_path / "full")


@pytest.mark.parametrize("library", ["timm", "hf"])
def test_the_verb_keeps_what_answers_as_the_run_does(library: str, tmp_path: Path, capsys) -> None:
    run = a_run(tmp_path, small_vit(), SQUARE)
    run.write_evaluation(Evaluation(torch.empty(0, 5), torch.empty(0, dtype=torch.long)), {"parameters": 1})
    main(["export", str(run.folder), "--to", library])
    said = " ".join(capsys.readouterr().out.split())
    assert "loaded again and run at batches of 1, 2, 7" in said
    found = find(str(run.folder / library))
    pictures = some_pictures(2, SQUARE)
    with torch.inference_mode():
        torch.testing.assert_close(network_of(found)(pictures), run.model()(pictures), **TOLERANCE)
