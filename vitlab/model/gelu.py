"""GELU, alone, behind a layer's bias and behind a norm over a whole picture: on a GPU one pass over memory each way.

torch.compile writes GELU by the precise error function, which takes longer than reading and writing the numbers, and
works it out once more on the way back rather than keeping it; a bias's gradient takes it another pass, and a norm over
a picture two passes each way. Elsewhere, and in float32, all is as torch does it.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.model.gpu import kernel, multiplies, takes

BLOCK, WARPS = 2048, 4  # numbers of one program, and its warps
PATCH = {"ROWS": 64, "COLUMNS": 64, "num_warps": 8}  # of rows with a bias, those of one program
TILE = 8192  # numbers of a picture that a program works on at once
MOST = 512  # features of a pixel that it takes
LAST = torch.channels_last


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x) (Hendrycks and Gimpel, 2016)."""
    return plain(x.contiguous()) if takes(x) else F.gelu(x)


def gelu_of(layer: nn.Module, x: Tensor) -> Tensor:
    """GELU(layer(x))."""
    if type(layer) is not nn.Linear or layer.bias is None or not multiplies(x):
        return gelu(layer(x))
    found: Tensor = behind_bias(F.linear(x, layer.weight).contiguous(), layer.bias)
    return found


def normed_gelu(z: Tensor, norm: nn.GroupNorm) -> Tensor:
    """(b, c, y, x): GELU(norm(z)), for a norm of one group, which is a whole picture."""
    if not takes(z) or norm.num_groups != 1 or z.shape[1] > MOST:
        return F.gelu(norm(z))
    found: Tensor = behind_norm(z.contiguous(memory_format=LAST), norm.weight, norm.bias, norm.eps)[0]
    return found


def in_blocks(x: Tensor) -> tuple[int]:
    return (-(-x.numel() // BLOCK),)


@torch.library.custom_op("vitlab::gelu", mutates_args=(), device_types="cuda")
def plain(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    if x.numel():
        kernel("gelu_kernels", "gelu_there")[in_blocks(x)](x, y, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return y


@torch.library.custom_op("vitlab::gelu_backward", mutates_args=(), device_types="cuda")
def plain_backward(asked: Tensor, x: Tensor) -> Tensor:
    given = torch.empty_like(x)
    if x.numel():
        kernel("gelu_kernels", "gelu_back")[in_blocks(x)](asked, x, given, x.numel(), BLOCK=BLOCK, num_warps=WARPS)
    return given


@torch.library.custom_op("vitlab::bias_gelu", mutates_args=(), device_types="cuda")
def behind_bias(x: Tensor, bias: Tensor) -> Tensor:
    y = torch.empty_like(x)
    if x.numel():
        kernel("gelu_kernels", "bias_gelu_there")[patches(x)](x, bias, y, rows_of(x), WIDTH=x.shape[-1], **PATCH)
    return y


@torch.library.custom_op("vitlab::bias_gelu_backward", mutates_args=(), device_types="cuda")
def behind_bias_backward(asked: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of x, and that of the bias in parts."""
    given, biases = torch.empty_like(x), bias_parts(x)
    if x.numel():
        pointers = (asked, x, bias, given, biases)
        kernel("gelu_kernels", "bias_gelu_back")[patches(x)](*pointers, rows_of(x), WIDTH=x.shape[-1], **PATCH)
    return given, biases


@torch.library.custom_op("vitlab::norm_gelu", mutates_args=(), device_types="cuda")
def behind_norm(z: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """What it gives, and each picture's mean and 1 / √(variance + ε)."""
    y, moments = torch.empty_like(z), moments_of(z)
    if z.numel():
        kernel("gelu_kernels", "norm_gelu_there")[(len(z),)](z, weight, bias, y, moments, epsilon, **tile(z))
    return y, moments


@torch.library.custom_op("vitlab::norm_gelu_backward", mutates_args=(), device_types="cuda")
def behind_norm_backward(
    asked: Tensor, z: Tensor, weight: Tensor, bias: Tensor, moments: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    given, weights, biases = torch.empty_like(z), shares_of(z), shares_of(z)
    if z.numel():
        pointers = (asked, z, weight, bias, moments, given, weights, biases)
        kernel("gelu_kernels", "norm_gelu_back")[(len(z),)](*pointers, **tile(z))
    return given, weights, biases


def rows_of(x: Tensor) -> int:
    return x.shape[:-1].numel()


def patches(x: Tensor) -> tuple[int, int]:
    return -(-rows_of(x) // PATCH["ROWS"]), -(-x.shape[-1] // PATCH["COLUMNS"])


def bias_parts(x: Tensor) -> Tensor:
    return x.new_empty(patches(x)[0], x.shape[-1], dtype=torch.float32)


def tile(z: Tensor) -> dict[str, int]:
    """What a program is written for: a picture's pixels and features, and how many of them it takes at once."""
    pixels, channels = z.shape[2] * z.shape[3], z.shape[1]
    columns = max(16, 1 << (channels - 1).bit_length())
    return {"PIXELS": pixels, "CHANNELS": channels, "ROWS": TILE // columns, "COLUMNS": columns, "num_warps": 16}


def moments_of(z: Tensor) -> Tensor:
    return z.new_empty(len(z), 2, dtype=torch.float32)


def shares_of(z: Tensor) -> Tensor:
    return z.new_empty(*z.shape[:2], dtype=torch.float32)


@plain.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


@plain_backward.register_fake
def _(asked: Tensor, x: Tensor) -> Tensor:
    return torch.empty_like(x)


@behind_bias.register_fake
def _(x: Tensor, bias: Tensor) -> Tensor:
    return torch.empty_like(x)


@behind_bias_backward.register_fake
def _(asked: Tensor, x: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), bias_parts(x)


@behind_norm.register_fake
def _(z: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(z), moments_of(z)


@behind_norm_backward.register_fake
def _(asked: Tensor, z: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(z), shares_of(z), shares_of(z)


def keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def backward(ctx: Any, asked: Tensor) -> Tensor:
    found: Tensor = plain_backward(asked.contiguous(), *ctx.saved_tensors)
    return found


def backward_bias(ctx: Any, asked: Tensor) -> tuple[Tensor, Tensor]:
    given, biases = behind_bias_backward(asked.contiguous(), *ctx.saved_tensors)
    return given, biases.sum(0)


def keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], output[1])


def backward_norm(ctx: Any, asked: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    given, weights, biases = behind_norm_backward(asked.contiguous(memory_format=LAST), *ctx.saved_tensors)
    return given, weights.sum(0), biases.sum(0), None


plain.register_autograd(backward, setup_context=keep)
behind_bias.register_autograd(backward_bias, setup_context=keep)
behind_norm.register_autograd(backward_norm, setup_context=keep_norm)
