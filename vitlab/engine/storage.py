"""Files that are whole or not there: written beside, flushed, then renamed; checked when read. Nothing is pickled."""

import errno
import fcntl
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from vitlab.errors import BadInput, shorten
from vitlab.settings import parse_json

ON_DISK_TROUBLE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EMFILE: "too many files are open",
    errno.ENAMETOOLONG: "the name is too long",
}


def explain(error: OSError, what: str) -> BadInput:
    """An operating-system error as one line."""
    return BadInput(f"{what}: {ON_DISK_TROUBLE.get(error.errno or 0, error.strerror or str(error))}")


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise explain(error, f"cannot make {path}") from error


def write(path: Path, content: bytes) -> None:
    """Put `content` at `path` at once or not at all; what was there before stays whole until then."""
    try:
        if path.is_dir():  # a link to one would be replaced
            raise BadInput(f"cannot write {path}: it is a folder")
        temporary = path.with_name(f".{path.name}.part")
        with alone_with(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise explain(error, f"cannot write {path}") from error


@contextmanager
def alone_with(path: Path) -> Iterator[BinaryIO]:
    """An empty file that no other process writes meanwhile; what a process left that was killed is overwritten."""
    while True:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_at(path, file):
                continue  # another has put it in its place since
            if os.fstat(file.fileno()).st_size:
                file.truncate(0)
            try:
                yield file
            except OSError:
                with suppress(OSError):
                    path.unlink()
                raise
            return


def is_at(path: Path, file: BinaryIO) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def write_json(path: Path, content: Any) -> None:
    write(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
    except ValueError as error:
        raise BadInput(f"{path} is damaged: not JSON ({shorten(str(error), 160)})") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Tensors as safetensors, with `facts` and a checksum of everything in the header."""
    cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    write(path, save(cpu, {"vitlab": text, "checksum": str(checksum(cpu, text))}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write_tensors` wrote, or one line that says what is wrong with the file."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
    except (SafetensorError, ValueError, RuntimeError) as error:
        if "unable to open file" in str(error):  # torch maps it, and does not say so by an OSError
            raise BadInput(f"cannot read {path}: {shorten(str(error).rpartition(': ')[2], 160)}") from None
        raise BadInput(f"{path} is damaged or cut short: {shorten(str(error), 160)}") from None
    text = header.get("vitlab", "")
    if header.get("checksum") != str(checksum(tensors, text)):
        raise BadInput(f"{path} is damaged: its checksum does not fit its content")
    try:
        return tensors, dict(parse_json(text))
    except (ValueError, TypeError):
        raise BadInput(f"{path} is damaged: what it says of itself is no JSON object") from None


def checksum(tensors: Mapping[str, Tensor], text: str) -> int:
    """CRC-32 over names, types, shapes, bytes and facts, in order of name."""
    value = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        value = zlib.crc32(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.contiguous().flatten().view(torch.uint8).numpy().data, value)
    return value
