"""Image → tokens: each kind cuts pictures (b, c, y, x) into patches and embeds them as tokens (b, n, d)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.model.gelu import normed_gelu
from vitlab.model.layout import Grid, Shape, divide


class Tokenizer(nn.Module):
    """Pictures (b, c, y, x) → tokens (b, n, d), the patches of each grid row by row."""

    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class ConvPatches:
    """token = W ∗ patch + b, as one convolution with kernel = stride = patch (Dosovitskiy et al., 2021)."""

    kind: ClassVar[str] = "conv-patches"
    patch: int = 4  # side of a patch, in pixels

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return ConvTokenizer(self, shape, width)


class ConvTokenizer(Tokenizer):
    def __init__(self, settings: ConvPatches, shape: Shape, width: int):
        super().__init__()
        self.grids = (divide(shape, settings.patch),)
        self.embed = nn.Conv2d(shape.channels, width, kernel_size=settings.patch, stride=settings.patch)

    def forward(self, pictures: Tensor) -> Tensor:
        return embed_patches(pictures, self.embed)


@dataclass(frozen=True)
class ResizedPatches:
    """token = W ∗ patch of (R·x·Rᵀ) + b: pictures resized, bicubic, to what a model has learned on (report R2)."""

    kind: ClassVar[str] = "resized-patches"
    patch: int = 16  # side of a patch of the resized picture, in pixels
    size: tuple[int, ...] = (224, 224)  # height and width to resize to

    def build(self, shape: Shape, width: int) -> Tokenizer:
        if len(self.size) != 2 or min(self.size) < 1:
            raise BadInput(f"pictures are resized to a height and a width, such as size=224,224, not {self.size}")
        return ResizedTokenizer(self, shape, width)


class ResizedTokenizer(ConvTokenizer):
    rows: Tensor
    columns: Tensor

    def __init__(self, settings: ResizedPatches, shape: Shape, width: int):
        super().__init__(ConvPatches(settings.patch), Shape(shape.channels, *settings.size), width)
        for name, given, wanted in zip(("rows", "columns"), (shape.height, shape.width), settings.size, strict=True):
            self.register_buffer(name, resizing(given, wanted), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        rows, columns = self.rows.to(pictures.dtype), self.columns.to(pictures.dtype)
        if pictures.shape[-2:] == (rows.shape[1], columns.shape[1]):
            return super().forward(rows @ pictures @ columns.mT)
        height, width = (pictures.shape[i] * len(each) // each.shape[1] for i, each in ((2, rows), (3, columns)))
        return super().forward(F.interpolate(pictures, (height, width), mode="bicubic", antialias=True))  # a part


@dataclass(frozen=True)
class LinearPatches:
    """token = W · flatten(patch) + b: reshape, then a Linear; the same map as conv-patches (reports R1, R3 and R4)."""

    kind: ClassVar[str] = "linear-patches"
    patch: int = 4  # side of a patch, in pixels
    twice: bool = False  # add a second Linear of the same pixels, which report R1 took for positions

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return LinearTokenizer(self, shape, width)


class LinearTokenizer(Tokenizer):
    def __init__(self, settings: LinearPatches, shape: Shape, width: int):
        super().__init__()
        self.patch = settings.patch
        self.grids = (divide(shape, settings.patch),)
        self.embed = nn.Linear(shape.channels * settings.patch**2, width)
        self.again = nn.Linear(shape.channels * settings.patch**2, width) if settings.twice else None

    def forward(self, pictures: Tensor) -> Tensor:
        patches = flatten_patches(pictures, self.patch)
        return self.embed(patches) if self.again is None else self.embed(patches) + self.again(patches)


@dataclass(frozen=True)
class ShiftedPatches:
    """token = W · LN(flatten(patch of [x, x↖, x↗, x↙, x↘])), shifts of half a patch (SPT; Lee et al., 2021)."""

    kind: ClassVar[str] = "shifted-patches"
    patch: int = 4  # side of a patch, in pixels

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return ShiftedTokenizer(self, shape, width)


class ShiftedTokenizer(Tokenizer):
    def __init__(self, settings: ShiftedPatches, shape: Shape, width: int):
        super().__init__()
        self.patch = settings.patch
        self.grids = (divide(shape, settings.patch),)
        features = 5 * shape.channels * settings.patch**2
        self.norm = nn.LayerNorm(features)
        self.embed = nn.Linear(features, width)

    def forward(self, pictures: Tensor) -> Tensor:
        step = max(self.patch // 2, 1)
        # Padding by +s on one side and −s on the other moves the picture and fills the uncovered edge with zeros.
        shifted = [F.pad(pictures, (x, -x, y, -y)) for y in (-step, step) for x in (-step, step)]
        return self.embed(self.norm(flatten_patches(torch.cat([pictures, *shifted], dim=1), self.patch)))


@dataclass(frozen=True)
class ConvStem:
    """token = W ∗ GELU(norm(3×3 ∗ x)): a 3×3 convolution before the patches (after Xiao et al., 2021)."""

    kind: ClassVar[str] = "conv-stem"
    patch: int = 4  # side of a patch, in pixels
    channels: int = 32  # features of the 3×3 convolution

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return StemTokenizer(self, shape, width)


class StemTokenizer(Tokenizer):
    def __init__(self, settings: ConvStem, shape: Shape, width: int):
        super().__init__()
        if settings.channels < 1:
            raise BadInput(f"the conv stem needs at least one channel, not {settings.channels}")
        self.grids = (divide(shape, settings.patch),)
        self.see = nn.Conv2d(shape.channels, settings.channels, kernel_size=3, padding=1)
        # One group normalises within a picture, so that a prediction never depends on its batch neighbours.
        self.norm = nn.GroupNorm(1, settings.channels)
        self.embed = nn.Conv2d(settings.channels, width, kernel_size=settings.patch, stride=settings.patch)

    def forward(self, pictures: Tensor) -> Tensor:
        return embed_patches(normed_gelu(self.see(pictures), self.norm), self.embed)


@dataclass(frozen=True)
class HalvingStem:
    """z = 3×3 ∗ x; until a pixel is a patch: z ← z + 3×3 ∗ f(z) `again` times, z ← 3×3 of stride 2 ∗ f(z).

    f(z) = GELU(norm(z)): the stack of small convolutions of Xiao et al. (2021), here with residual ones in between.
    """

    kind: ClassVar[str] = "halving-stem"
    patch: int = 4  # side of a patch, in pixels: 2, 4, 8 …
    channels: int = 32  # features of the first convolution; each halving but the last doubles them
    again: int = 1  # residual convolutions at each size

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return HalvingTokenizer(self, shape, width)


class HalvingTokenizer(Tokenizer):
    def __init__(self, settings: HalvingStem, shape: Shape, width: int):
        super().__init__()
        self.grids = (divide(shape, settings.patch),)
        halvings = settings.patch.bit_length() - 1
        if settings.patch != 2**halvings or not halvings:
            raise BadInput(f"a stem that halves reaches patches of 2, 4, 8 …, not {settings.patch}")
        if settings.channels < 1 or settings.again < 0:
            raise BadInput(
                "a stem that halves needs a channel or more, and 0 convolutions again or more, "
                f"not {settings.channels} and {settings.again}"
            )
        features = [settings.channels * 2**i for i in range(halvings)] + [width]
        self.see = nn.Conv2d(shape.channels, features[0], kernel_size=3, padding=1)
        self.again = nn.ModuleList(
            nn.ModuleList(Seen(few, few) for _ in range(settings.again)) for few in features[:-1]
        )
        self.halve = nn.ModuleList(Seen(few, many, stride=2) for few, many in pairwise(features))

    def forward(self, pictures: Tensor) -> Tensor:
        # Convolutions read the features of a pixel, and so do the norms between them.
        seen = self.see(pictures).contiguous(memory_format=torch.channels_last)
        for again, halve in zip(self.again, self.halve, strict=True):
            assert isinstance(again, nn.ModuleList)
            for look in again:
                seen = seen + look(seen)
            seen = halve(seen)
        return in_rows(seen)


class Seen(nn.Module):
    """3×3 ∗ GELU(norm(z))."""

    def __init__(self, features: int, wanted: int, stride: int = 1):
        super().__init__()
        # One group normalises within a picture, so that a prediction never depends on its batch neighbours.
        self.norm = nn.GroupNorm(1, features)
        self.convolve = nn.Conv2d(features, wanted, kernel_size=3, stride=stride, padding=1)

    def forward(self, seen: Tensor) -> Tensor:
        return self.convolve(normed_gelu(seen, self.norm))


@dataclass(frozen=True)
class ConvPool:
    """z ← maxpool(ReLU(k×k ∗ z)) `layers` times, the pool 3×3 of stride 2, no biases (CCT; Hassani et al., 2021)."""

    kind: ClassVar[str] = "conv-pool"
    patch: int = 2  # side of a patch, in pixels: each layer has the same share of it, half of which the pool takes
    kernel: int = 3  # side of the filters: 3, 5, 7 …
    layers: int = 1  # convolutions, each with its pool
    channels: int = 64  # features of all convolutions but the last

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return PoolTokenizer(self, shape, width)


class PoolTokenizer(Tokenizer):
    def __init__(self, settings: ConvPool, shape: Shape, width: int):
        super().__init__()
        if settings.layers < 1 or settings.channels < 1 or settings.kernel < 1 or not settings.kernel % 2:
            raise BadInput(
                "conv-pool needs a layer or more, a channel or more and filters of an odd side, "
                f"not {settings.layers}, {settings.channels} and {settings.kernel}"
            )
        strides = range(1, settings.kernel + 1)  # a larger one would pass over pixels
        sides = {(2 * stride) ** settings.layers: stride for stride in strides}
        self.grids = (divide(shape, settings.patch),)
        if settings.patch not in sides:
            some = ", ".join(map(str, sides))
            raise BadInput(
                f"conv-pool of kernel {settings.kernel} and layers {settings.layers} gives patches of {some}, "
                f"not {settings.patch}"
            )
        features = [shape.channels, *[settings.channels] * (settings.layers - 1), width]
        self.see = nn.ModuleList(
            nn.Conv2d(few, many, settings.kernel, sides[settings.patch], settings.kernel // 2, bias=False)
            for few, many in pairwise(features)
        )

    def forward(self, pictures: Tensor) -> Tensor:
        for see in self.see:
            pictures = F.max_pool2d(F.relu(see(pictures)), kernel_size=3, stride=2, padding=1)
        return in_rows(pictures)


@dataclass(frozen=True)
class SeveralScales:
    """tokens = [conv-patches of p₁; conv-patches of p₂; …] side by side in one sequence, each with its own weights."""

    kind: ClassVar[str] = "several-scales"
    patches: tuple[int, ...] = (7, 14)  # sides of the patches, one per scale

    def build(self, shape: Shape, width: int) -> Tokenizer:
        return ScalesTokenizer(self, shape, width)


class ScalesTokenizer(Tokenizer):
    def __init__(self, settings: SeveralScales, shape: Shape, width: int):
        super().__init__()
        if not settings.patches:
            raise BadInput("several-scales needs at least one patch side")
        self.scales = nn.ModuleList(ConvPatches(patch).build(shape, width) for patch in settings.patches)
        self.grids = tuple(divide(shape, patch) for patch in settings.patches)

    def forward(self, pictures: Tensor) -> Tensor:
        return torch.cat([scale(pictures) for scale in self.scales], dim=1)


def resizing(given: int, wanted: int) -> Tensor:
    """(wanted, given): the matrix of a bicubic, antialiased resize of one side; R_y·x·R_xᵀ resizes a picture."""
    each = torch.eye(given)[None, None]
    return F.interpolate(each, size=(wanted, given), mode="bicubic", antialias=True)[0, 0]


def embed_patches(pictures: Tensor, convolution: nn.Conv2d) -> Tensor:
    """A convolution whose stride is its kernel is a matrix product on patches, and is faster as one."""
    patches = flatten_patches(pictures, convolution.kernel_size[0])
    return F.linear(patches, convolution.weight.flatten(1), convolution.bias)


def in_rows(features: Tensor) -> Tensor:
    """(b, d, y, x) → (b, y·x, d), laid out anew: blocks keep the layout they are given, and norms read along d."""
    return rearrange(features, "b d y x -> b (y x) d").contiguous()


def flatten_patches(pictures: Tensor, patch: int) -> Tensor:
    """(b, c, y·p, x·p) → (b, y·x, c·p·p): each patch's pixels in one row."""
    return rearrange(pictures, "b c (y p) (x q) -> b (y x) (c p q)", p=patch, q=patch)


Tokens = (
    ConvPatches | ResizedPatches | LinearPatches | ShiftedPatches | ConvStem | HalvingStem | ConvPool | SeveralScales
)
