"""What a run has learned never tests a run that starts from it, nor is held out for its choices."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vitlab
from vitlab import BadInput
from vitlab.data import Cifar10, Folder
from vitlab.data.prepared import Data, prepare
from vitlab.data.rows import Rows, Stored, digests
from vitlab.engine.seen import learned_by
from vitlab.transfer.command import bring

TINY = (
    "width=16", "depth=1", "heads=2", "tokens=conv-patches", "patch=4", "positions=learned", "epochs=1", "batch=8",
    "warmup=0", "compile=no",
)  # fmt: skip


def noise(folder: Path, count: int, seed: int = 0) -> None:
    """So many pictures of each of two classes; more of them with the same seed are added to the first."""
    for label in ("one", "two"):
        random = np.random.default_rng([seed, len(label), ord(label[0])])
        (folder / label).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / label / f"{number}.png")


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    noise(tmp_path / "own", 30)
    return tmp_path / "own"


def train(*words: str, source: str = "folder:own", objective: str = "supervised", name: str) -> vitlab.Run:
    words = (f"data.source={source}", f"objective={objective}", *TINY, *words)
    return vitlab.train("digits", "augment.rotate=0", *words, name=name, device="cpu", quiet=True)


def finetune(start: vitlab.Run, *words: str, name: str) -> vitlab.Run:
    return vitlab.finetune(start, *words, name=name, device="cpu", quiet=True)


def test_a_digest_is_that_of_a_pictures_pixels() -> None:
    pictures = torch.randint(0, 256, (5, 3, 4, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    whole = [hashlib.sha256(picture.numpy().tobytes()).digest() for picture in pictures]
    assert digests(pictures).numpy().tobytes() == b"".join(each[:8] for each in whole)
    noted = torch.tensor([list(each) for each in whole], dtype=torch.uint8)
    rows = Rows(Stored(pictures.numpy(), torch.empty(0), noted), np.array([4, 1]))
    assert torch.equal(digests(rows), digests(pictures)[[4, 1]])


def test_pictures_of_a_grown_folder_that_were_learned_do_not_test_what_starts_from_there(own: Path) -> None:
    first = train(name="first")
    noise(own, 31)
    with pytest.raises(BadInput, match=r"first has learned \d+ of the 12 pictures that are to be tested on"):
        finetune(first, "data.source=folder:own", name="second")
    assert not Path("runs/second").exists()
    noise(own / "test", 6, seed=1)
    for label in ("one", "two"):
        (own / label).rename(own / f"train-{label}")
        (own / "train").mkdir(exist_ok=True)
        (own / f"train-{label}").rename(own / "train" / label)
    assert finetune(first, "data.source=folder:own", name="second").finished


def test_what_was_learned_is_not_held_out_later(own: Path) -> None:
    whole = train("validation=0", name="whole")
    with pytest.raises(
        BadInput, match=r"whole has learned \d+ of the \d+ pictures that are to be held out.*validation=0"
    ):
        finetune(whole, "data.source=folder:own", "validation=0.2", name="later")
    assert finetune(whole, "data.source=folder:own", "validation=0", name="same").finished
    part = train("validation=0.2", name="part")
    assert finetune(part, "data.source=folder:own", "validation=0.2", name="again").finished


def test_pictures_seen_without_labels_may_be_held_out(own: Path) -> None:
    start = train("validation=0", "batch=16", objective="mae", name="start")
    assert not start.seen.exists()
    assert finetune(start, "data.source=folder:own", "validation=0.2", name="tuned").finished


def test_what_a_start_has_learned_is_handed_on(own: Path, tmp_path: Path) -> None:
    first = train("validation=0", name="first")
    noise(tmp_path / "more", 20, seed=2)
    second = finetune(first, "data.source=folder:more", "validation=0", name="second")
    known = set(learned_by(second).tolist())
    assert len(known) == len(learned_by(first)) + second.card.train
    assert set(learned_by(first).tolist()) < known
    with pytest.raises(BadInput, match="second has learned"):
        finetune(second, "data.source=folder:own", "validation=0.2", name="third")
    with pytest.raises(BadInput, match="second has learned"):
        bring(str(second.folder), "data.source=folder:own", "validation=0.2", device="cpu", quiet=True)


def test_shipped_models_know_what_they_have_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded digits are some of MNIST's, of which `mnist` has learned all that are for training."""
    monkeypatch.chdir(tmp_path)
    assert len(learned_by(vitlab.open_run("cifar10"))) == Cifar10.published.counts[0]
    with pytest.raises(BadInput, match="mnist has learned 999 of the 999 pictures that are to be held out"):
        vitlab.finetune("mnist", "data.source=digits", "validation=0.1", device="cpu", quiet=True)


def test_a_test_part_of_copies_is_told_and_a_drawn_one_has_none(tmp_path: Path, own: Path) -> None:
    for picture in list(own.glob("*/*.png")):
        shutil.copy(picture, picture.with_stem(f"copy of {picture.stem}"))
    drawn = prepare(Data(Folder(str(own)), validation=0.2), tmp_path)
    known = digests(drawn.train.pictures)
    assert (len(drawn.test), len(drawn.validation)) == (24, 20)
    assert not any(torch.isin(digests(part.pictures), known).any() for part in (drawn.test, drawn.validation))
    noise(tmp_path / "split" / "train", 6)
    noise(tmp_path / "split" / "test", 2, seed=1)
    shutil.copy(tmp_path / "split" / "train" / "one" / "0.png", tmp_path / "split" / "test" / "one" / "9.png")
    given = prepare(Data(Folder(str(tmp_path / "split")), validation=0.0), tmp_path)
    told = "1 of the 5 test pictures are copies of training pictures, so the test accuracy will be too high"
    assert told in given.card.notes
