"""Every kind the package offers, read from its unions, and small settings of each for the tests."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from itertools import product
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
import torch
from torch import Tensor, nn

from vitlab.data import Source
from vitlab.engine.optimisers import Optimiser
from vitlab.errors import BadInput
from vitlab.model import Model, MultiScale, Network, Shape, ViT
from vitlab.model.attention import Attention, Softmax, Uniform
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, Distilled, Head
from vitlab.model.multiscale import JoinKind, LateClassToken
from vitlab.model.positions import Positions, Rotary
from vitlab.model.tokens import LinearPatches, Tokens
from vitlab.objectives import Objective


def members(union: Any) -> tuple[Any, ...]:
    """The classes of a union; a union of one is the class itself."""
    return get_args(union) if get_origin(union) is UnionType else (union,)


ATTENTIONS, TOKENS, POSITIONS = members(Attention), members(Tokens), members(Positions)
HEADS, JOINS, MODELS = members(Head), members(JoinKind), members(Model)
SOURCES, OPTIMISERS, OBJECTIVES = members(Source), members(Optimiser), members(Objective)

SHAPE = Shape(3, 8, 16)  # patches of 4 and of 8 divide it, and rows are not columns
CLASSES = 5


def names_of(kind: type) -> set[str]:
    return {field.name for field in fields(kind)}


def choices(settings: type, name: str) -> tuple[Any, ...]:
    """The values a `Literal` setting may take."""
    return get_args(get_type_hints(settings)[name])


def kind_id(kind: Any) -> str:
    return getattr(kind, "kind", str(kind))


def each(kinds: Iterable[Any], name: str = "kind") -> pytest.MarkDecorator:
    """Parametrise a test over kinds, named by their tag."""
    return pytest.mark.parametrize(name, list(kinds), ids=kind_id)


def small_tokens(kind: type, patch: int = 4, shape: Shape = SHAPE) -> Any:
    """A tokenizer's settings that fit SHAPE: patches of 4, and of 8 beside them where a kind takes several.

    A kind that resizes pictures doubles their sides.
    """
    size = (2 * shape.height, 2 * shape.width)
    sides = {"patch": patch, "patches": (patch, 2 * patch), "channels": 6, "size": size}
    return kind(**{name: sides[name] for name in names_of(kind) & set(sides)})


def small_attention(kind: type, **wanted: Any) -> Any:
    """An attention's settings with two heads and a squeeze to 5 where the kind has them, and what else is wanted."""
    own = {"heads": 2, "k": 5} | wanted
    return kind(**{name: own[name] for name in names_of(kind) & set(own)})


def small_vit(**parts: Any) -> ViT:
    plain = {"width": 16, "depth": 2, "tokens": small_tokens(TOKENS[0]), "attention": small_attention(ATTENTIONS[0])}
    return ViT(**plain | parts)


def small_multiscale(**parts: Any) -> MultiScale:
    plain = {"width": 16, "depth": 2, "patches": (4, 8), "attention": small_attention(ATTENTIONS[0], heads=4)}
    return MultiScale(**plain | parts)


BLOCKS = [
    Block(**{name: value})
    for name in ("norm", "norm_kind", "activation")
    for value in choices(Block, name)
] + [
    Block(layer_scale=0.1), Block(mlp=2.0, epsilon=1e-3), Block(shift=8), Block(shift=4, norm="after", lean=True),
]  # fmt: skip


def fits(model: Any) -> bool:
    """Whether attention and positions agree: rotary turns queries and keys, which uniform attention has not."""
    return not (isinstance(model.positions, Rotary) and isinstance(model.attention, Uniform))


def is_blind(model: Any) -> bool:
    """Whether the token that is read never meets a patch: one that comes late, or that attends to other pictures'."""
    if isinstance(model, MultiScale):
        return isinstance(model.join, LateClassToken)
    return model.across == "batch" and isinstance(model.head, ClassToken | Distilled)


def mixes_pictures(model: Any) -> bool:
    """Whether a prediction depends on the other pictures of its batch, which only attention across it brings about."""
    return isinstance(model, ViT) and model.across == "batch" and not is_blind(model)


