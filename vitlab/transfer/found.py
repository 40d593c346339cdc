"""What another library's weights are, in our settings: read off their shapes, and off what is known beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from vitlab.data.prepared import Normalising
from vitlab.errors import BadInput
from vitlab.model import Model, Shape, VisionTransformer, ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, Distilled, Head, Mean
from vitlab.model.tokens import ConvPatches
from vitlab.transfer.mapping import Tensors, bring_in, logits_of, present, rows
from vitlab.transfer.names import DINOV2, GATED, TAUGHT, TIMM, VIT, Family

HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1536: 24}  # width → heads, in all published ViTs


@dataclass(frozen=True)
class Facts:
    """What a file of weights does not say: from a configuration beside it, or from the library that made it."""

    title: str
    heads: int = 0
    epsilon: float = 1e-6
    size: tuple[int, int] | None = None  # height and width of its pictures
    activation: Literal["gelu", "relu"] = "gelu"
    pool: Literal["token", "avg"] = "token"
    normalise: Normalising = "imagenet"
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Found:
    """A model of someone's in our settings, its weights under our names, and what there is to say about them."""

    title: str
    model: Model
    shape: Shape
    tensors: Tensors
    classes: tuple[str, ...]  # names of its logits; none where it has no logits
    normalise: Normalising
    notes: list[str] = field(default_factory=list)
    own: bool = False  # whether it is a run of ours


def family_of(names: Mapping[str, Tensor]) -> tuple[Family, Tensors]:
    """Whose names these are, and the weights without what such names begin with."""
    for family in (TIMM, GATED, DINOV2, TAUGHT, VIT):
        plain = {strip(name, family): tensor for name, tensor in names.items()}
        marks = [*family.layers[0][0], *family.layers[-3][0], *(family.heads[:1] if family is TAUGHT else ())]
        if all(f"{mark.format(i=0)}.weight" in plain for mark in marks):
            return family, plain
    some = ", ".join(list(names)[:3])
    raise BadInput(
        f"these are no weights of a Vision Transformer that vitlab knows: their names begin with {some}; known are "
        "those of timm, DINO, DINOv2 and MAE, and of Hugging Face's ViT, DeiT, ViTMAE and DINOv2"
    )


def strip(name: str, family: Family) -> str:
    for prefix in family.prefixes:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


def recognise(given: Mapping[str, Tensor], facts: Facts) -> Found:
    """Weights of any family → a model of ours with the same answers, or all that does not fit."""
    family, theirs = family_of(given)
    model, shape, notes = settings_of(family, theirs, facts)
    heads = logits_of(family, theirs)
    count = len(theirs[f"{heads[0]}.bias"].flatten()) if heads else 0
    with torch.device("meta"):
        network = model.build(shape, max(count, 1))
    mapped = bring_in(family, theirs, network)
    notes += [f"left out, {line}" for line in mapped.beside]
    if not count:
        notes.append("it has no logits of its own, so these start anew")
    if facts.normalise == "statistics":
        notes.append("vitlab has no name for how its pictures were normalised: look at data.normalise")
    names = facts.classes if len(facts.classes) == count else tuple(f"class {i}" for i in range(count))
    return Found(facts.title, model, shape, mapped.tensors, names, facts.normalise, notes)


def settings_of(family: Family, theirs: Tensors, facts: Facts) -> tuple[ViT, Shape, list[str]]:
    filters = theirs[f"{family.layers[0][0][0]}.weight"]
    if filters.ndim != 4 or filters.shape[2] != filters.shape[3] or not filters.numel():
        raise BadInput(
            f"filters of {tuple(filters.shape)}: vitlab's are of square patches, (width, channels, side, side)"
        )
    width, channels, patch = filters.shape[:3]
    enter, leave = (f"{family.layers[place][0][0].format(i=0)}.weight" for place in (5, 6))
    odd = [name for name in (enter, leave) if name not in theirs or theirs[name].ndim != 2]
    if odd:
        raise BadInput(f"these weights do not fit ({family.title}): {', '.join(odd)} should be a matrix, and is none")
    hidden, gated = theirs[leave].shape[1], theirs[enter].shape[0] == 2 * theirs[leave].shape[1]
    head, registers = read_tokens(family, theirs, facts)
    heads, notes = facts.heads, []
    if not heads:
        heads = HEADS.get(width, 0)
        notes.append(f"{heads} heads, as in every published ViT of width {width}; no file of weights says how many")
    if not heads:
        raise BadInput(
            f"how many heads has it? A file of weights does not say, and {width} is the width of no published ViT: "
            "write timm:NAME=FILE, or put its config.json beside it"
        )
    scales = any(names[0].format(i=0) in theirs for names, _ in family.scales)
    bias = f"{family.layers[2][0][0].format(i=0)}.bias" in theirs
    block = Block(
        activation="swiglu" if gated else facts.activation,
        mlp=hidden / width * (1.5 if gated else 1.0),  # of three matrices, each is ⅔ as large
        layer_scale=1e-5 if scales else 0.0,
        epsilon=facts.epsilon,
    )
    mark = family.layers[1][0][0].partition("{i}")
    depth = len({name[len(mark[0]) :].partition(".")[0] for name in theirs if name.startswith(mark[0])})
    model = ViT(
        width=width, depth=depth, registers=registers, tokens=ConvPatches(patch),
        attention=Softmax(heads=heads, bias=bias), block=block, head=head,
    )  # fmt: skip
    height, wide = facts.size or square(theirs.get(family.positions), head.own_tokens + registers, patch)
    return model, Shape(channels, height, wide), notes


def read_tokens(family: Family, theirs: Tensors, facts: Facts) -> tuple[Head, int]:
    """Which head reads it as its library does, and how many extra tokens nothing reads."""
    counts = [sum(len(rows(theirs[name])) for name in present([names], theirs)) for names in family.tokens]
    if facts.pool == "avg" or not counts[0]:
        return Mean(), sum(counts)
    if counts[1] and len(logits_of(family, theirs)) != 1:
        return Distilled(), counts[2]
    return ClassToken(), sum(counts[1:])  # a distillation token without a head of its own is looked at, but not read


def square(positions: Tensor | None, extra: int, patch: int) -> tuple[int, int]:
    """The side of a square picture whose patches, with or without extra tokens, have so many positions."""
    count = 0 if positions is None else len(rows(positions))
    for before in range(extra + 1):
        side = math.isqrt(max(count - before, 0))
        if side and side * side == count - before:
            return side * patch, side * patch
    raise BadInput(f"{count} positions are no square of patches, with or without a class token")


def network_of(found: Found) -> VisionTransformer:
    """The model with its weights; logits that it has not are drawn."""
    network = found.model.build(found.shape, max(len(found.classes), 1))
    assert isinstance(network, VisionTransformer)
    network.load_state_dict(network.state_dict() | found.tensors)
    return network.eval()


def is_about(given: Any, wanted: tuple[float, ...]) -> bool:
    return (
        isinstance(given, list | tuple)
        and len(given) == len(wanted)
        and all(isinstance(a, int | float) and abs(a - b) < 1e-3 for a, b in zip(given, wanted, strict=True))
    )


def normalise_of(mean: Any, deviation: Any) -> Normalising:
    """How its pictures were normalised, of the ways that vitlab has a name for."""
    if is_about(mean, (0.5, 0.5, 0.5)) and is_about(deviation, (0.5, 0.5, 0.5)):
        return "half"
    if is_about(mean, (0.485, 0.456, 0.406)) and is_about(deviation, (0.229, 0.224, 0.225)):
        return "imagenet"
    return "statistics"
