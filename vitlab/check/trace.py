"""Watch a forward pass for attention: by which factor each product of queries and keys was scaled."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

# Operations that hand their first tensor on, in another shape, place or precision.
SAME = {
    "view", "_unsafe_view", "reshape", "_reshape_alias", "transpose", "t", "permute", "expand", "clone", "alias",
    "unsqueeze", "squeeze", "select", "slice", "unbind", "split", "split_with_sizes", "chunk", "contiguous", "detach",
    "_to_copy", "to",
}  # fmt: skip
# Operations that put a mask or a bias on scores.
MASKED = {"add", "add_", "sub", "sub_", "masked_fill", "masked_fill_", "where", "clamp", "clamp_min"}
SCALES = {"mul", "mul_", "div", "div_"}
# Layers, whose outputs have whatever size their weights give: from here on a factor counts.
LAYERS = {
    "mm", "addmm", "linear", "convolution", "native_layer_norm", "native_group_norm", "native_batch_norm",
    "_native_batch_norm_legit_no_training", "_fused_rms_norm", "rms_norm",
}  # fmt: skip


@dataclass(frozen=True)
class Tag:
    """What is known of a tensor: the factor it was multiplied by, and the width that a product summed over."""

    factor: float = 1.0
    learned: bool = False  # the factor came from a weight
    summed: int = 0  # 0: not a product
    weight: bool = False  # made of weights alone
    lost: bool = False  # something else happened on the way, which may have scaled it too


@dataclass(frozen=True)
class Scores:
    """One softmax over products: their factor, the width of a head, and how many keys there were."""

    factor: float
    width: int
    keys: int
    learned: bool
    lost: bool


class Watch(TorchDispatchMode):
    """Follows factors through views and products to each softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Scores] = []
        self.tags: dict[int, Tag] = {}
        self.alive: list[Tensor] = []  # so that no tensor takes another's identity

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if name.startswith("_scaled_dot_product"):
            self.fused(args, kwargs or {})
            return result
        if name in ("_softmax", "_safe_softmax", "exp"):
            self.softmax(args[0])
        tag = self.follow(name, args, kwargs or {})
        if tag is not None:
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, Tensor):
                    self.tags[id(tensor)] = tag
                    self.alive.append(tensor)
        return result

    def tag(self, value: Any) -> Tag | None:
        return self.tags.get(id(value))

    def follow(self, name: str, args: Any, kwargs: Any) -> Tag | None:
        """The tag of a result, or none where nothing is known of it."""
        flat = [item for value in args for item in (value if isinstance(value, tuple | list) else [value])]
        given = [value for value in flat if isinstance(value, Tensor)]
        if given and all(self.is_weight(value) for value in given):
            return Tag(weight=True)
        if name in LAYERS:
            return Tag()
        if name in ("bmm", "baddbmm"):
            first, second = args[-2:]
            return self.product(first, second, kwargs.get("alpha", 1))
        if name in SAME:
            return self.tag(given[0]) if given else None
        scaled = self.scaled(args[0], args[1], name.startswith("div")) if name in SCALES else None
        return scaled or self.mixed(name, [tag for tag in map(self.tag, given) if tag is not None and not tag.weight])

    def mixed(self, name: str, tags: list[Tag]) -> Tag | None:
        """What several tensors, or one and its mask, have in common."""
        if name in MASKED and any(tag.summed for tag in tags):
            return next(tag for tag in tags if tag.summed)
        return replace(tags[0], lost=True) if len({tag.factor for tag in tags}) == 1 else None

    def product(self, first: Tensor, second: Tensor, alpha: float) -> Tag:
        """Of two activations; of a weight and an activation it is a layer, or a learned query: no scores to judge."""
        tags = [self.tag(first), self.tag(second)]
        known = [tag or Tag(lost=True) for tag in tags]
        lost = any(tag.lost or tag.weight for tag in known) or self.is_weight(first) or self.is_weight(second)
        factor, learned = alpha * known[0].factor * known[1].factor, any(tag.learned for tag in known)
        return Tag(factor, learned, first.shape[-1], lost=lost)

    def is_weight(self, value: Tensor) -> bool:
        """A weight, or something made of weights alone."""
        tag = self.tag(value)
        return isinstance(value, nn.Parameter) or (tag is not None and tag.weight)

    def scaled(self, value: Any, factor: Any, divided: bool) -> Tag | None:
        """A tensor times one number; times many numbers the trail ends."""
        if isinstance(value, Tensor) and isinstance(factor, Tensor) and value.numel() == 1 and not divided:
            value, factor = factor, value
        number = one_number(factor)
        learned = isinstance(factor, Tensor) and self.is_weight(factor)
        if number is None or not isinstance(value, Tensor) or (divided and number == 0):
            return None
        tag = self.tag(value) or Tag(lost=True)
        factor = tag.factor / number if divided else tag.factor * number
        return replace(tag, factor=factor, learned=tag.learned or learned)

    def softmax(self, scores: Tensor) -> None:
        tag = self.tag(scores)
        if tag is not None and tag.summed:
            self.found.append(Scores(tag.factor, tag.summed, scores.shape[-1], tag.learned, tag.lost))

    def fused(self, args: Any, kwargs: Any) -> None:
        queries, keys = args[:2]
        width = queries.shape[-1]
        scale = kwargs.get("scale")
        factor = width**-0.5 if scale is None else float(scale)
        tag = self.product(queries, keys, factor)
        self.found.append(Scores(tag.factor, width, keys.shape[-2], tag.learned, tag.lost))


def one_number(factor: Any) -> float | None:
    """The number that a factor is, if it is one, also where it is given once for each head."""
    if isinstance(factor, int | float):
        return float(factor)
    if isinstance(factor, Tensor) and factor.numel() and factor.is_floating_point():
        flat = factor.detach().flatten()
        once_a_head = factor.numel() == 1 or factor.shape[-2:] == (1, 1)
        if once_a_head and bool((flat == flat[0]).all()):
            return float(flat[0])
    return None


@contextmanager
def watched() -> Iterator[Watch]:
    """A watch on what torch does meanwhile."""
    with plainly(), Watch() as watch:
        yield watch


@contextmanager
def plainly() -> Iterator[None]:
    """Without gradients, and with the shortcut off that would hide nn.MultiheadAttention's parts."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
