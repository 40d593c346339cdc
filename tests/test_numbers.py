"""Numbers at their limits: what is no number is never called a result."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from loops import small

import vitlab as package
from vitlab.data.augment import Augment
from vitlab.data.trivial import smooth
from vitlab.engine.storage import read_tensors, write_tensors
from vitlab.errors import BadInput
from vitlab.export import Subject, TorchExport, export


@pytest.fixture(scope="module")
def broken(trained: Path, tmp_path_factory) -> Path:
    """A run whose weights have become NaN since it was tested."""
    folder = tmp_path_factory.mktemp("broken") / "run"
    shutil.copytree(trained, folder)
    weights, facts = read_tensors(folder / "weights.safetensors")
    write_tensors(folder / "weights.safetensors", weights | {"norm.bias": weights["norm.bias"] * torch.nan}, facts)
    return folder


@pytest.mark.parametrize("verb", ["evaluate", "predict", "calibrate", "look"])
def test_a_model_that_answers_in_no_numbers_is_refused(broken: Path, vitlab, verb: str) -> None:
    picture = Path(__file__).parent.parent / "docs/seven.png"
    words = [verb, broken, *([picture] if verb in ("predict", "look") else [])]
    assert "are no numbers" in refused(vitlab(*words, status=2))


def test_training_that_ends_in_no_numbers_gives_no_figure(tmp_path: Path) -> None:
    """The loss of the one step is sound, and what it does to the weights is not."""
    words = ("epochs=1", "batch=64", "validation=0", "learning_rate=1e30", "weight_decay=1e30", "warmup=0")
    with pytest.raises(BadInput, match=r"a weight is no longer a number at step 0 .*learning_rate"):
        package.train(small(*words), runs=tmp_path, name="run", quiet=True)
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 2), (3, 3)])
def test_pictures_of_any_size_are_changed_at_random(size: tuple[int, int]) -> None:
    pictures = torch.rand(40, 3, *size, generator=torch.Generator().manual_seed(1))
    changed = Augment(trivial=True)(pictures, torch.Generator().manual_seed(2))
    assert changed.shape == pictures.shape
    assert bool(changed.isfinite().all())
    assert torch.equal(smooth(pictures), pictures) == (min(size) < 3), "all are outermost"


def test_a_single_column_of_patches_is_exported_at_its_own_size(tmp_path: Path) -> None:
    shown = np.random.default_rng(0).integers(0, 256, (12, 8, 4), np.uint8)
    np.savez(tmp_path / "tall.npz", images=shown, labels=np.arange(12) % 2)
    words = (f"data.source=npz:{tmp_path / 'tall.npz'}", "limit=0", "epochs=0", "patch=4", "positions=sinusoidal-1d")
    run = package.train(small(*words), runs=tmp_path, name="run", quiet=True)
    kept = export(Subject(run), TorchExport())
    assert "a single row or column" in kept.form.fixed
    answer = TorchExport().load(kept.path)(torch.rand(3, 1, 8, 4))
    assert answer["logits"].shape == (3, 2)