def _every_model() -> Iterator[Any]:
    """Each kind of each part once, in an otherwise plain model, and every pair of attention and positions."""
    yield from (pytest.param(small_vit(tokens=small_tokens(kind)), id=f"tokens-{kind.kind}") for kind in TOKENS)
    for kind, position in product(ATTENTIONS, POSITIONS):
        model = small_vit(attention=small_attention(kind), positions=position())
        if fits(model):
            yield pytest.param(model, id=f"{kind.kind}-{position.kind}")
    for index, block in enumerate(BLOCKS):
        yield pytest.param(
            small_vit(block=block), id=f"block-{index}-{block.norm}-{block.norm_kind}-{block.activation}"
        )
    for kind in HEADS:
        yield pytest.param(small_vit(head=kind()), id=f"head-{kind.kind}")
        yield pytest.param(small_vit(head=kind(), registers=2, final_norm=False), id=f"head-{kind.kind}-registers")
    yield pytest.param(small_vit(tokens=LinearPatches(4, twice=True)), id="linear-patches-twice")
    yield pytest.param(small_vit(positions=Rotary(table=True)), id="rotary-table")
    for output in choices(ViT, "output"):
        yield pytest.param(small_vit(output=output), id=f"output-{output}")
        yield pytest.param(small_multiscale(output=output), id=f"multi-scale-output-{output}")
    for kind, head in product((Softmax, Uniform), HEADS):
        model = small_vit(across="batch", attention=small_attention(kind), head=head())
        yield pytest.param(model, id=f"across-batch-{kind.kind}-{head.kind}")
    for start, copies in product(choices(ViT, "start"), (False, True)):
        if copies and start == "zero":
            continue  # refused: they would stay copies
        yield pytest.param(small_vit(start=start, copies=copies), id=f"start-{start}{'-copies' if copies else ''}")
    for kind, join in product(ATTENTIONS, JOINS):
        model = small_multiscale(attention=small_attention(kind, heads=4), join=join())
        yield pytest.param(model, id=f"join-{join.kind}-{kind.kind}")


def _attention_variants() -> Iterator[Any]:
    """Each kind plainly, with each of its options alone, and with all of them at once."""
    options = {
        "bias": False,
        "project": False,
        "scale": "width",
        "qk_norm": True,
        "per_head": True,
        "dropout": 0.3,
        "lean": True,
    }
    for kind in ATTENTIONS:
        plain = small_attention(kind)
        own = {name: value for name, value in options.items() if name in names_of(kind)}
        yield pytest.param(plain, id=kind.kind)
        yield from (pytest.param(replace(plain, **{n: v}), id=f"{kind.kind}-{n}") for n, v in own.items())
        yield pytest.param(replace(plain, **own), id=f"{kind.kind}-everything")


EVERY_MODEL = list(_every_model())
ATTENTION_VARIANTS = list(_attention_variants())


def build(model: Any, shape: Shape = SHAPE, seed: int = 0) -> Network:
    """The network, its weights moved off their start so that no norm, bias or scale is neutral."""
    torch.manual_seed(seed)
    network = model.build(shape, CLASSES)
    shake(network)
    return network


@torch.no_grad()
def shake(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.1)


def some_pictures(count: int = 3, shape: Shape = SHAPE, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, shape.channels, shape.height, shape.width, generator=generator)


def shuffle_patches(pictures: Tensor, patch: int, order: Tensor) -> Tensor:
    """The pictures with their patches laid in another order, by plain slicing."""
    columns = pictures.shape[-1] // patch
    moved = torch.empty_like(pictures)
    for place, origin in enumerate(order.tolist()):
        y, x = divmod(place, columns)
        v, u = divmod(origin, columns)
        taken = pictures[..., v * patch : (v + 1) * patch, u * patch : (u + 1) * patch]
        moved[..., y * patch : (y + 1) * patch, x * patch : (x + 1) * patch] = taken
    return moved


UNIONS = {
    "attention": ATTENTIONS, "tokens": TOKENS, "positions": POSITIONS, "head": HEADS, "join": JOINS, "model": MODELS,
    "source": SOURCES, "optimiser": OPTIMISERS, "objective": OBJECTIVES,
}  # fmt: skip


def refusal(call: Callable[..., object], *given: Any) -> str:
    """What a call is refused with, which is one line."""
    with pytest.raises(BadInput) as caught:
        call(*given)
    text = str(caught.value)
    assert text
    assert "\n" not in text
    return text
