"""Pictures and labels from a NumPy .npz file, never unpickled."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from vitlab.data.dataset import DataSet, Part, split_test
from vitlab.data.survey import Survey
from vitlab.data.unpacking import check_unpacked
from vitlab.data.words import one_line, shown
from vitlab.errors import BadInput

MAGIC = b"\x93NUMPY"
# Training pictures and labels, then those for testing: the usual names, MedMNIST's, and one part alone.
FAMILIES = (
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
    ("images", "labels", "", ""),
)


@dataclass(frozen=True)
class Arrays:
    """Pictures and labels in an .npz file: x_train, y_train, x_test, y_test, or MedMNIST's names, or images, labels."""

    kind: ClassVar[str] = "npz"
    path: str = ""  # .npz file with pictures (n,y,x), (n,y,x,c) or (n,c,y,x) and integer labels
    test: float = 0.2  # share of each class held out for testing where the file has no test part

    def load(self, folder: Path) -> DataSet:
        """Read and check the arrays; the data folder is not looked at."""
        path = Path(self.path).expanduser()
        if not self.path or not path.is_file():
            raise BadInput(f"no .npz file at '{self.path}': give the path of one")
        notes: list[str] = []
        arrays = _read(path)
        family = next((names for names in FAMILIES if names[0] in arrays and names[1] in arrays), None)
        if family is None:
            choices = " or ".join(", ".join(name for name in names if name) for names in FAMILIES)
            raise BadInput(f"{path} holds {', '.join(arrays) or 'nothing'}: it needs {choices}")
        used = {name for name in family if name in arrays} | {"classes"}
        if unused := [name for name in arrays if name not in used]:
            notes.append(f"left out: {', '.join(unused)}")
        train = _checked(arrays, family[0], family[1], notes)
        test = _checked(arrays, family[2], family[3], notes) if used & set(family[2:]) else None
        if test is not None and test.pictures.shape[1:] != train.pictures.shape[1:]:
            sizes = [tuple(part.pictures.shape[1:]) for part in (train, test)]
            raise BadInput(f"{family[0]} has pictures of (c, y, x) {sizes[0]} and {family[2]} of {sizes[1]}")
        classes, train, test = _classes(arrays.get("classes"), train, test, notes)
        if test is None:
            train, test, held = split_test(train, self.test, classes)
            notes += held
        return DataSet(path.stem, classes, train, test, tuple(dict.fromkeys(notes)))

    def survey(self) -> Survey:
        """Count the pictures; they stay as large as they are."""
        data = self.load(Path())
        channels, height, width = data.train.pictures.shape[1:]
        counts = data.train.labels.bincount(minlength=len(data.classes)).tolist()
        sizes = Counter({(height, width): len(data.train)})
        return Survey(tuple(counts), len(data.test), sizes, channels, False)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open("rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of headers that are old: what is wrong is said in one line
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.lib.npyio.NpzFile):
                check_sizes(file, path.stat().st_size)
                found = {name: file[name] for name in file.files}
                if odd := [name for name, array in found.items() if not isinstance(array, np.ndarray)]:
                    raise BadInput(f"{shown(odd[0])} is no array")
                return found
    except Exception as error:  # zipfile and NumPy raise almost anything on a broken file
        reason = one_line(error)
        if "allow_pickle" in reason:
            reason = "it is no such file, or holds pickled objects, which are never read"
        raise BadInput(f"{path} cannot be read as .npz: {reason}") from None
    raise BadInput(f"{path} is a single array: save pictures and labels together with numpy.savez")


def check_sizes(file: np.lib.npyio.NpzFile, packed: int) -> None:
    """Whether each array is as large as its header says, and all of them no more than such a file can hold."""
    archive = file.zip
    assert archive is not None
    inside = archive.infolist()
    check_unpacked(packed, sum(entry.file_size for entry in inside))
    for entry in inside:
        with archive.open(entry) as stream:
            if stream.read(len(MAGIC)) != MAGIC:
                continue
        with archive.open(entry) as stream:
            version = np.lib.format.read_magic(stream)
            headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _, kind = headers.get(version, np.lib.format.read_array_header_2_0)(stream)
            if kind.hasobject:
                continue  # refused by NumPy, in words of its own
            if math.prod(shape) * kind.itemsize > entry.file_size:
                raise BadInput(f"{shown(entry.filename)} is shorter than its header says")


