"""Full-size models of other libraries with weights of which none is neutral, in these libraries' own files."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from vitlab.foreign import foreign


def filled(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A model built without its library's slow first weights: norms about 1, layer scales about ½, all else drawn."""
    with torch.device("meta"):
        model = build()
    return drawn(model.to_empty(device="cpu"), seed)


def drawn(model: nn.Module, seed: int = 0) -> nn.Module:
    """The model with all its weights drawn anew."""
    chance = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            reach = 0.2 if parameter.ndim < 2 else 0.07
            around = 1.0 if "norm" in name and name.endswith("weight") else 0.5 * name.endswith(("gamma", "lambda1"))
            parameter.uniform_(around - reach, around + reach, generator=chance)
    return model.eval()


def cct_model(name: str, **arguments: Any) -> nn.Module:
    """A CCT of vit-pytorch's, whose names are those of the published weights; waves for positions stay as they are."""
    model = getattr(foreign("vit_pytorch.cct"), name)(**arguments)
    fixed = {key: weight.clone() for key, weight in model.named_parameters() if not weight.requires_grad}
    drawn(model).load_state_dict(fixed, strict=False)
    return model


def timm_model(name: str, **arguments: Any) -> nn.Module:
    return filled(lambda: foreign("timm").create_model(name, pretrained=False, **arguments))


def hugging(architecture: str, **config: Any) -> nn.Module:
    """A model of transformers, by the names of its class and of the fields of its configuration."""
    library = foreign("transformers")
    kind = getattr(library, architecture)
    return filled(lambda: kind(kind.config_class(**config)))


def pictures_of(side: int, count: int = 1, channels: int = 3) -> Tensor:
    return torch.randn(count, channels, side, side, generator=torch.Generator().manual_seed(7))


def as_safetensors(model: nn.Module, folder: Path) -> str:
    save_file(model.state_dict(), folder / "model.safetensors")
    return str(folder / "model.safetensors")


def as_pth(model: nn.Module, folder: Path) -> str:
    torch.save(model.state_dict(), folder / "weights.pth")
    return str(folder / "weights.pth")


def as_dino(model: nn.Module, folder: Path) -> str:
    """The layout of DINO's full checkpoints: the student in DistributedDataParallel, the teacher, both with a head."""
    backbone = {f"backbone.{name}": tensor for name, tensor in model.state_dict().items()}
    head = {"head.mlp.0.weight": torch.zeros(8, 8), "head.last_layer.weight_g": torch.zeros(8, 1)}
    other = {f"module.{name}": torch.zeros_like(tensor) for name, tensor in (backbone | head).items()}
    torch.save(
        {"student": other, "teacher": backbone | head, "epoch": 100, "args": argparse.Namespace(arch="vit_tiny")},
        folder / "checkpoint.pth",
    )
    return str(folder / "checkpoint.pth")


def as_mae(model: nn.Module, folder: Path) -> str:
    """The layout of MAE's pretraining checkpoints."""
    decoder = {"mask_token": torch.zeros(1, 1, 8), "decoder_blocks.0.norm1.weight": torch.zeros(8)}
    torch.save({"model": model.state_dict() | decoder}, folder / "mae_pretrain_vit.pth")
    return str(folder / "mae_pretrain_vit.pth")


def as_folder(model: Any, folder: Path) -> str:
    """Hugging Face's: config.json and model.safetensors."""
    foreign("transformers").utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    return str(folder)


def as_timm_folder(model: nn.Module, folder: Path, **arguments: Any) -> str:
    """timm's: what it pushes to the hub."""
    foreign("timm.models").save_for_hf(model, str(folder), model_args=arguments, safe_serialization=True)
    return str(folder)
