"""Our Triton kernels by Triton's interpreter, on a CPU, against torch in float64: prints relative errors as JSON.

A program of its own: Triton decides once, when it is imported, whether its kernels are compiled or interpreted.
"""

import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.model import Shape, ViT, fused, gelu, gpu
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.positions import Rotary, Turn
from vitlab.model.tokens import ConvStem, HalvingStem, Tokens

Errors = dict[str, float]
MARGIN = 1 << 15  # numbers before and after each tensor, more than a tile goes beyond an edge
ROOMS: list[Tensor] = []  # of the case at work, margins and all
EPSILON = 1e-5  # of the norm before GELU


class Attention(NamedTuple):
    """A call of attention: b pictures of n tokens, heads of a width, tables `each` picture or `one` for all."""

    pictures: int
    tokens: int
    heads: int
    width: int
    norm: bool
    tables: str
    dtype: str = "float32"

    def __str__(self) -> str:
        shape = f"{self.pictures} x {self.tokens} tokens, {self.heads} x {self.width} features"
        return f"{shape}, {'norm' if self.norm else 'plain'}, tables {self.tables}, {self.dtype}"


class Gelu(NamedTuple):
    """A call of GELU on numbers of a shape, behind a norm over (c, y, x) where it has four dimensions."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{' x '.join(map(str, self.shape))}, {self.dtype}"


class Whole(NamedTuple):
    """A model with a class token, whose every part goes by our kernels: with biases, or lean."""

    tokens: Tokens
    lean: bool
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.tokens.kind}, {'lean' if self.lean else 'with biases'}"

    def settings(self) -> ViT:
        attention = Softmax(heads=2, bias=not self.lean, qk_norm=self.lean, lean=self.lean)
        block = Block(lean=self.lean, norm_kind="rms" if self.lean else "layer", shift=4)
        return ViT(
            width=32, depth=2, tokens=self.tokens, positions=Rotary(table=True), attention=attention, block=block
        )


# All kinds where a class token stands before a grid, 2^k + 1 tokens; and each kind somewhere else.
KINDS = [*product((False, True), ("none", "one", "each"))]
ATTENTION = [
    *(Attention(2 if tables == "each" else 1, 17, 1, 32, norm, tables) for norm, tables in KINDS),
    *(Attention(2 if tables == "each" else 1, 65, 1, 64, norm, tables) for norm, tables in KINDS),
    Attention(2, 2, 2, 16, False, "each"),
    Attention(1, 16, 3, 128, True, "one"),
    Attention(1, 23, 2, 128, True, "none"),
    Attention(2, 33, 1, 32, False, "one"),
    Attention(2, 64, 1, 64, True, "each"),
    Attention(1, 100, 2, 32, False, "none"),
    Attention(1, 128, 1, 16, True, "one"),
    Attention(2, 17, 1, 64, True, "each", "bfloat16"),
    Attention(1, 64, 2, 32, False, "one", "bfloat16"),
]
# A program takes 2,048 numbers: less than that, exactly that, and two and a half times.
PLAIN = [Gelu((3, 5, 7)), Gelu((2, 1024)), Gelu((5000,)), Gelu((5000,), "bfloat16")]
# Behind a bias a program takes 64 rows of 64 features: less than that, exactly that, and more.
BIASED = [Gelu((1, 8)), Gelu((64, 64)), Gelu((3, 65, 96)), Gelu((130, 200)), Gelu((130, 200), "bfloat16")]
# A program takes 8,192 numbers at once: a pixel's features, filled up to a power of two, times as many pixels.
NORMED = [
    Gelu((1, 3, 4, 4)), Gelu((2, 48, 7, 5)), Gelu((3, 64, 12, 12)), Gelu((2, 16, 32, 32)), Gelu((2, 512, 3, 6)),
    Gelu((2, 48, 20, 10), "bfloat16"),
]  # fmt: skip
WHOLE = [Whole(HalvingStem(4, channels=8), lean=False), Whole(ConvStem(4, channels=8), lean=True)]


def main() -> None:
    torch.set_num_threads(1)
    interpret()
    widen()
    make_room()
    kinds = ((ATTENTION, attention), (PLAIN, plain), (BIASED, biased), (NORMED, normed), (WHOLE, whole))
    print(json.dumps({f"{errors.__name__} {case}": errors(case) for cases, errors in kinds for case in cases}))


def interpret() -> None:
    """The operators of a GPU on a CPU, too: the same functions, which launch what Triton interprets."""
    for operator in (
        fused.attention, fused.attention_backward, gelu.plain, gelu.plain_backward, gelu.behind_bias,
        gelu.behind_bias_backward, gelu.behind_norm, gelu.behind_norm_backward,
    ):  # fmt: skip
        torch.library.impl(operator._qualname, "cpu", operator._init_fn)


def widen() -> None:
    """The interpreter multiplies bfloat16 as if its bits were whole numbers: as float32 it is the same numbers."""
    import triton.language as tl  # noqa: PLC0415 (the tests, which read the cases, have no need of it)
    from triton.runtime.interpreter import InterpreterBuilder  # noqa: PLC0415

    dot = InterpreterBuilder.create_dot

    def wide_dot(builder, one, other, *rest):
        return dot(builder, *(builder.cast_impl(each, tl.float32) for each in (one, other)), *rest)

    InterpreterBuilder.create_dot = wide_dot


def attention(case: Attention) -> Errors:
    torch.manual_seed(0)
    width, scale = case.heads * case.width, case.width**-0.5
    qkv = drawn((case.pictures, case.tokens, 3 * width), case.dtype)
    turn = drawn_turn(case)
    found = fused.attend(qkv, case.heads, scale, case.norm, turn)
    expected = precise_attention(precise := qkv.detach().double().requires_grad_(), case, scale, turn)
    asked = torch.randn(case.pictures, width, case.tokens, dtype=qkv.dtype).mT  # as another layer may leave it
    given = torch.autograd.grad(found, qkv, asked)[0].chunk(3, dim=-1)
    wanted = torch.autograd.grad(expected, precise, asked.double())[0].chunk(3, dim=-1)
    return compared(("mixed", "queries", "keys", "values"), (found, *given), (expected, *wanted))


def precise_attention(qkv: Tensor, case: Attention, scale: float, turn: Turn | None) -> Tensor:
    """By torch's own norm and attention; a turn is a product of complex numbers."""
    queries, keys, values = qkv.unflatten(-1, (3, case.heads, case.width)).permute(2, 0, 3, 1, 4)
    if case.norm:
        queries, keys = (F.rms_norm(each, (case.width,), eps=fused.EPSILON) for each in (queries, keys))
    if turn is not None:
        by = torch.complex(turn.cosine.double(), turn.sine.double())
        queries, keys = (turned(each, by) for each in (queries, keys))
    return F.scaled_dot_product_attention(queries, keys, values, scale=scale).transpose(1, 2).flatten(2)


