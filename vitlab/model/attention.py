"""Attention: each kind mixes tokens in `forward`, fast, and in `map` returns the very weights it mixed them with.

For every kind, join(map(x) @ values(x)) = forward(x). Dimensions: b batch, h heads, n tokens, d width, e = d / h.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.model import fused
from vitlab.model.layout import Layout
from vitlab.model.positions import Turning


@dataclass(frozen=True)
class MultiHead:
    """What the kinds with queries and keys share."""

    heads: int = 4  # heads, each of width / heads features
    bias: bool = True  # add a bias to queries, keys and values
    project: bool = True  # mix the heads by an output projection
    scale: Literal["head-width", "width"] = "head-width"  # QKᵀ is divided by √ of this; R1 used the whole width
    qk_norm: bool = False  # RMS norm of queries and keys, as ViT-22B's LayerNorm (after Henry et al., 2020)
    dropout: float = 0.0  # share of attention weights dropped in training
    lean: bool = False  # no bias in the output projection and no weights in the QK norm: fewer passes over memory

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise BadInput(f"attention.dropout is a share from 0 up to 1, not {self.dropout}")

    def head_width(self, width: int) -> int | None:
        if self.heads < 1 or width % self.heads:
            raise BadInput(f"{self.heads} heads do not divide a width of {width}")
        return width // self.heads


@dataclass(frozen=True)
class Softmax(MultiHead):
    """A = softmax(QKᵀ / √e), output = A·V per head (Vaswani et al., 2017)."""

    kind: ClassVar[str] = "softmax"

    def build(self, width: int, layout: Layout) -> "Mixer":
        return SoftmaxMixer(self, width)


@dataclass(frozen=True)
class Linformer(MultiHead):
    """A = softmax(Q(EᵀK)ᵀ / √e), output = A·(FᵀV): n tokens squeezed to k rows by learned E, F (Wang et al., 2020)."""

    kind: ClassVar[str] = "linformer"
    k: int = 16  # rows that the n keys and values are squeezed to
    per_head: bool = False  # learn E and F for each head, rather than one pair for all

    def build(self, width: int, layout: Layout) -> "Mixer":
        if self.k < 1:
            raise BadInput(f"linformer needs k of at least 1, not {self.k}")
        return LinformerMixer(self, width, layout)


@dataclass(frozen=True)
class Uniform:
    """A = 1/n everywhere: output = mean of V, so it costs n·d and needs no queries or keys (report R0's baseline)."""

    kind: ClassVar[str] = "uniform"
    bias: bool = True  # add a bias to the values
    project: bool = True  # output projection

    def head_width(self, width: int) -> int | None:
        return None

    def build(self, width: int, layout: Layout) -> "Mixer":
        return UniformMixer(self, width)


@dataclass(frozen=True)
class Locality(MultiHead):
    """A = softmax(QKᵀ / τ with the diagonal at −∞), τ learned for each head (LSA; Lee et al., 2021)."""

    kind: ClassVar[str] = "locality"

    def build(self, width: int, layout: Layout) -> "Mixer":
        if layout.tokens < 2:
            raise BadInput(
                "attention locality masks a token's own place, so it needs at least 2 tokens: use smaller patches"
            )
        return LocalityMixer(self, width)


def keep(tokens: Tensor, read: slice | None) -> Tensor:
    return tokens if read is None else tokens[:, read]


class Mixer(nn.Module):
    """Tokens (b, n, d) → those in `read` (all, if none is named); `map` gives the weights (b, h, n, n) that did it."""

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        raise NotImplementedError

    def map(self, tokens: Tensor, rotation: Turning | None = None) -> Tensor:
        raise NotImplementedError

    def values(self, tokens: Tensor) -> Tensor:
        """(b, h, n, e): what the weights are applied to."""
        raise NotImplementedError

    def join(self, mixed: Tensor) -> Tensor:
        """Heads (b, h, n, e) side by side, through the output projection: (b, n, d)."""
        raise NotImplementedError

    @property
    def last(self) -> Tensor:
        """The matrix that tokens pass last: the output projection's, or the values' where there is none."""
        raise NotImplementedError


class SoftmaxMixer(Mixer):
    fusible = True  # whether all of it is what one kernel does

    def __init__(self, settings: MultiHead, width: int):
        super().__init__()
        head_width = settings.head_width(width)
        assert head_width is not None
        self.heads = settings.heads
        self.dropout = settings.dropout
        self.norm = settings.qk_norm
        self.scale = (head_width if settings.scale == "head-width" else width) ** -0.5
        self.qkv = nn.Linear(width, 3 * width, bias=settings.bias)
        self.out = nn.Linear(width, width, bias=not settings.lean) if settings.project else nn.Identity()
        learned = not settings.lean
        self.fusible = self.fusible and not (settings.qk_norm and learned)
        self.normalise_queries = RmsNorm(head_width, elementwise_affine=learned) if settings.qk_norm else nn.Identity()
        self.normalise_keys = RmsNorm(head_width, elementwise_affine=learned) if settings.qk_norm else nn.Identity()

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        qkv = self.qkv(tokens)
        if read is None and self.fusible and fused.fits(qkv, self.heads) and not self.drops:
            return self.out(fused.attend(qkv, self.heads, self.scale, self.norm, rotation))
        queries, keys, values = self.split_heads(qkv, rotation)
        if read is not None:  # only these tokens ask
            queries = queries[:, :, read]
        return self.join(self.mix(queries, keys, values))

    def map(self, tokens: Tensor, rotation: Turning | None = None) -> Tensor:
        queries, keys, _ = self.split(tokens, rotation)
        return self.weights(queries, keys)

    def values(self, tokens: Tensor) -> Tensor:
        return self.split(tokens, None)[2]

    def join(self, mixed: Tensor) -> Tensor:
        return self.out(rearrange(mixed, "b h n e -> b n (h e)"))

    @property
    def last(self) -> Tensor:
        return self.out.weight if isinstance(self.out, nn.Linear) else self.qkv.weight.chunk(3)[2]

    def split(self, tokens: Tensor, rotation: Turning | None) -> tuple[Tensor, Tensor, Tensor]:
        return self.split_heads(self.qkv(tokens), rotation)

    def split_heads(self, qkv: Tensor, rotation: Turning | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (b, h, n, e) as they are compared and mixed."""
        # Cut, not unbound from a first axis: the gradients are then joined in one pass, not padded and summed.
        queries, keys, values = (rearrange(part, "b n (h e) -> b n h e", h=self.heads) for part in qkv.chunk(3, dim=-1))
        queries, keys = self.normalise_queries(queries).transpose(1, 2), self.normalise_keys(keys).transpose(1, 2)
        if rotation is not None:
            queries, keys = rotation(queries), rotation(keys)
        return queries, keys, values.transpose(1, 2)

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.explicit(queries):
            return self.weights(queries, keys).to(values.dtype) @ values
        return F.scaled_dot_product_attention(queries, keys, values, scale=self.scale)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.drop((queries * self.scale @ keys.mT).softmax(dim=-1))  # n·e numbers are scaled, not n·n

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout, self.training) if self.dropout else weights

    def explicit(self, queries: Tensor) -> bool:
        """Dropped weights must be those `map` shows; the CPU's fused kernel is slow on few tokens and in bfloat16.

        A graph for any number of tokens cannot ask how many there are.
        """
        # Within whatever is compiled, torch 2.11 says that it is being exported; ours is never both.
        if torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling():
            return True
        slow = queries.device.type == "cpu" and (queries.dtype != torch.float32 or queries.shape[-2] <= 32)
        return slow or self.drops

    @property
    def drops(self) -> bool:
        """Whether weights are dropped now."""
        return self.training and self.dropout > 0


class RmsNorm(nn.RMSNorm):
    """RMSNorm in the type of what it is given, so that autocast's bfloat16 stays on the fused kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, None if self.weight is None else self.weight.to(x.dtype), self.eps)


class LinformerMixer(SoftmaxMixer):
    fusible = False

    def __init__(self, settings: Linformer, width: int, layout: Layout):
        super().__init__(settings, width)
        squeezes = settings.heads if settings.per_head else 1
        self.squeeze_keys = nn.Parameter(torch.randn(squeezes, layout.tokens, settings.k) * layout.tokens**-0.5)
        self.squeeze_values = nn.Parameter(torch.randn(squeezes, layout.tokens, settings.k) * layout.tokens**-0.5)

    def map(self, tokens: Tensor, rotation: Turning | None = None) -> Tensor:
        """softmax(Q(EᵀK)ᵀ)·Fᵀ: the weights on the k rows carried back to the n tokens; they may be negative."""
        queries, keys, _ = self.split(tokens, rotation)
        return self.weights(queries, self.squeeze_keys.mT @ keys) @ self.squeeze_values.mT

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return super().mix(queries, self.squeeze_keys.mT @ keys, self.squeeze_values.mT @ values)


class LocalityMixer(SoftmaxMixer):
    fusible = False

    def __init__(self, settings: Locality, width: int):
        super().__init__(settings, width)
        self.sharpness = nn.Parameter(torch.full((settings.heads,), self.scale))  # 1/τ, one per head

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        return keep(super().forward(tokens, rotation), read)  # the diagonal is that of all tokens

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        if self.explicit(queries):
            return super().mix(queries, keys, values)
        others = ~torch.eye(queries.shape[-2], dtype=torch.bool, device=queries.device)
        sharp = (queries * self.sharpness[:, None, None]).to(queries.dtype)
        return F.scaled_dot_product_attention(sharp, keys, values, attn_mask=others, scale=1.0)

    def weights(self, queries: Tensor, keys: Tensor) -> Tensor:
        own = torch.eye(queries.shape[-2], dtype=torch.bool, device=queries.device)
        scores = (queries @ keys.mT * self.sharpness[:, None, None]).masked_fill(own, -torch.inf)
        return self.drop(scores.softmax(dim=-1))


class UniformMixer(Mixer):
    def __init__(self, settings: Uniform, width: int):
        super().__init__()
        self.value = nn.Linear(width, width, bias=settings.bias)
        self.out = nn.Linear(width, width) if settings.project else nn.Identity()

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        # W·mean(x) + b = mean(W·x + b), so one row is projected rather than n.
        return self.out(self.value(tokens.mean(dim=1, keepdim=True))).expand_as(keep(tokens, read))

    def map(self, tokens: Tensor, rotation: Turning | None = None) -> Tensor:
        batch, count, _ = tokens.shape
        return tokens.new_full((batch, 1, count, count), 1 / count)

    def values(self, tokens: Tensor) -> Tensor:
        return self.value(tokens).unsqueeze(1)

    def join(self, mixed: Tensor) -> Tensor:
        return self.out(mixed.squeeze(1))

    @property
    def last(self) -> Tensor:
        return self.out.weight if isinstance(self.out, nn.Linear) else self.value.weight


Attention = Softmax | Linformer | Uniform | Locality
