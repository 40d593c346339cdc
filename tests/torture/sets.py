"""Files of data as they should be, and how the product reads them: the named sets, pictures, archives, arrays."""

import gzip
import io
import json
import os
import random
import shutil
import struct
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image

from vitlab.data import Arrays, DataSet, Folder, Part
from vitlab.data.formats import IDX_MEMBERS, SHEET_MEMBERS, decode_batches, decode_binary, decode_idx, decode_sheets
from vitlab.data.mapped import open_mapped
from vitlab.data.pictures import Unreadable, read_header, read_picture, read_shown, silent_pillow
from vitlab.data.published import Form, Published, digest, read_cache, read_files, write_cache

PICTURES = {
    "grey.png": ("L", {}), "colour.png": ("RGB", {}), "alpha.png": ("RGBA", {}), "palette.png": ("P", {}),
    "deep.png": ("I;16", {}), "colour.jpg": ("RGB", {}), "grey.jpg": ("L", {"progressive": True}),
    "colour.webp": ("RGB", {}), "alpha.webp": ("RGBA", {"lossless": True}), "palette.gif": ("P", {}),
    "colour.bmp": ("RGB", {}), "colour.tiff": ("RGB", {}), "packed.tiff": ("L", {"compression": "tiff_lzw"}),
    "grey.pgm": ("L", {}), "colour.ppm": ("RGB", {}),
}  # fmt: skip


class Harm:
    """What unpickles to a call, which leaves a trace where it is made."""

    def __init__(self, call: Callable, *given: object):
        self.call, self.given = call, given

    def __reduce__(self) -> tuple:
        return self.call, self.given


def pixels(chance: random.Random, *shape: int) -> np.ndarray:
    return np.frombuffer(chance.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)


def picture(mode: str, height: int = 9, width: int = 7) -> Image.Image:
    chance = random.Random(mode)
    if mode == "I;16":
        return Image.fromarray(np.arange(height * width, dtype=np.uint16).reshape(height, width) * 900)
    channels = {"RGB": 3, "RGBA": 4}.get(mode)
    return Image.fromarray(
        pixels(chance, height, width, channels) if channels else pixels(chance, height, width)
    ).convert(mode)


def encoded(name: str) -> bytes:
    mode, options = PICTURES[name]
    content = io.BytesIO()
    picture(mode).save(
        content, {"jpg": "JPEG", "tiff": "TIFF", "pgm": "PPM"}.get(name[-3:], name.rpartition(".")[2]), **options
    )
    return content.getvalue()


def sound(part: Part, classes: int) -> None:
    """Pictures and labels that everything after reading relies on."""
    taken = part.pictures[:]
    assert taken.dtype == torch.uint8, taken.dtype
    assert taken.ndim == 4, taken.shape
    assert part.labels.dtype == torch.int64, part.labels.dtype
    assert len(taken) == len(part.labels), (len(taken), len(part.labels))
    assert not len(part) or 0 <= part.labels.min() <= part.labels.max() < classes


def sound_set(data: DataSet) -> None:
    for part in (data.train, data.test):
        sound(part, len(data.classes))
    assert len(data.train)


# The named sets


def small(form: Form, shape: tuple[int, int, int]) -> Published:
    return Published("small", tuple("0123456789"), shape, (10, 2), (form,))


IDX = small(Form(IDX_MEMBERS, decode_idx, archives=("set.tgz",)), (1, 4, 4))
BINARY = small(Form(("data.bin", "test.bin"), partial(decode_binary, label_bytes=1)), (3, 32, 32))
BATCHES = small(Form(("data", "test"), decode_batches, archives=("set.tgz",)), (3, 32, 32))
SHEETS = small(Form(SHEET_MEMBERS, decode_sheets), (3, 32, 32))


def make_idx(folder: Path, suffix: str = "") -> None:
    chance = random.Random(1)
    for name, count, size in zip(IDX_MEMBERS, (10, 10, 2, 2), (16, 0, 16, 0), strict=True):
        sizes = (count, 4, 4) if size else (count,)
        values = chance.randbytes(count * size) if size else bytes(range(count))
        content = b"\0\0\x08" + bytes([len(sizes)]) + b"".join(s.to_bytes(4, "big") for s in sizes) + values
        (folder / f"{name}{suffix}").write_bytes(gzip.compress(content, mtime=0) if suffix else content)


def make_tape(folder: Path, make: Callable[[Path], None]) -> None:
    inside = folder / "inside"
    inside.mkdir()
    make(inside)
    with tarfile.open(folder / "set.tgz", "w:gz") as tape:
        for path in sorted(inside.iterdir()):
            tape.add(path, f"set/{path.name}")
    shutil.rmtree(inside)


def make_binary(folder: Path) -> None:
    for name, count in (("data.bin", 10), ("test.bin", 2)):
        (folder / name).write_bytes(b"".join(bytes([i]) + bytes([i, 99]) * 1536 for i in range(count)))