def turned(vectors: Tensor, by: Tensor) -> Tensor:
    found = torch.complex(*vectors.chunk(2, dim=-1)) * by
    return torch.cat([found.real, found.imag], dim=-1)


def drawn_turn(case: Attention) -> Turn | None:
    shape = (case.tokens, case.width // 2)
    if case.tables == "none":
        return None
    angles = 6 * torch.rand(shape if case.tables == "one" else (case.pictures, 1, *shape))
    return Turn(framed(angles.cos()), framed(angles.sin()))


def plain(case: Gelu) -> Errors:
    torch.manual_seed(0)
    x = drawn(case.shape, case.dtype, spread=3)
    found, expected = gelu.plain(x), F.gelu(precise := x.detach().double().requires_grad_())
    asked = torch.randn_like(x)
    given = torch.autograd.grad(found, x, asked)
    wanted = torch.autograd.grad(expected, precise, asked.double())
    return compared(("y", "x"), (found, *given), (expected, *wanted))


def biased(case: Gelu) -> Errors:
    torch.manual_seed(0)
    x, bias = drawn(case.shape, case.dtype, spread=2), drawn(case.shape[-1:], "float32")
    precise = [each.detach().double().requires_grad_() for each in (x, bias)]
    found, expected = gelu.behind_bias(x, bias), F.gelu(precise[0] + precise[1])
    asked = torch.randn_like(x)
    given = torch.autograd.grad(found, (x, bias), asked)
    wanted = torch.autograd.grad(expected, precise, asked.double())
    return compared(("y", "x", "bias"), (found, *given), (expected, *wanted))


def normed(case: Gelu) -> Errors:
    torch.manual_seed(0)
    pictures, channels, *sides = case.shape
    z = drawn((pictures, *sides, channels), case.dtype, spread=2, middle=1)
    weight, bias = drawn((channels,), "float32"), drawn((channels,), "float32")
    found, _ = gelu.behind_norm(z.permute(0, 3, 1, 2), weight, bias, EPSILON)
    precise = [each.detach().double().requires_grad_() for each in (z, weight, bias)]
    expected = F.gelu(F.group_norm(precise[0].permute(0, 3, 1, 2), 1, *precise[1:], eps=EPSILON))
    asked = torch.randn(case.shape, dtype=z.dtype)  # another order of memory than that of z
    given = torch.autograd.grad(found, (z, weight, bias), asked)
    wanted = torch.autograd.grad(expected, precise, asked.double())
    return compared(("y", "z", "weight", "bias"), (found, *given), (expected, *wanted))


def whole(case: Whole) -> Errors:
    """Logits and gradients of all weights, against those of the same model as torch works it out in float64."""
    torch.manual_seed(0)
    network, pictures = case.settings().build(Shape(3, 16, 16), 10), torch.randn(2, 3, 16, 16)
    asked = torch.randn(2, 10)
    with by_kernels() as launched:
        found = network(pictures)
        given = torch.autograd.grad(found, list(network.parameters()), asked)
    activated = "gelu" if case.lean else "bias_gelu"
    parts = product((activated, "norm_gelu"), ("there", "back"))
    assert launched == {"attention_mix", "attention_unmix", *map("_".join, parts)}
    expected = network.double()(pictures.double())
    wanted = torch.autograd.grad(expected, list(network.parameters()), asked.double())
    return compared(("logits", *dict(network.named_parameters())), (found, *given), (expected, *wanted))


@contextmanager
def by_kernels() -> Iterator[set[str]]:
    """As if this were a GPU, and these numbers of 16 bits: which kernels are launched."""
    launched: set[str] = set()

    def kernel(module: str, name: str) -> Any:
        launched.add(name)
        return gpu.kernel(module, name)

    with ExitStack() as changes:
        for module in (fused, gelu):
            changes.enter_context(patch.object(module, "kernel", kernel))
            changes.enter_context(patch.object(module, "takes", lambda x: True))
        changes.enter_context(patch.object(gelu, "multiplies", lambda x: True))
        yield launched


def drawn(shape: tuple[int, ...], dtype: str, spread: float = 1, middle: float = 0) -> Tensor:
    """Numbers of a normal distribution, whose gradient is asked for."""
    return framed((middle + spread * torch.randn(shape)).to(getattr(torch, dtype))).requires_grad_()


def framed(tensor: Tensor) -> Tensor:
    """The same between margins of NaN, which spoil the result of whoever reads beyond the tensor."""
    return room(tensor).copy_(tensor)


def room(tensor: Tensor) -> Tensor:
    """Its shape and its order in memory, with no numbers yet, between margins."""
    ROOMS.append(whole := tensor.new_full((tensor.numel() + 2 * MARGIN,), math.nan))
    return whole.as_strided(tensor.shape, tensor.stride(), MARGIN)


def make_room() -> None:
    """What is made to be written into is NaN, which shows what was not written, and lies between margins."""
    new_empty = Tensor.new_empty
    torch.empty_like = room
    Tensor.new_empty = lambda *words, **more: room(new_empty(*words, **more))


def spoiled() -> int:
    """How many numbers were written beyond the tensors of this case."""
    count = sum(int((~torch.cat([whole[:MARGIN], whole[-MARGIN:]]).isnan()).sum()) for whole in ROOMS)
    ROOMS.clear()
    return count


def compared(names: tuple[str, ...], found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> Errors:
    return dict(zip(names, map(relative, found, expected), strict=True)) | {"beyond": spoiled()}


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).detach().norm() / expected.detach().norm())


if __name__ == "__main__":
    main()
