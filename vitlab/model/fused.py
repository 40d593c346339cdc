"""Attention over few tokens as one GPU kernel: norm, turn, compare, mix; and one more for its whole gradient.

A library's fused kernel cuts long sequences into tiles. A picture of 64 patches is one tile: a head of it fits into
registers, so that nothing but queries, keys and values is read and nothing but the mix is written.
"""

from typing import Any

import torch
from torch import Tensor

from vitlab.model.gpu import kernel, takes
from vitlab.model.positions import Turning

MOST = 128  # tokens that one program keeps
HEADS = (16, 32, 64, 128)  # widths of a head
EPSILON = torch.finfo(torch.float32).eps  # of the norm, as torch takes it


def fits(qkv: Tensor, heads: int) -> bool:
    """Whether `attend` can take these."""
    return takes(qkv) and 2 <= qkv.shape[1] <= MOST and qkv.shape[2] // (3 * heads) in HEADS


def attend(qkv: Tensor, heads: int, scale: float, norm: bool, turning: Turning | None) -> Tensor:
    """(b, n, 3·h·e) → (b, n, h·e): softmax(QKᵀ · scale)·V, queries and keys normalised and turned where asked."""
    tables = (None, None) if turning is None else (turning.cosine.contiguous(), turning.sine.contiguous())
    mixed: Tensor = attention(qkv.contiguous(), *tables, heads, scale, norm)
    return mixed


@torch.library.custom_op("vitlab::attention", mutates_args=(), device_types="cuda")
def attention(qkv: Tensor, cosine: Tensor | None, sine: Tensor | None, heads: int, scale: float, norm: bool) -> Tensor:
    mixed = like(qkv, qkv.shape[-1] // 3)
    launch("attention_mix", qkv, cosine, sine, [mixed], heads, scale, norm)
    return mixed


@torch.library.custom_op("vitlab::attention_backward", mutates_args=(), device_types="cuda")
def attention_backward(
    asked: Tensor, qkv: Tensor, cosine: Tensor | None, sine: Tensor | None, heads: int, scale: float, norm: bool
) -> Tensor:
    given = like(qkv, qkv.shape[-1])
    launch("attention_unmix", qkv, cosine, sine, [asked, given], heads, scale, norm)
    return given


def like(qkv: Tensor, width: int) -> Tensor:
    return qkv.new_empty(*qkv.shape[:2], width)


def launch(
    name: str, qkv: Tensor, cosine: Tensor | None, sine: Tensor | None, others: list[Tensor], heads: int, scale: float,
    norm: bool,
) -> None:  # fmt: skip
    """Run a kernel, one program for each head of each picture."""
    batch, count, features = qkv.shape
    if not batch:
        return
    half = features // (6 * heads)
    rows = max(16, 1 << (count - 1).bit_length())
    apart = 0 if cosine is None or cosine.dim() == 2 else count * half  # one table for all, or one for each picture
    options = {"num_warps": 4 if rows <= 64 else 8}
    if name == "attention_unmix" and rows <= 64 and half <= 32:
        options["maxnreg"] = 128  # four programs at once on a processor, rather than three
    turn, tables = cosine is not None, [qkv if table is None else table for table in (cosine, sine)]
    kernel("kernels", name)[(batch * heads,)](
        qkv, *tables, *others, count, heads, scale, EPSILON, apart,
        NORM=norm, TURN=turn, ROWS=rows, HALF=half, COLUMNS=max(16, half), **options,
    )  # fmt: skip


@attention.register_fake
def _(qkv: Tensor, cosine: Tensor | None, sine: Tensor | None, heads: int, scale: float, norm: bool) -> Tensor:
    return like(qkv, qkv.shape[-1] // 3)


@attention_backward.register_fake
def _(asked: Tensor, qkv: Tensor, *_: Any) -> Tensor:
    return like(qkv, qkv.shape[-1])


def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    qkv, cosine, sine, *ctx.rest = inputs
    ctx.save_for_backward(qkv, cosine, sine)


def backward(ctx: Any, asked: Tensor) -> tuple[Tensor | None, ...]:
    return attention_backward(asked.contiguous(), *ctx.saved_tensors, *ctx.rest), None, None, None, None, None


attention.register_autograd(backward, setup_context=keep)