def python2_batch(count: int, payload: bytes = b"") -> bytes:
    """A batch as cPickle of Python 2 wrote the official ones."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01(cnumpy\nndarray\nq\x02K\0\x85U\x01btR(K\x01M"
        + struct.pack("<H", count) + b"M\0\x0c\x86cnumpy\ndtype\nq\x03(U\x02u1K\0K\x01tR(K\x03U\x01|NNN"
        b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T" + struct.pack("<i", 3072 * count) + bytes(3072 * count) + b"tb"
    )  # fmt: skip
    labels = b"](" + b"".join(b"K" + bytes([i]) for i in range(count)) + b"e"
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels" + labels + b"U\x05extra" + (payload or b"N") + b"u."


def make_batches(folder: Path, payload: bytes = b"") -> None:
    (folder / "data").write_bytes(python2_batch(10))
    (folder / "test").write_bytes(python2_batch(2, payload))


def make_sheets(folder: Path) -> None:
    chance = random.Random(2)
    for name in SHEET_MEMBERS:
        if name.endswith(".png"):
            Image.fromarray(pixels(chance, 2, 1024, 3)).save(folder / name)
        else:
            (folder / name).write_text(json.dumps(list(range(10 if name.startswith("train") else 2))))


def read_named(published: Published, folder: Path, _: str) -> None:
    found = read_files(published, folder)
    if found is not None:
        for part, count in zip(found[:2], published.counts, strict=True):
            sound(part, 10)
            assert part.pictures.shape == (count, *published.shape)


def make_cache(folder: Path) -> None:
    make_idx(folder)
    found = read_files(IDX, folder)
    assert found is not None
    write_cache(folder / "small.safetensors", *found[:2])


def read_cached(folder: Path, _: str) -> None:
    """Either the very pictures that were kept, or a refusal; a header alone may lie, and then it lies of its own."""
    train, test = read_cache(IDX, folder / "small.safetensors")
    sound(train, 10)
    sound(test, 10)
    kept = safetensors.safe_open(folder / "small.safetensors", "pt").metadata()["digest"]
    assert digest(train, test) == kept


# Pictures, and one's own sets of them


def make_pictures(folder: Path) -> None:
    for name in PICTURES:
        (folder / name).write_bytes(encoded(name))


def read_pictures(folder: Path, name: str) -> None:
    path = folder / name
    taken = read_picture(path, 3, 8, 8)
    assert taken.shape == (3, 8, 8)
    assert taken.dtype == torch.uint8
    assert read_picture(path, 1, 8, 8).shape == (1, 8, 8)
    assert max(read_shown(path, 8, 8).shape) <= 1024
    with silent_pillow():
        try:
            header = read_header(path)
        except Unreadable:  # the pixels could be read all the same
            return
    assert header.height > 0
    assert header.width > 0


def make_archives(folder: Path) -> None:
    contents = {"a": "colour", "b": "grey"}
    names = {f"{k}/{place}.{end}": f"{contents[k]}.{end}" for k in "ab" for place in (1, 2) for end in ("png", "jpg")}
    with zipfile.ZipFile(folder / "set.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in names.items():
            archive.writestr(zipfile.ZipInfo(name), encoded(content))
    for file, mode in (("set.tar", "w"), ("set.tgz", "w:gz")):
        with tarfile.open(folder / file, mode) as tape:
            for name, content in names.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(encoded(content))
                tape.addfile(entry, io.BytesIO(encoded(content)))


def read_archive(folder: Path, name: str) -> None:
    sound_set(
        Folder(path=str(folder / name), size="8", unreadable="skip" if name < "set.tb" else "refuse").load(folder)
    )
    Folder(path=str(folder / name)).survey()


def make_mapped(folder: Path) -> None:
    make_archives(folder)
    Folder(path=str(folder / "set.zip"), size="8", memory=0).load(folder)
    next(folder.glob("*.pictures")).rename(folder / "set.pictures")
    for extra in (*folder.glob(".*.lock"), folder / "set.tar", folder / "set.tgz"):
        extra.unlink()


def read_mapped(folder: Path, _: str) -> None:
    found = open_mapped(folder / "set.pictures")
    if found is not None:
        part = Part(found.rows, found.index.labels)
        sound(part, len(found.index.classes))
        assert found.rows.moments().shape == (len(part), 2, found.rows.shape[1])
        assert found.rows.digests().shape == (len(part), 32)
        assert found.index.tests.shape == (len(part),)
        assert all(isinstance(word, str) for word in (*found.index.classes, *found.index.notes))


def make_arrays(folder: Path) -> None:
    chance = random.Random(3)
    labels = np.arange(12) % 3
    both = {
        "x_train": pixels(chance, 12, 5, 4),
        "y_train": labels,
        "x_test": pixels(chance, 3, 5, 4),
        "y_test": labels[:3],
    }
    np.savez(folder / "plain.npz", **both)
    floats = pixels(chance, 12, 5, 4, 3) / np.float32(255)
    np.savez_compressed(folder / "packed.npz", images=floats, labels=labels[:, None], classes=np.array(["a", "b", "é"]))
    np.savez(folder / "objects.npz", images=np.array([Harm(os.mkdir, "run-now")], object), labels=labels)
    np.save(folder / "single.npy", labels)


def read_arrays(folder: Path, name: str) -> None:
    sound_set(Arrays(path=str(folder / name)).load(Path()))
