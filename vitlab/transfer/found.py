"""What another library's weights are, in our settings: read off their shapes, and off what is known beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from vitlab.data.prepared import Normalising
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.model import Model, Shape, VisionTransformer, ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, Distilled, Head, Mean, SequencePool
from vitlab.model.positions import Learned, Positions, Sinusoidal1d, sinusoids
from vitlab.model.tokens import ConvPatches, ConvPool
from vitlab.transfer.mapping import Tensors, bring_in, logits_of, present, reach, rows
from vitlab.transfer.names import CCT, DINOV2, GATED, TAUGHT, TIMM, VIT, Family

HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1280: 16, 1408: 16, 1536: 24}  # width → heads, in all published ViTs
SMALL = 64  # pixels of a side up to which CCTs were published for CIFAR's pictures, normalised by their statistics
FEW_HEADS = {128: 2, 256: 4, 384: 6}  # the same, in all published CCTs


@dataclass(frozen=True)
class Facts:
    """What a file of weights does not say: from a configuration beside it, or from the library that made it."""

    title: str
    heads: int = 0
    epsilon: float | None = None  # left out: as the family's models have it
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
    own: Run | None = None  # where it is a run of ours


def family_of(names: Mapping[str, Tensor]) -> tuple[Family, Tensors]:
    """Whose names these are, and the weights without what such names begin with."""
    for family in (TIMM, GATED, DINOV2, TAUGHT, VIT, CCT):
        plain = {strip(name, family): tensor for name, tensor in names.items()}
        marks = [*family.layers[0][0], *family.layers[-3][0], *(family.heads[:1] if family is TAUGHT else ())]
        if all(f"{mark.format(i=0)}.weight" in plain for mark in marks):
            return family, plain
    some = ", ".join(list(names)[:3])
    raise BadInput(
        f"these are no weights of a Vision Transformer that vitlab knows: their names begin with {some}; known are "
        "those of timm, DINO, DINOv2 and MAE, of Hugging Face's ViT, DeiT, ViTMAE and DINOv2, and of CCT"
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
    if family is CCT and shape.height <= SMALL:
        facts = replace(facts, normalise="statistics")
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
    filters = filters_of(family, theirs)
    width, channels = len(filters[-1]), filters[0].shape[1]
    tokens = pooled(filters) if family is CCT else ConvPatches(filters[0].shape[2])
    enter, leave = (f"{family.layers[place][0][0].format(i=0)}.weight" for place in (5, 6))
    odd = [name for name in (enter, leave) if name not in theirs or theirs[name].ndim != 2]
    if odd:
        raise BadInput(f"these weights do not fit ({family.title}): {', '.join(odd)} should be a matrix, and is none")
    hidden, gated = theirs[leave].shape[1], theirs[enter].shape[0] == 2 * theirs[leave].shape[1]
    head, registers = read_tokens(family, theirs, facts)
    heads, notes = (facts.heads, []) if facts.heads else guess_heads(family, width)
    if isinstance(tokens, ConvPool):
        notes.append(f"patches of {tokens.patch}, as in every published CCT of {tokens.layers} × {tokens.kernel}")
    scales = any(names[0].format(i=0) in theirs for names, ours in family.scales if ours.startswith("blocks."))
    bias = f"{family.layers[2][0][0].format(i=0)}.bias" in theirs
    block = Block(
        norm="between" if family is CCT else "before",
        activation="swiglu" if gated else facts.activation,
        mlp=hidden / width * (1.5 if gated else 1.0),  # of three matrices, each is ⅔ as large
        layer_scale=1e-5 if scales else 0.0,
        epsilon=family.epsilon if facts.epsilon is None else facts.epsilon,
    )
    mark = family.layers[1][0][0].partition("{i}")
    depth = len({name[len(mark[0]) :].partition(".")[0] for name in theirs if name.startswith(mark[0])})
    model = ViT(
        width=width, depth=depth, registers=registers, tokens=tokens, positions=positions_of(family, theirs),
        attention=Softmax(heads=heads, bias=bias), block=block, head=head,
    )  # fmt: skip
    height, wide = facts.size or square(theirs.get(family.positions), head.own_tokens + registers, tokens.patch)
    return model, Shape(channels, height, wide), notes


def filters_of(family: Family, theirs: Tensors) -> list[Tensor]:
    """The filters of its tokenizer: of one convolution, or of several, one after another."""
    name = f"{family.layers[0][0][0]}.weight"
    names = dict.fromkeys(name.format(i=i) for i in range(reach(theirs)))
    filters = [theirs[each] for each in names if each in theirs]
    for each in filters:
        if each.ndim != 4 or each.shape[2] != each.shape[3] or not each.numel():
            raise BadInput(
                f"filters of {tuple(each.shape)}: vitlab's are of square patches, (width, channels, side, side)"
            )
    return filters


def pooled(filters: list[Tensor]) -> ConvPool:
    """CCT's tokenizer; its strides, which no file of weights says, are those of all published ones."""
    kernel, layers = filters[0].shape[2], len(filters)
    if kernel < 3:
        raise BadInput(f"filters of {kernel}×{kernel}: those of CCT are of 3×3 or more")
    stride = max(kernel // 2 - 1, 1)
    return ConvPool((2 * stride) ** layers, kernel, layers, len(filters[0]) if layers > 1 else ConvPool.channels)


def guess_heads(family: Family, width: int) -> tuple[int, list[str]]:
    """How many heads all published models of this width have, with a note that says so."""
    published, heads = ("CCT", FEW_HEADS) if family is CCT else ("ViT", HEADS)
    if width not in heads:
        instead = "" if family is CCT else ": write timm:NAME=FILE, or put its config.json beside it"
        raise BadInput(
            "how many heads has it? A file of weights does not say, and "
            f"{width} is the width of no published {published}{instead}"
        )
    said = f"as in every published {published} of width {width}; no file of weights says how many"
    return heads[width], [f"{heads[width]} heads, {said}"]


def positions_of(family: Family, theirs: Tensors) -> Positions:
    """A learned table; or, of CCT, sines and cosines, which are kept beside the weights but never learn."""
    given = theirs.get(family.positions)
    if family is not CCT or given is None:
        return Learned()
    table = rows(given).float()
    waves = sinusoids(torch.arange(len(table)), table.shape[1])
    return Sinusoidal1d() if torch.allclose(table, waves, atol=1e-4) else Learned()


def read_tokens(family: Family, theirs: Tensors, facts: Facts) -> tuple[Head, int]:
    """Which head reads it as its library does, and how many extra tokens nothing reads."""
    if family is CCT:
        return SequencePool(), 0
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
