"""A published data set: find its files in any official layout, verify them, cache them once, fetch them if absent."""

import gzip
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vitlab.data.dataset import DataSet, Part
from vitlab.data.formats import Members
from vitlab.data.origins import Origin, Report
from vitlab.data.unpacking import Unpacked
from vitlab.data.words import counted, one_line
from vitlab.errors import BadInput

LARGEST = 1 << 29  # bytes of all files of a set, unpacked; that of the largest is a third of it


@dataclass(frozen=True)
class Form:
    """One official form of a set: its file names, where they usually lie, and how they are decoded."""

    members: tuple[str, ...]  # each may also lie gzipped, as NAME.gz
    decode: Callable[[Members], tuple[Part, Part]]
    folders: tuple[str, ...] = ()  # under the data folder, beside the data folder itself
    archives: tuple[str, ...] = ()  # name patterns of the tar archives that hold the members


@dataclass(frozen=True)
class Published:
    """What is known of a published set before a byte of it is read."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # channels, height, width
    counts: tuple[int, int]  # training and test pictures
    layouts: tuple[Form, ...]
    origins: tuple[Origin, ...] = ()
    digest: str = ""  # SHA-256 of the decoded content, as `digest` computes it
    files: Mapping[str, str] = field(default_factory=dict)  # SHA-256 of member files, where `digest` is not known

    def cache(self, folder: Path) -> Path:
        """The file that holds the verified set in the data folder."""
        return folder / f"{self.name}.safetensors"


def digest(train: Part, test: Part) -> str:
    """SHA-256 of training pictures, training labels, test pictures and test labels, one byte each, in that order."""
    total = hashlib.sha256()
    for part in (train, test):
        for some in part.pictures.split(1024):
            total.update(some.contiguous().numpy().data)
        total.update(part.labels.to(torch.uint8).numpy().data)
    return total.hexdigest()


def load(published: Published, folder: Path) -> DataSet:
    """Read the set from the cache or from its official files, verified either way."""
    cache = published.cache(folder)
    notes: tuple[str, ...] = ()
    if cache.exists():
        train, test = read_cache(published, cache)
    else:
        found = read_files(published, folder)
        if found is None:
            raise absent(published, folder)
        train, test, place = found
        try:
            write_cache(cache, train, test)
        except OSError as error:
            notes = (f"read from {place} each time: {cache} cannot be written ({error.strerror or error})",)
    return DataSet(published.name, published.classes, train, test, notes)


def fetch(published: Published, folder: Path, report: Report) -> Path:
    """Make sure the verified set is in the cache: as it stands, from files lying there, or from its origins."""
    cache = published.cache(folder)
    if cache.exists():
        try:
            read_cache(published, cache)
            return cache
        except BadInput as error:
            report(str(error))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = _files_or_none(published, folder, report) or _fetch_content(published, folder, report)
        write_cache(cache, *content)
    except OSError as error:
        raise BadInput(f"{cache} cannot be written: {error.strerror or error}") from None
    return cache


def read_files(published: Published, folder: Path) -> tuple[Part, Part, Path] | None:
    """Decode and verify the official files in the folder, with where they lay; None where there are none."""
    faults = []
    for layout, place in places(published, folder):
        try:
            members = _read_archive(place, layout) if place.is_file() else _read_folder(place, layout)
            return *_verified(published, layout, members), place
        except BadInput as error:
            faults.append(f"{place}: {error}")
    if faults:
        more = f" (and {counted(len(faults) - 1, 'more place')})" if len(faults) > 1 else ""
        raise BadInput(f"{published.name} cannot be read from {faults[0]}{more}")
    return None


def places(published: Published, folder: Path) -> Iterator[tuple[Form, Path]]:
    """The folders and archives under the data folder where files of the set lie, in the order they are tried."""
    for layout in published.layouts:
        for place in (folder, *(folder / name for name in layout.folders)):
            if any(member_file(place, name) for name in layout.members):
                yield layout, place
        for place in (folder, folder / published.name):
            for pattern in layout.archives:
                yield from ((layout, archive) for archive in sorted(place.glob(pattern)) if archive.is_file())


def read_cache(published: Published, path: Path) -> tuple[Part, Part]:
    """Read the cached set, memory-mapped, and verify its content against the digest."""
    advice = f"delete it and run 'vitlab data get {published.name}'"
    try:
        with safe_open(path, framework="pt") as file:
            expected = published.digest or (file.metadata() or {}).get("digest", "")
            train, test = (_cached_part(file.get_tensor, part) for part in ("train", "test"))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise BadInput(f"{path} is damaged ({one_line(error)}): {advice}") from None
    fault = _fault(published, train, test)
    if fault or digest(train, test) != expected:
        raise BadInput(f"{path} is damaged ({fault or 'its content does not match its SHA-256'}): {advice}")
    return train, test


def write_cache(path: Path, train: Part, test: Part) -> None:
    """Write the cache in one step: whoever reads `path` finds all of it or nothing, whenever this is killed."""
    tensors = {}
    for name, part in (("train", train), ("test", test)):
        tensors[f"{name}_pictures"] = part.pictures[:].contiguous()
        tensors[f"{name}_labels"] = part.labels.to(torch.uint8)
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}-", dir=path.parent) as temporary:
        written = Path(temporary) / path.name
        with written.open("wb") as file:
            file.write(save(tensors, metadata={"digest": digest(train, test)}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(written, path)


def absent(published: Published, folder: Path) -> BadInput:
    """The refusal of a set of which nothing lies in the folder."""
    name = published.name
    return BadInput(f"{name} is not there: run 'vitlab data get {name}' {by_hand(published, folder)}")


def by_hand(published: Published, folder: Path) -> str:
    """How to do without fetching, as the end of a sentence."""
    archives = [name for layout in published.layouts for name in layout.archives if "*" not in name]
    return f"or put {' or '.join(archives) or ', '.join(published.layouts[0].members)} in {folder}"


def _files_or_none(published: Published, folder: Path, report: Report) -> tuple[Part, Part] | None:
    try:
        found = read_files(published, folder)
    except BadInput as error:
        report(str(error))
        return None
    if found is None:
        return None
    report(f"found in {found[2]}")
    return found[:2]


def _fetch_content(published: Published, folder: Path, report: Report) -> tuple[Part, Part]:
    faults = []
    for origin in published.origins:
        with tempfile.TemporaryDirectory(prefix=f".{published.name}-", dir=folder) as temporary:
            try:
                origin.fetch(Path(temporary), report)
                found = read_files(published, Path(temporary))
                if found is not None:
                    return found[:2]
                fault = "it holds none of the files"
            except BadInput as error:
                fault = str(error).replace(f"{temporary}/", "").replace(temporary, "what it sent")
        report(f"{origin}: {fault}")
        faults.append(f"{origin} ({fault})")
    raise BadInput(
        f"{published.name} could not be fetched: tried {'; '.join(faults)}; try again {by_hand(published, folder)}"
    )


def _verified(published: Published, layout: Form, members: Members) -> tuple[Part, Part]:
    for name, data in members.items():
        if name in published.files and hashlib.sha256(data).hexdigest() != published.files[name]:
            raise BadInput(f"{name} does not match its published SHA-256: truncated, altered or of another set")
    train, test = layout.decode(members)
    fault = _fault(published, train, test)
    if not fault and published.digest and digest(train, test) != published.digest:
        fault = "the content does not match its SHA-256"
    if fault:
        raise BadInput(f"{fault}: truncated, altered or of another set")
    return train, test


def _fault(published: Published, train: Part, test: Part) -> str:
    """What in the shapes and labels contradicts what is known of the set; empty where nothing does."""
    for part, count in zip((train, test), published.counts, strict=True):
        if part.pictures.dtype != torch.uint8 or tuple(part.pictures.shape) != (count, *published.shape):
            return f"pictures of shape {tuple(part.pictures.shape)} where {(count, *published.shape)} belong"
        classes = len(published.classes)
        if tuple(part.labels.shape) != (count,) or part.labels.min() < 0 or part.labels.max() >= classes:
            return f"labels that are not {count} numbers below {classes}"
    return ""


def _cached_part(tensor: Callable[[str], Tensor], name: str) -> Part:
    return Part(tensor(f"{name}_pictures"), tensor(f"{name}_labels").long())


def member_file(folder: Path, name: str) -> Path | None:
    """The member's file, plain or gzipped, where it exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _read_folder(folder: Path, layout: Form) -> Members:
    members: dict[str, bytes] = {}
    for name in layout.members:
        path = member_file(folder, name)
        if path is None:
            raise BadInput(f"{name} is missing")
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                members[name] = _read_some(file, members)
        except (OSError, EOFError, zlib.error) as error:
            raise BadInput(f"{path.name} cannot be read: {one_line(error)}") from None
    return members


def _read_some(file: IO[bytes] | gzip.GzipFile, others: Members) -> bytes:
    """All of a file, if it and the others together are no larger than any named set is."""
    left = LARGEST - sum(map(len, others.values()))
    content = file.read(left + 1)
    if len(content) > left:
        raise BadInput(f"the files hold more than {LARGEST / 1e6:.0f} MB, which is more than any named set")
    return content


def _read_archive(archive: Path, layout: Form) -> Members:
    """Read the members from a tar archive in one pass, without unpacking anything to disk."""
    found: dict[str, bytes] = {}
    try:
        with open(archive, "rb") as packed, tarfile.open(fileobj=Unpacked(packed), mode="r:") as tar:
            for entry in tar:
                name = os.path.basename(entry.name)
                file = tar.extractfile(entry) if entry.isfile() and name in layout.members else None
                if file is not None:
                    found[name] = _read_some(file, found)
    except BadInput:
        raise
    except Exception as error:  # a broken archive raises almost anything
        raise BadInput(f"the archive cannot be read: {one_line(error)}") from None
    missing = [name for name in layout.members if name not in found]
    if missing:
        raise BadInput(f"{missing[0]} is missing")
    return {name: found[name] for name in layout.members}
