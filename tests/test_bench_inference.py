"""Inference is timed by every way that there is, and each way of ours gives the same answers."""

import json
from pathlib import Path

import pytest
import torch
from conftest import QUICK
from kinds import CLASSES, SHAPE, build, small_vit

import vitlab
from vitlab.bench import bench
from vitlab.bench import inference as served
from vitlab.bench.inference import timm_of
from vitlab.bench.parts import Inference
from vitlab.errors import BadInput
from vitlab.model.heads import Mean


def test_a_tiny_run_is_served_by_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "compiler_trouble", lambda device: "left out, since compiling takes long")
    run = vitlab.train("digits", *QUICK, "depth=0", "optimiser=adamw", "tokens=conv-patches", runs=tmp_path, quiet=True)
    page, where = tmp_path / "page.md", tmp_path / "bench"
    bench(Inference(runs=(run.folder,), rounds=2, batches=(1, 3), pictures=300, device="cpu", out=where, page=page))
    record = json.loads((where / "inference-cpu.json").read_text())
    rows = {(row["way"], row["batch"]): row for row in record["runs"]}
    assert set(rows) == {
        (way, batch) for way in ("torch", "onnxruntime", "onnxruntime, 8-bit weights", "timm") for batch in (1, 3)
    }
    evaluation = run.evaluation
    right = float((evaluation.guesses == evaluation.labels)[:300].double().mean())
    assert rows["torch", 1]["accuracy"] == rows["onnxruntime", 3]["accuracy"] == pytest.approx(right)
    assert abs(rows["onnxruntime, 8-bit weights", 1]["accuracy"] - right) < 0.03
    assert rows["timm", 1]["accuracy"] is None
    assert rows["timm", 1]["weights"] == rows["torch", 1]["weights"], "the same shape"
    for row in rows.values():
        assert row["milliseconds"] == pytest.approx(1e3 * row["batch"] / row["pictures_per_second"], rel=1e-3, abs=1e-3)
        assert 0 < row["fastest"] <= row["milliseconds"]
    text = page.read_text()
    assert f"| torch | {rows['torch', 1]['milliseconds']:,.2f} ms<br>" in text
    assert "- accuracy: of the first 300 test pictures." in text


@pytest.mark.parametrize("parts", [{}, {"head": Mean(), "registers": 2}], ids=["class token", "mean"])
def test_timms_model_has_as_many_weights(parts: dict) -> None:
    model = small_vit(**parts)
    ours, theirs = build(model), timm_of(model, SHAPE, CLASSES)
    assert theirs(torch.zeros(1, 3, 8, 16)).shape == (1, CLASSES)
    counts = [sum(weight.numel() for weight in network.parameters()) for network in (ours, theirs)]
    assert counts[0] == counts[1]


def test_what_cannot_be_served_is_refused(trained: Path) -> None:
    with pytest.raises(BadInput, match="batches must be 1 or more"):
        Inference(runs=(trained,), batches=(0, 1)).check("cpu")
    with pytest.raises(BadInput, match="no run at nowhere"):
        Inference(runs=(Path("nowhere"),)).check("cpu")
