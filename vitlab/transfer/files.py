"""Files of weights, read as numbers: safetensors, or pickles by torch's reader that admits tensors and runs nothing."""

import argparse
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vitlab.engine.storage import explain, read_json
from vitlab.errors import BadInput, shorten

PICKLES = (".bin", ".pth", ".pt", ".ckpt", ".tar")
WHOLE = ("model.safetensors", "pytorch_model.bin")  # of a folder, in this order
WRAPPERS = ("teacher", "model", "state_dict", "module", "student", "model_ema")  # where a checkpoint keeps its weights
PREFIXES = ("module.", "backbone.", "_orig_mod.")


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The weights in a folder: one file, or the parts that an index lists."""
    for name in WHOLE:
        if (folder / name).is_file():
            return read_file(folder / name)
        if (folder / f"{name}.index.json").is_file():
            return read_parts(folder / f"{name}.index.json")
    raise BadInput(f"no weights in {folder}: there is no {' or '.join(WHOLE)} in it")


def read_parts(index: Path) -> dict[str, Tensor]:
    content = read_json(index)
    places = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(places, dict) or not all(Path(str(name)[:300]).name == name for name in places.values()):
        raise BadInput(f"{index} is no index of weights: its weight_map must name files beside it")
    found: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        found |= read_file(index.parent / name)
    return found


def read_file(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by their names, without what a checkpoint wraps around them."""
    if path.suffix == ".safetensors":
        return unwrapped(read_safetensors(path), path)
    if path.suffix in PICKLES:
        return unwrapped(read_pickle(path), path)
    raise BadInput(f"{path} is no file of weights: it should end in .safetensors or {', '.join(PICKLES)}")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise BadInput(f"{path} is damaged or cut short: {shorten(str(error), 160)}") from None


def read_pickle(path: Path) -> Any:
    """A checkpoint of torch.save's; one that would run code is refused before it does.

    The one type admitted beside tensors and containers is argparse's, in which DINO's checkpoints keep their options.
    """
    try:
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles of another make, which are read or refused all the same
            check_packing(path)
            return torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} is refused, since it holds more than numbers: {reason(error)}") from None
    except Exception as error:  # a broken checkpoint raises almost anything
        raise BadInput(f"{path} is damaged, or no checkpoint of torch: {reason(error)}") from None


def check_packing(path: Path) -> None:
    """Torch packs nothing: a checkpoint that holds more than its own size was made to fill the memory."""
    if is_zipfile(path):
        with ZipFile(path) as packed:
            inside = sum(entry.file_size for entry in packed.infolist())
        if inside > path.stat().st_size:
            raise ValueError(f"it says that it holds {inside:,} bytes, and has {path.stat().st_size:,}")


def reason(error: Exception) -> str:
    """What torch has to say, without its advice on how to read the file all the same."""
    text = " ".join(str(error).split())
    named = re.search(r"GLOBAL ([\w.]+)", text)
    if named:
        return f"it would call {named[1]}"
    text = text.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
    return shorten(text, 120) or type(error).__name__


def is_plain(value: Tensor) -> bool:
    """Whether its numbers are there, each its own: a header may stretch one number over any shape."""
    dense = value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized
    return dense and value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def unwrapped(content: Any, path: Path) -> dict[str, Tensor]:
    """{'teacher': {'module.backbone.blocks…': …}} → {'blocks…': …}; in DINO's it is the teacher that is kept."""
    while isinstance(content, Mapping) and not any(isinstance(value, Tensor) for value in content.values()):
        inner = next((content[name] for name in WRAPPERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            raise BadInput(f"{path} holds no weights: it has {shorten(', '.join(map(str, content)) or 'nothing')}")
        content = inner
    if not isinstance(content, Mapping):
        raise BadInput(f"{path} holds no weights, but {type(content).__name__}")
    found = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    if odd := [name for name, value in found.items() if not is_plain(value)]:
        raise BadInput(f"{path}: {shorten(odd[0])} is no plain tensor, which weights are")
    while prefix := next((start for start in PREFIXES if any(name.startswith(start) for name in found)), None):
        found = {name.removeprefix(prefix): tensor for name, tensor in found.items()}
    return found