def _checked(arrays: Mapping[str, np.ndarray], pictures_name: str, labels_name: str, notes: list[str]) -> Part:
    for name in (pictures_name, labels_name):
        if name not in arrays:
            raise BadInput(f"{name} is missing beside {pictures_name if name == labels_name else labels_name}")
    pictures = _bytes(_planes(arrays[pictures_name], pictures_name, notes), pictures_name, notes)
    labels = arrays[labels_name]
    if labels.dtype.kind not in "iu":
        raise BadInput(f"{labels_name} is of type {labels.dtype}: labels must be integers")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BadInput(f"{labels_name} has shape {labels.shape}: one label per picture belongs there, (n,) or (n, 1)")
    if len(labels) != len(pictures):
        raise BadInput(f"{pictures_name} has {len(pictures)} pictures and {labels_name} {len(labels)} labels")
    if labels.min() < 0:
        raise BadInput(f"{labels_name} holds the negative label {labels.min()}")
    if labels.max() > np.iinfo(np.int64).max:
        raise BadInput(f"{labels_name} holds the label {labels.max()}, which is too large")
    return Part(torch.from_numpy(pictures), torch.from_numpy(labels.astype(np.int64)))


def _planes(array: np.ndarray, name: str, notes: list[str]) -> np.ndarray:
    """Bring pictures to (n, c, y, x): of the two possible axes for the channels, the shorter one is theirs."""
    if array.ndim not in (3, 4) or 0 in array.shape:
        raise BadInput(f"{name} has shape {array.shape}: (n, y, x), (n, y, x, c) or (n, c, y, x) belongs there, none 0")
    if array.ndim == 3:
        return array[:, None]
    if array.shape[1] == array.shape[3]:
        notes.append(f"{name} of shape {array.shape} read as (n, y, x, c)")
    return array if array.shape[1] < array.shape[3] else array.transpose(0, 3, 1, 2)


def _bytes(array: np.ndarray, name: str, notes: list[str]) -> np.ndarray:
    """Bring pixel values to uint8."""
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "fiu":
        raise BadInput(f"{name} is of type {array.dtype}: pixels must be uint8, or floats from 0 to 1")
    top = 1 if array.dtype.kind == "f" else 255
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= top):  # so written, NaN is refused too
        raise BadInput(f"{name} ({array.dtype}) holds values from {low:g} to {high:g}: 0 to {top} belong there")
    notes.append(f"pixels converted from {array.dtype} in 0..{top} to uint8")
    converted = np.empty(array.shape, np.uint8)
    for start in range(0, len(array), 1024):  # by parts, to spare memory
        converted[start : start + 1024] = np.rint(array[start : start + 1024] * (255 // top))
    return converted


def _classes(
    given: np.ndarray | None, train: Part, test: Part | None, notes: list[str]
) -> tuple[tuple[str, ...], Part, Part | None]:
    """The class names, and the labels as numbers from 0 to k-1."""
    values = train.labels.unique()
    if len(values) < 2:
        raise BadInput(f"every training label is {values[0]}: at least 2 classes are needed to learn from")
    if given is not None:
        return _named(given, train, test), train, test
    if test is not None:
        foreign = sorted(set(test.labels.unique().tolist()) - set(values.tolist()))
        if foreign:
            raise BadInput(f"the test part has labels that the training part lacks: {', '.join(map(str, foreign[:5]))}")
    names = tuple(str(value) for value in values.tolist())
    if values[-1] == len(values) - 1:
        return names, train, test
    notes.append(f"labels {names[0]} to {names[-1]} renumbered 0 to {len(names) - 1}")
    train = Part(train.pictures, torch.searchsorted(values, train.labels))
    test = test and Part(test.pictures, torch.searchsorted(values, test.labels))
    return names, train, test


def _named(given: np.ndarray, train: Part, test: Part | None) -> tuple[str, ...]:
    if given.dtype.kind not in "US" or given.ndim != 1:
        raise BadInput(f"classes is of type {given.dtype} and shape {given.shape}: a row of strings belongs there")
    highest = max(int(part.labels.max()) for part in (train, test) if part is not None)
    if highest >= len(given):
        raise BadInput(f"label {highest} is out of range: classes names {len(given)}")
    try:
        names = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in given]
    except (ValueError, SystemError):  # what NumPy and Python say of numbers that are no letters
        raise BadInput("classes holds names that are no text") from None
    return tuple(shown(name) for name in names)
