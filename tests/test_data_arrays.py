"""Pictures from an .npz file: every layout and type that is read, every one that is refused."""

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from vitlab.data import Arrays, DataSet, unpacking
from vitlab.errors import BadInput

NOWHERE = Path("nowhere")
RANDOM = np.random.RandomState(0)
PICTURES = RANDOM.randint(0, 256, (20, 6, 5, 3), np.uint8)
TESTS = RANDOM.randint(0, 256, (4, 6, 5, 3), np.uint8)
LABELS = np.arange(20) % 4
TEST_LABELS = np.arange(4)


def load(folder: Path, **arrays: object) -> DataSet:
    np.savez(folder / "mine.npz", **arrays)
    return Arrays(str(folder / "mine.npz")).load(NOWHERE)


def usual(**changes: object) -> dict[str, object]:
    return {"x_train": PICTURES, "y_train": LABELS, "x_test": TESTS, "y_test": TEST_LABELS} | changes


def test_both_parts_are_read_as_they_are(tmp_path: Path) -> None:
    loaded = load(tmp_path, **usual())
    np.testing.assert_array_equal(loaded.train.pictures.numpy(), PICTURES.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(loaded.test.pictures.numpy(), TESTS.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(loaded.train.labels.numpy(), LABELS)
    assert loaded.train.labels.dtype == torch.int64
    assert (loaded.name, loaded.classes, loaded.notes) == ("mine", ("0", "1", "2", "3"), ())


def test_medmnist_names_and_column_labels_are_read(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        train_images=PICTURES,
        train_labels=LABELS[:, None].astype(np.uint8),
        val_images=TESTS,
        test_images=TESTS,
        test_labels=TEST_LABELS[:, None],
    )
    assert loaded.train.labels.tolist() == LABELS.tolist()
    assert loaded.notes == ("left out: val_images",)


def test_a_single_part_is_split(tmp_path: Path) -> None:
    loaded = load(tmp_path, images=PICTURES, labels=LABELS)
    assert (len(loaded.train), len(loaded.test)) == (16, 4)
    assert loaded.notes == ("4 of 20 pictures held out for testing, 20% of each class",)
    loaded = load(tmp_path, x_train=PICTURES, y_train=LABELS)
    assert sorted(loaded.test.labels.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20, 6, 5), (1, 6, 5)),
        ((20, 6, 5, 1), (1, 6, 5)),
        ((20, 3, 6, 5), (3, 6, 5)),
        ((20, 7, 30, 20), (7, 30, 20)),
        ((20, 30, 20, 7), (7, 30, 20)),
    ],
)
def test_layouts(tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    pictures = RANDOM.randint(0, 256, shape, np.uint8)
    loaded = load(tmp_path, images=pictures, labels=LABELS)
    assert loaded.train.pictures.shape[1:] == expected
    assert loaded.train.pictures.is_contiguous()


def test_an_undecidable_layout_is_noted(tmp_path: Path) -> None:
    loaded = load(tmp_path, images=RANDOM.randint(0, 256, (20, 3, 5, 3), np.uint8), labels=LABELS)
    assert loaded.train.pictures.shape[1:] == (3, 3, 5)
    assert "images of shape (20, 3, 5, 3) read as (n, y, x, c)" in loaded.notes


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_from_0_to_1_are_converted_and_noted(tmp_path: Path, kind: type) -> None:
    loaded = load(tmp_path, **usual(x_train=(PICTURES / 255).astype(kind), x_test=(TESTS / 255).astype(kind)))
    difference = loaded.train.pictures.numpy().astype(int) - PICTURES.transpose(0, 3, 1, 2)
    assert abs(difference).max() == 0
    assert loaded.notes == (f"pixels converted from {np.dtype(kind)} in 0..1 to uint8",)


def test_wider_integers_within_a_byte_are_converted(tmp_path: Path) -> None:
    loaded = load(tmp_path, **usual(x_train=PICTURES.astype(np.int64)))
    np.testing.assert_array_equal(loaded.train.pictures.numpy(), PICTURES.transpose(0, 3, 1, 2))
    assert loaded.notes == ("pixels converted from int64 in 0..255 to uint8",)


def test_labels_with_gaps_are_renumbered_and_named_by_their_values(tmp_path: Path) -> None:
    values = np.array([3, 7, 100, 2**40])
    loaded = load(tmp_path, **usual(y_train=values[LABELS], y_test=values[TEST_LABELS]))
    assert loaded.classes == ("3", "7", "100", str(2**40))
    assert loaded.train.labels.tolist() == LABELS.tolist()
    assert loaded.test.labels.tolist() == TEST_LABELS.tolist()
    assert loaded.notes == (f"labels 3 to {2**40} renumbered 0 to 3",)


@pytest.mark.parametrize(
    "names", [np.array(["a", "b", "c", "d", "é"]), np.array([b"a", b"b", b"c", b"d", b"\xc3\xa9"])]
)
def test_classes_may_be_named(tmp_path: Path, names: np.ndarray) -> None:
    assert load(tmp_path, **usual(classes=names)).classes == ("a", "b", "c", "d", "é")


NAN, INFINITE = (PICTURES / 255).copy(), (PICTURES / 255).copy()
NAN[3, 2, 1, 0] = np.nan
INFINITE[3, 2, 1, 0] = np.inf


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": NAN}, r"x_train \(float64\) holds values from nan to nan: 0 to 1 belong"),
        ({"x_train": INFINITE}, "holds values from 0 to inf"),
        ({"x_train": PICTURES.astype(np.float32)}, "holds values from 0 to 255: 0 to 1 belong"),
        ({"x_train": PICTURES / 255 - 0.5}, "holds values from -0.5"),
        ({"x_train": PICTURES.astype(np.int32) * 2}, "0 to 255 belong"),
        ({"x_train": PICTURES > 3}, "is of type bool"),
        ({"x_train": PICTURES[:, 0, 0]}, r"has shape \(20, 3\)"),
        ({"x_train": PICTURES[:0], "y_train": LABELS[:0]}, r"has shape \(0, 6, 5, 3\)"),
        ({"x_test": TESTS[:, :5]}, "x_train has pictures of .* and x_test of"),
        ({"y_train": LABELS[:-1]}, "x_train has 20 pictures and y_train 19 labels"),
        ({"y_train": LABELS - 1}, "y_train holds the negative label -1"),
        ({"y_train": LABELS.astype(float)}, "labels must be integers"),
        ({"y_train": np.eye(4, dtype=int)[LABELS]}, r"y_train has shape \(20, 4\)"),
        ({"y_train": LABELS.astype(np.uint64) + np.uint64(2**63)}, "which is too large"),
        ({"y_train": LABELS * 0}, "every training label is 0: at least 2 classes"),
        ({"y_test": TEST_LABELS + 1}, "labels that the training part lacks: 4"),
        ({"classes": np.array(["a", "b", "c"])}, "label 3 is out of range: classes names 3"),
        ({"classes": np.array([1, 2, 3, 4])}, "a row of strings belongs there"),
        ({"classes": np.array(["a", None, 3, "b"], object)}, "holds pickled objects, which are never read"),
        ({"x_train": np.array([[[None]]], object)}, "holds pickled objects, which are never read"),
    ],
)
def test_refusals_in_one_line(tmp_path: Path, changes: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        load(tmp_path, **usual(**changes))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("missing", ["y_train", "x_test", "y_test"])
def test_a_missing_array_is_named(tmp_path: Path, missing: str) -> None:
    with pytest.raises(BadInput, match=rf"{missing}"):
        load(tmp_path, **{name: array for name, array in usual().items() if name != missing})


def test_files_that_are_no_npz_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    good = tmp_path / "good.npz"
    np.savez_compressed(good, **usual())
    contents = {
        "no .npz file at": None,
        "is a single array": (np.save(tmp_path / "one.npy", PICTURES), (tmp_path / "one.npy").read_bytes())[1],
        "pickled objects": pickle.dumps({"x_train": 1}),
        "cannot be read as .npz": good.read_bytes()[:-200],
        "mine.npz cannot be read": b"",
    }
    for message, content in contents.items():
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(BadInput, match=message) as refusal:
            Arrays(str(path)).load(NOWHERE)
        assert "\n" not in str(refusal.value)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", b"\x93NUMPY\x01\x00nonsense")
    with pytest.raises(BadInput, match=r"cannot be read as \.npz"):
        Arrays(str(path)).load(NOWHERE)
    with pytest.raises(BadInput, match=r"no \.npz file at ''"):
        Arrays().load(NOWHERE)
    with pytest.raises(BadInput, match="it needs x_train, y_train, x_test, y_test or"):
        load(tmp_path, something=LABELS)


def header(shape: str, kind: str = "|u1") -> bytes:
    """The beginning of an .npy file, whatever it says."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header("(1000000, 1000, 1000)") + bytes(99), "shorter than its header says"),
        (b"no array at all", "x_train is no array"),
        (bytes(2 << 20), "unpacks to more than 100 times its own size"),
    ],
)
def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path, monkeypatch, content: bytes, said: str) -> None:
    monkeypatch.setattr(unpacking, "FREE", 1 << 20)
    with zipfile.ZipFile(tmp_path / "mine.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("x_train.npy" if content[:1] == b"\x93" else "x_train", content)
    with pytest.raises(BadInput, match=said):
        Arrays(str(tmp_path / "mine.npz")).load(NOWHERE)


def test_names_that_are_no_text_are_refused_and_others_can_be_printed(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="names that are no text"):
        load(tmp_path, **usual(), classes=np.array([0x7FFFFFFF] * 4, np.uint32).view("U1"))
    found = load(tmp_path, **usual(), classes=np.array(["a\n", "\x1b[2J", "é", "d"]))
    assert found.classes == (r"a\n", r"\x1b[2J", "é", "d")
