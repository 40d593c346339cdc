"""The published file formats of the named sets, from bytes to checked arrays: idx, CIFAR batches, PNG sheets."""

import io
import math
import pickle
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from PIL import Image

from vitlab.data.dataset import Part
from vitlab.data.words import one_line
from vitlab.errors import BadInput
from vitlab.settings import parse_json

Members = Mapping[str, bytes]  # file name → contents

IDX_MEMBERS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
SHEET_MEMBERS = (
    *(f"data_batch_{index}.png" for index in range(1, 6)),
    "test_batch.png",
    "train_lables.json",  # spelt so in the package
    "test_lables.json",
)


def read_idx(data: bytes, name: str) -> np.ndarray:
    """Read an idx file of unsigned bytes: two zeros, the type 8, the rank, the sizes in big-endian, the values."""
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise BadInput(f"{name} is not an idx file of unsigned bytes")
    rank = data[3]
    start = 4 + 4 * rank
    sizes = [int.from_bytes(data[place : place + 4], "big") for place in range(4, start, 4)]
    if not 1 <= rank <= 4 or 0 in sizes:
        raise BadInput(f"{name} announces {rank} dimensions, or nothing in one: 1 to 4 belong there")
    if len(data) != start + math.prod(sizes):
        raise BadInput(f"{name} has {len(data)} bytes where its header announces {start + math.prod(sizes)}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(sizes)


def decode_idx(members: Members) -> tuple[Part, Part]:
    """Decode the four idx files of MNIST and Fashion-MNIST."""
    arrays = [read_idx(members[name], name) for name in IDX_MEMBERS]
    for name, array, rank in zip(IDX_MEMBERS, arrays, (3, 1, 3, 1), strict=True):
        if array.ndim != rank:
            raise BadInput(f"{name} has {array.ndim} dimensions where {rank} belong")
    train, train_labels, test, test_labels = arrays
    return _part(train[:, None], train_labels), _part(test[:, None], test_labels)


def decode_binary(members: Members, label_bytes: int) -> tuple[Part, Part]:
    """Decode CIFAR binary batches: per picture its label bytes (the last one counts), then red, green, blue planes."""
    records = []
    for name, data in members.items():
        if len(data) % (label_bytes + 3072):
            raise BadInput(f"{name} is not a whole number of {label_bytes + 3072}-byte records")
        records.append((name, np.frombuffer(data, np.uint8).reshape(-1, label_bytes + 3072)))
    batches = [(name, record[:, label_bytes:], record[:, label_bytes - 1]) for name, record in records]
    return _join(batches)


def decode_batches(members: Members) -> tuple[Part, Part]:
    """Decode CIFAR python batches: dictionaries with `data` (n, 3072) and `labels` or, in CIFAR-100, `fine_labels`."""
    batches = []
    for name, data in members.items():
        batch = read_batch(data, name)
        pixels, labels = batch.get(b"data"), batch.get(b"labels", batch.get(b"fine_labels"))
        if not isinstance(pixels, _Array) or not isinstance(labels, list):
            raise BadInput(f"{name} is not a CIFAR batch: it lacks its data or its labels")
        batches.append((name, pixels.values(name), _labels(labels, name)))
    return _join(batches)


def decode_sheets(members: Members) -> tuple[Part, Part]:
    """Decode CIFAR-10's PNG sheets: one row per picture, the 1024 columns its pixels row by row; labels as JSON."""
    sheets = {name: _sheet(members[name], name) for name in SHEET_MEMBERS if name.endswith(".png")}
    train = np.concatenate([sheet for name, sheet in sheets.items() if name.startswith("data")])
    train_labels, test_labels = (_labels(_json(members[name], name), name) for name in SHEET_MEMBERS[-2:])
    return _part(train, train_labels), _part(sheets["test_batch.png"], test_labels)


class _Array:
    """Stands for a pickled NumPy array: it takes the array's state as plain values and runs nothing of it."""

    state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def values(self, name: str) -> np.ndarray:
        """The (n, 3072) bytes of the array."""
        match self.state:
            case (_, (int(count), 3072), _Type(code=b"u1"), False | 0, bytes(data)) if len(data) == count * 3072:
                return np.frombuffer(data, np.uint8).reshape(count, 3072)
        raise BadInput(f"{name} is not a CIFAR batch: its data is no (n, 3072) array of bytes")


class _Type:
    """Stands for a pickled NumPy element type, of which only the code is kept."""

    def __init__(self, code: bytes, *_: object) -> None:
        self.code = code

    def __setstate__(self, _: object) -> None:
        """Leave out byte order and alignment: single bytes have neither."""


def _reconstruct(*_: object) -> _Array:
    return _Array()


class _BatchReader(pickle._Unpickler):
    """Admits the three names that the official batches hold, each replaced by a harmless stand-in.

    It is Python's reader in Python: the one in C makes room for as many things as a file says that it will name.
    """

    ADMITTED = {  # noqa: RUF012 - never written to
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
    }

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.ADMITTED:
            raise BadInput(f"it asks for {module}.{name}, which no official batch does")
        return self.ADMITTED[module, name]


def read_batch(data: bytes, name: str) -> dict:
    """Unpickle an official CIFAR batch, admitting plain values and byte arrays, refusing everything else."""
    try:
        batch = _BatchReader(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises almost anything
        raise BadInput(f"{name} is not an official CIFAR batch: {one_line(error)}") from None
    if not isinstance(batch, dict):
        raise BadInput(f"{name} is not an official CIFAR batch: it holds a {type(batch).__name__}, not a dictionary")
    return batch


def _sheet(data: bytes, name: str) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as sheet:
            size, mode = sheet.size, sheet.mode
            pixels = np.asarray(sheet)
    except Exception as error:  # a broken picture raises almost anything
        raise BadInput(f"{name} is not a readable PNG sheet: {one_line(error)}") from None
    if size[0] != 1024 or mode != "RGB":
        raise BadInput(f"{name} is {size[0]}×{size[1]} {mode} where 1024 columns of RGB belong")
    return pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def _json(data: bytes, name: str) -> list:
    try:
        labels = parse_json(data)
    except ValueError:
        raise BadInput(f"{name} is not JSON") from None
    if not isinstance(labels, list):
        raise BadInput(f"{name} is not a list of labels")
    return labels


def _labels(labels: list, name: str) -> np.ndarray:
    if not all(isinstance(label, int) and 0 <= label < 256 for label in labels):
        raise BadInput(f"{name} holds labels that are no numbers from 0 to 255")
    return np.array(labels, np.uint8)


def _join(batches: Sequence[tuple[str, np.ndarray, np.ndarray]]) -> tuple[Part, Part]:
    """Join the training batches in order; the batch named test is the test part."""
    parts = []
    for wanted in (False, True):
        chosen = [batch for batch in batches if batch[0].startswith("test") == wanted]
        pixels = np.concatenate([batch[1] for batch in chosen]).reshape(-1, 3, 32, 32)
        parts.append(_part(pixels, np.concatenate([batch[2] for batch in chosen])))
    return parts[0], parts[1]


def _part(pictures: np.ndarray, labels: np.ndarray) -> Part:
    if len(pictures) != len(labels):
        raise BadInput(f"{len(pictures)} pictures have {len(labels)} labels")
    return Part(torch.from_numpy(np.array(pictures, order="C")), torch.from_numpy(labels.astype(np.int64)))
