"""Ours out: a run in timm's or Hugging Face's own format, and how it is loaded there."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from vitlab.data.prepared import Card
from vitlab.engine.run import Run
from vitlab.engine.storage import make_folder, read_json, write, write_json
from vitlab.errors import BadInput
from vitlab.model import Network, VisionTransformer, ViT
from vitlab.model.attention import Softmax
from vitlab.model.heads import ClassToken, Distilled, Mean
from vitlab.model.positions import NoPositions, Rotary
from vitlab.model.tokens import ConvPatches, LinearPatches
from vitlab.transfer.mapping import Tensors, table
from vitlab.transfer.names import DINOV2, GATED, TAUGHT, TIMM, VIT, Family
from vitlab.transfer.sources import library

QKV_BIAS = "blocks.0.attention.qkv.bias"


@dataclass(frozen=True, eq=False)
class Leaving:
    """A model of ours on its way out, its parts known to have counterparts."""

    model: ViT
    network: VisionTransformer
    card: Card
    patch: int
    heads: int
    hidden: int  # features of its MLPs

    @property
    def state(self) -> Tensors:
        """Its weights, with filters as those of a convolution, and a table of positions where it has none."""
        state = dict(self.network.state_dict())
        filters = state["tokens.embed.weight"]
        state["tokens.embed.weight"] = filters.view(len(filters), -1, self.patch, self.patch)
        if isinstance(self.model.positions, NoPositions):
            state["positions.table"] = filters.new_zeros(self.network.layout.tokens, self.model.width)
        return state


def to_timm(run: Run, folder: Path) -> None:
    """FOLDER as timm writes one: timm.create_model('local-dir:FOLDER', pretrained=True) loads it."""
    leaving = leave(run, "timm", (ClassToken, Mean, Distilled))
    model, card = leaving.model, leaving.card
    distilled = isinstance(model.head, Distilled)
    demand(model.block.epsilon == 1e-6, f"block.epsilon {model.block.epsilon:g}", "timm, whose norms add 1e-06")
    demand(model.block.activation != "swiglu", "block.activation swiglu", "what timm keeps in a file")
    demand(not (distilled and model.registers), "head distilled with registers", "timm")
    arguments: dict[str, Any] = {
        "img_size": [card.height, card.width], "patch_size": leaving.patch, "in_chans": card.channels,
        "embed_dim": model.width, "depth": model.depth, "num_heads": leaving.heads,
        "mlp_ratio": leaving.hidden / model.width, "qkv_bias": leaving.network.state_dict().keys() >= {QKV_BIAS},
        "init_values": model.block.layer_scale or None, "act_layer": model.block.activation,
    }  # fmt: skip
    if not distilled:
        pool = "avg" if isinstance(model.head, Mean) else "token"
        arguments |= {
            "class_token": pool == "token", "global_pool": pool, "fc_norm": False, "final_norm": model.final_norm,
            "reg_tokens": model.registers,
        }  # fmt: skip
    demand(model.final_norm or not distilled, "final_norm no", "timm")
    config = {
        "architecture": "deit_base_distilled_patch16_224" if distilled else "vit_base_patch16_224",
        "num_classes": len(card.classes),
        "num_features": model.width,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [card.channels, card.height, card.width], "fixed_input_size": True, "crop_pct": 1.0,
            "interpolation": "bicubic", "mean": list(card.mean), "std": list(card.deviation),
            "num_classes": len(card.classes), "first_conv": "patch_embed.proj",
            "classifier": ["head", "head_dist"] if distilled else "head",
        },
        "label_names": list(card.classes),
    }  # fmt: skip
    tensors = renamed(TIMM, leaving) | tokens_out(TIMM, leaving, everywhere=True) | heads_out(TIMM, leaving)
    write_folder(folder, {"config.json": config}, tensors)


def load_timm(folder: Path) -> Callable[[Tensor], Tensor]:
    """What such a folder is in timm: normalised pictures → logits."""
    model: Callable[[Tensor], Tensor] = library("timm").create_model(f"local-dir:{folder}", pretrained=True).eval()
    return model


def to_hf(run: Run, folder: Path) -> None:
    """FOLDER as Hugging Face's transformers write one: ARCHITECTURE.from_pretrained('FOLDER') loads it."""
    leaving = leave(run, "transformers", (ClassToken, Distilled))
    model, card = leaving.model, leaving.card
    gated, distilled = model.block.activation == "swiglu", isinstance(model.head, Distilled)
    dino = bool(gated or model.registers or model.block.layer_scale)
    demand(model.final_norm, "final_norm no", "transformers")
    demand(not (distilled and dino), "head distilled with registers, layer_scale or swiglu", "transformers")
    demand(not dino or card.height == card.width, "registers, layer_scale or swiglu on pictures that are not square",
           "transformers")  # fmt: skip
    config: dict[str, Any] = {
        "hidden_size": model.width, "num_hidden_layers": model.depth, "num_attention_heads": leaving.heads,
        "num_channels": card.channels, "patch_size": leaving.patch, "layer_norm_eps": model.block.epsilon,
        "image_size": card.height if card.height == card.width else [card.height, card.width],
        "hidden_act": "gelu" if gated else model.block.activation,
        "qkv_bias": leaving.network.state_dict().keys() >= {QKV_BIAS},
        "id2label": {str(i): name for i, name in enumerate(card.classes)},
        "label2id": {name: i for i, name in enumerate(card.classes)},
        "dtype": "float32",
    }  # fmt: skip
    if dino:
        family, kind = GATED if gated else DINOV2, "Dinov2WithRegisters" if model.registers else "Dinov2"
        config |= {"model_type": "dinov2_with_registers" if model.registers else "dinov2", "use_swiglu_ffn": gated}
        config |= {"mlp_ratio": whole_ratio(leaving, gated), "layerscale_value": 1.0}
        config |= {"num_register_tokens": model.registers} if model.registers else {}
    else:
        family, kind = (TAUGHT, "DeiT") if distilled else (VIT, "ViT")
        config |= {"model_type": kind.lower(), "intermediate_size": leaving.hidden}
    architecture = f"{kind}ForImageClassification{'WithTeacher' if distilled else ''}"
    encoder = renamed(family, leaving) | tokens_out(family, leaving, everywhere=False) | more_of(family, leaving)
    tensors = {f"{config['model_type']}.{name}": tensor for name, tensor in encoder.items()}
    tensors |= joined_head(leaving) if dino else heads_out(family, leaving)
    pictures = {
        "image_processor_type": "ViTImageProcessor", "do_resize": True, "resample": 3, "do_rescale": True,
        "size": {"height": card.height, "width": card.width}, "rescale_factor": 1 / 255, "do_normalize": True,
        "image_mean": list(card.mean), "image_std": list(card.deviation),
    }  # fmt: skip
    files = {"config.json": config | {"architectures": [architecture]}, "preprocessor_config.json": pictures}
    write_folder(folder, files, tensors)


