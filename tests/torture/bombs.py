"""Small files that say, or unpack to, far more than memory holds."""

import gzip
import io
import struct
import tarfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from vitlab.data import Arrays, Folder, read_picture
from vitlab.transfer.files import read_file

from .readers import Reader
from .sets import BATCHES, IDX, make_batches, make_idx, read_named

MEGA = 1 << 20
LARGE = 3 << 10  # megabytes that one of them unpacks to


def zeros(megabytes: int) -> bytes:
    """A deflate stream of so many megabytes of zeros: one piece of it, again and again."""
    packer = zlib.compressobj(9, wbits=-15)
    piece = packer.compress(bytes(64 * MEGA)) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * (megabytes // 64) + b"\x03\0"


def gzipped(first: bytes, megabytes: int) -> bytes:
    return gzip.compress(first) + gzip.compress(bytes(64 * MEGA), 9) * (megabytes // 64)


def zipped(name: str, packed: bytes, size: int) -> bytes:
    """A .zip of one deflated member of which it says that it has `size` bytes."""
    sizes = struct.pack("<III", 0, len(packed), size)
    common = struct.pack("<HHHHH", 20, 0, 8, 0, 0x21) + sizes + struct.pack("<HH", len(name), 0)
    local = b"PK\3\4" + common + name.encode() + packed
    central = b"PK\1\2" + struct.pack("<H", 20) + common + bytes(14) + name.encode()
    return local + central + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)


def png(mode: str, width: int, height: int) -> bytes:
    """A black picture, as large as is read at all."""
    content = io.BytesIO()
    Image.new(mode, (width, height)).save(content, "PNG", compress_level=1)
    return content.getvalue()


def taped(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tape:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tape.addfile(entry, io.BytesIO(content))


def header(name: str) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = LARGE * MEGA
    return entry.tobuf()


def idx(path: Path) -> None:
    path.mkdir()
    make_idx(path, ".gz")
    start = b"\0\0\x08\x03" + struct.pack(">III", 60_000, 1 << 8, 1 << 8)
    (path / "train-images-idx3-ubyte.gz").write_bytes(gzipped(start, LARGE))


def tape(path: Path) -> None:
    path.mkdir()
    (path / "set.tgz").write_bytes(gzipped(header("set/train-images-idx3-ubyte"), LARGE))


def names(path: Path) -> None:
    path.mkdir()
    make_batches(path)
    (path / "data").write_bytes(b"\x80\x02Nr\xff\xff\xff\xff0}.")


def checkpoint(path: Path) -> None:
    torch.save({"norm.weight": torch.zeros(1).expand(10**5, 10**5)}, path)


def picture(mode: str, path: Path) -> None:
    path.write_bytes(png(mode, 9400, 9400))


def pictures(path: Path) -> None:
    taped(path, dict.fromkeys(("a/1.png", "b/1.png"), png("RGBA", 9400, 9400)))


def packed(name: str, size: int, path: Path) -> None:
    path.write_bytes(zipped(name, zeros(LARGE), size))


MAKERS: dict[str, Callable[[Path], None]] = {
    "idx": idx, "tape": tape, "names": names, "stretched.pth": checkpoint, "large.tar": pictures,
    "honest.zip": partial(packed, "a/1.png", LARGE * MEGA), "lying.zip": partial(packed, "a/1.png", 1000),
    "honest.npz": partial(packed, "x_train.npy", LARGE * MEGA), "lying.npz": partial(packed, "x_train.npy", 1000),
    "weights.pth": partial(packed, "x/data/0", LARGE * MEGA),
    "pictures.tgz": lambda path: path.write_bytes(gzipped(header("a/1.png"), LARGE)) and None,
    **{f"{mode.replace(';', '')}.png": partial(picture, mode) for mode in ("1", "P", "RGB", "RGBA", "I;16")},
}  # fmt: skip


def read(folder: Path, name: str) -> None:
    path = folder / name
    if name in ("idx", "tape"):
        read_named(IDX, path, name)
    elif name == "names":
        read_named(BATCHES, path, name)
    elif name.endswith(".png"):
        read_picture(path, 3, 8, 8)
    elif name.endswith(".npz"):
        Arrays(path=str(path)).load(Path())
    elif name.endswith(".pth"):
        read_file(path)
    else:
        Folder(path=str(path), size="8").load(folder)


BOMBS = Reader("bombs", lambda folder: None, read, tuple(MAKERS))
