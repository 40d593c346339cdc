"""Weights under another library's names ↔ the same weights under ours; what does not fit is listed, all of it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.model import VisionTransformer
from vitlab.model.layout import Layout
from vitlab.transfer.names import Family

Tensors = dict[str, Tensor]
KINDS = ("weight", "bias")
# float32 sums of some hundred terms, in another order: at full size answers of size 5 were seen to differ by 6e-6. A
# weight in the wrong place is off by 1e-1 or more.
TOLERANCE = {"rtol": 1e-4, "atol": 3e-5}


@dataclass
class Mapped:
    """Weights under our names, and what of theirs has no place here and why that does not matter."""

    tensors: Tensors
    beside: list[str] = field(default_factory=list)


def table(family: Family, count: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every pair of names of layers and scales, number by number."""
    pairs = [(tuple(f"{name}.{kind}" for name in theirs), f"{ours}.{kind}") for theirs, ours in family.layers
             for kind in KINDS]  # fmt: skip
    for theirs, ours in (*pairs, *family.scales):
        for i in range(count) if "{i}" in ours else [0]:
            yield tuple(name.format(i=i) for name in theirs), ours.format(i=i)


def reach(names: Iterable[str]) -> int:
    """One more than the largest number in these names."""
    return 1 + max((int(number) for name in names for number in re.findall(r"\.(\d+)\.", name)), default=-1)


def present(names: Iterable[tuple[str, ...]], tensors: Mapping[str, Tensor]) -> list[str]:
    """Of each token's names, the one that is there."""
    return [name for known in names for name in known if name in tensors]


def bring_in(family: Family, theirs: Mapping[str, Tensor], network: VisionTransformer) -> Mapped:
    """Their weights as a network like this one takes them; it may lie on the meta device, only its shapes matter."""
    wanted = {name: tensor.shape for name, tensor in network.state_dict().items()}
    found: Tensors = {}
    used: set[str] = set()
    for names, ours in table(family, reach(wanted)):
        if ours in wanted and all(name in theirs for name in names):
            found[ours] = joined(names, [theirs[name] for name in names])
            used |= {*names}
    tokens = present(family.tokens, theirs)
    if "extra" in wanted and tokens:
        found["extra"] = joined(tokens, [rows(theirs[name]) for name in tokens])
        used |= {*tokens}
    if family.positions in theirs and "positions.table" in wanted:
        own = sum(len(rows(theirs[name])) for name in present(family.tokens[:2], theirs))
        found["positions.table"] = spread(rows(theirs[family.positions]), network.layout, own)
        used.add(family.positions)
    found |= take_logits(family, theirs, network, used)
    beside = {name: why for name in theirs for start, why in family.beside if name.startswith(start)}
    unknown = [name for name in theirs if name not in used and name not in beside]
    missing = [name for name in wanted if name not in found and not name.startswith("head.logits.")]
    shapes = [
        f"{name} is {tuple(found[name].shape)} and should be {tuple(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name].shape != shape
    ]
    refuse(family, unknown, [their_name(family, name) for name in missing], shapes)
    reasons = {
        why: [name for name, own in beside.items() if own == why and name not in used] for why in beside.values()
    }
    left = [f"{listed(names)}: {why}" for why, names in reasons.items() if names]
    return Mapped({name: tensor.float() for name, tensor in found.items()}, left)


def take_logits(family: Family, theirs: Mapping[str, Tensor], network: VisionTransformer, used: set[str]) -> Tensors:
    """The logits of one head, or of two whose mean is taken, as those of both tokens side by side."""
    heads = logits_of(family, theirs)
    if not heads:
        return {}
    used |= {f"{head}.{kind}" for head in heads for kind in KINDS}
    weights, biases = ([theirs[f"{head}.{kind}"] for head in heads] for kind in KINDS)
    weight = joined(heads, [rows(weight).mT for weight in weights]).mT
    return {
        "head.logits.weight": weight / len(heads),
        "head.logits.bias": joined(heads, biases, stack=True).mean(dim=0),
    }


def logits_of(family: Family, theirs: Mapping[str, Tensor]) -> list[str]:
    """The heads that are there, with weights and biases."""
    return [head for head in family.heads if all(f"{head}.{kind}" in theirs for kind in KINDS)]


def rows(tensor: Tensor) -> Tensor:
    """(…, d) → (n, d)."""
    return tensor.flatten(0, -2) if tensor.ndim > 1 else tensor.reshape(1, -1)


def joined(names: Sequence[str], tensors: list[Tensor], stack: bool = False) -> Tensor:
    """Tensors below one another, or each as one row; what does not go together is refused by name."""
    if len({(tensor.ndim, tensor.shape[0 if stack else 1 :]) for tensor in tensors}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in zip(names, tensors, strict=True))
        raise BadInput(f"these weights should go together, and do not: {shapes}")
    if len(tensors) == 1 and not stack:
        return tensors[0]
    return torch.stack(tensors) if stack else torch.cat(tensors)


def spread(given: Tensor, layout: Layout, own: int) -> Tensor:
    """A table of positions with a row for every token: 0 for those that theirs has none for.

    It may have rows for the patches alone, for class and distillation token too, or for registers as well.
    """
    if len(given) not in (layout.patches, own + layout.patches, layout.tokens):
        return given
    before = given[: len(given) - layout.patches]
    none = given.new_zeros(layout.extra - len(before), given.shape[1])
    return torch.cat([before, none, given[len(before) :]])


def their_name(family: Family, ours: str) -> str:
    """What a weight of ours is called there, for a message."""
    for names, own in table(family, reach([ours])):
        if own == ours:
            return " + ".join(names)
    return {"extra": " + ".join(names[0] for names in family.tokens if names), "positions.table": family.positions}.get(
        ours, ours
    )


def refuse(family: Family, unknown: list[str], missing: list[str], shapes: list[str]) -> None:
    """One line that names everything that does not fit, or nothing."""
    parts = []
    if missing:
        parts.append(f"it lacks {listed(missing)}")
    if unknown:
        parts.append(f"vitlab has no part for {listed(unknown)}")
    if shapes:
        parts.append("; ".join(shapes))
    if parts:
        raise BadInput(f"these weights do not fit ({family.title}): {'; '.join(parts)}")


def listed(names: list[str]) -> str:
    """Names in their order, those that differ by numbers alone as one: blocks.*.attn.q_norm.weight (12)."""
    counts: dict[str, list[str]] = {}
    for name in names:
        counts.setdefault(re.sub(r"(?<=\.)\d+(?=\.)", "*", name), []).append(name)
    return ", ".join(each[0] if len(each) == 1 else f"{form} ({len(each)})" for form, each in counts.items())