def load_hf(folder: Path) -> Callable[[Tensor], Tensor]:
    """What such a folder is in transformers: normalised pictures → logits."""
    transformers, (architecture,) = library("transformers"), read_json(folder / "config.json")["architectures"]
    transformers.utils.logging.disable_progress_bar()
    loaded = getattr(transformers, architecture).from_pretrained(folder).eval()
    return lambda pictures: loaded(pictures).logits


def whole_ratio(leaving: Leaving, gated: bool) -> int:
    """DINOv2's whole number of widths that gives an MLP of this size; of gated ones it takes ⅔, in eights."""
    width = leaving.model.width
    for ratio in range(1, 33):
        if leaving.hidden == ((width * ratio * 2 // 3 + 7) // 8 * 8 if gated else width * ratio):
            return ratio
    raise BadInput(
        f"block.mlp {leaving.model.block.mlp:g} gives {leaving.hidden} features, which no mlp_ratio of theirs does"
    )


def demand(held: bool, part: str, library_: str) -> None:
    if not held:
        raise BadInput(f"{part} has no counterpart in {library_}, so this model stays in vitlab")


def leave(run: Run, name: str, heads: tuple[type, ...]) -> Leaving:
    """The run's model, if the other library has all of its parts; else the first that it has not."""
    network: Network = run.model()
    model = run.experiment.model
    demand(isinstance(model, ViT), f"model {model.kind}", name)
    assert isinstance(model, ViT)
    assert isinstance(network, VisionTransformer)
    tokens, attention, block = model.tokens, model.attention, model.block
    plain = isinstance(tokens, ConvPatches) or (isinstance(tokens, LinearPatches) and not tokens.twice)
    demand(plain, f"tokens {tokens.kind}", name)
    demand(not isinstance(model.positions, Rotary), f"positions {model.positions.kind}", name)
    demand(isinstance(attention, Softmax), f"attention {attention.kind}", name)
    assert isinstance(attention, Softmax)
    for part, own, usual in (
        ("attention.project", attention.project, True), ("attention.scale", attention.scale, "head-width"),
        ("attention.qk_norm", attention.qk_norm, False), ("attention.lean", attention.lean, False),
        ("block.norm", block.norm, "before"), ("block.norm_kind", block.norm_kind, "layer"),
        ("block.lean", block.lean, False), ("block.shift", block.shift, 0), ("across", model.across, "tokens"),
        ("output", model.output, "logits"),
    ):  # fmt: skip
        demand(own == usual, f"{part} {own}", name)
    demand(isinstance(model.head, heads), f"head {model.head.kind}", name)
    demand(model.depth > 0, "depth 0", name)
    first: Any = network.blocks[0]
    patch: int = getattr(tokens, "patch", 0)
    return Leaving(model, network, run.card, patch, attention.heads, first.mlp.leave.in_features)


def renamed(family: Family, leaving: Leaving) -> Tensors:
    """Layers and scales under their names; rows of ours that are several of theirs, apart."""
    state = leaving.state
    found: Tensors = {}
    for names, ours in table(family, leaving.model.depth):
        if ours in state:
            found |= dict(zip(names, state[ours].chunk(len(names)), strict=True))
    return found


def tokens_out(family: Family, leaving: Leaving, everywhere: bool) -> Tensors:
    """Extra tokens and positions; where registers have no position there, theirs is put into the tokens themselves."""
    state, own = leaving.state, leaving.model.head.own_tokens
    positions, registers = state["positions.table"], leaving.model.registers
    extra = state.get("extra", positions[:0])
    found = {names[0]: extra[None, i : i + 1] for i, names in enumerate(family.tokens[:2]) if i < own}
    if registers:
        rest = slice(own, own + registers)
        found[family.tokens[2][0]] = (extra[rest] if everywhere else extra[rest] + positions[rest])[None]
        if not everywhere:
            positions = torch.cat([positions[:own], positions[own + registers :]])
    return found | {family.positions: positions[None]}


def more_of(family: Family, leaving: Leaving) -> Tensors:
    """What DINOv2 has and a model of ours may not: a mask token, and layer scales, which are 1."""
    ones = torch.ones(leaving.model.width)
    if not family.scales:
        return {}
    scales = {} if leaving.model.block.layer_scale else {
        names[0].format(i=i): ones.clone() for names, _ in family.scales for i in range(leaving.model.depth)
    }  # fmt: skip
    return scales | {"embeddings.mask_token": 0 * ones[None]}


def heads_out(family: Family, leaving: Leaving) -> Tensors:
    """One head; or two whose mean is ours: twice our weights of each token, and our bias."""
    weight, bias = leaving.state["head.logits.weight"], leaving.state["head.logits.bias"]
    count = weight.shape[1] // leaving.model.width
    found: Tensors = {}
    for name, part in zip(family.heads, (count * weight).chunk(count, dim=1), strict=False):
        found |= {f"{name}.weight": part, f"{name}.bias": bias}
    return found


def joined_head(leaving: Leaving) -> Tensors:
    """DINOv2's logits read the class token and the patches' mean side by side; ours read the first alone."""
    weight, bias = leaving.state["head.logits.weight"], leaving.state["head.logits.bias"]
    return {"classifier.weight": torch.cat([weight, 0 * weight], dim=1), "classifier.bias": bias}


def write_folder(folder: Path, files: Mapping[str, Any], tensors: Tensors) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is there already, and not empty: choose another folder")
    make_folder(folder)
    for name, content in files.items():
        write_json(folder / name, content)
    write(folder / "model.safetensors", save({k: v.contiguous().clone() for k, v in tensors.items()}, {"format": "pt"}))
