"""Report R0's multi-scale model: one stack of blocks per patch size, side by side, joined at the end."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.model.attention import Attention, Softmax, Uniform
from vitlab.model.blocks import Block, Stack
from vitlab.model.heads import OUTPUTS, ClassToken, Head, Mean, Output
from vitlab.model.layout import Layout, Shape, divide
from vitlab.model.positions import Learned, NoPositions, Positions, Rotary
from vitlab.model.stream import Maps, Stream, follow
from vitlab.model.tokens import ConvPatches
from vitlab.model.vit import FIRST_WEIGHTS, Start, check_size


@dataclass(frozen=True)
class LateClassToken:
    """As written in R0: the class token joins after the last block, so it never meets a patch: it cannot see."""

    kind: ClassVar[str] = "late-class-token"

    def build(self, settings: "MultiScale", classes: int, layout: Layout) -> "Join":
        if isinstance(settings.positions, Rotary):
            raise BadInput("join late-class-token adds positions last, and rotary ones are not added: choose others")
        return Join(settings, classes, layout, ClassToken(), positions=settings.positions, depth=0)


@dataclass(frozen=True)
class MeanJoin:
    """logits = W·norm(mean over the tokens of all scales) + b: the smallest join that sees."""

    kind: ClassVar[str] = "mean"

    def build(self, settings: "MultiScale", classes: int, layout: Layout) -> "Join":
        return Join(settings, classes, layout, Mean(), positions=NoPositions(), depth=0)


@dataclass(frozen=True)
class ClassAttention:
    """One more block over [class; tokens of all scales], then the class token is read (after Touvron et al., 2021)."""

    kind: ClassVar[str] = "class-attention"

    def build(self, settings: "MultiScale", classes: int, layout: Layout) -> "Join":
        return Join(settings, classes, layout, ClassToken(), positions=NoPositions(), depth=1)


JoinKind = LateClassToken | MeanJoin | ClassAttention


@dataclass(frozen=True)
class MultiScale:
    """tokensᵢ = blocksᵢ(patches of side pᵢ), heads / scales heads each; logits = join(tokens₁ …) (report R0)."""

    kind: ClassVar[str] = "multi-scale"
    width: int = 64  # features of a token, at every scale
    depth: int = 4  # blocks of each stack
    patches: tuple[int, ...] = (7, 14)  # side of the patches of each scale
    output: Output = "logits"  # what forward gives; report R0 gave log-softmax
    start: Start = "xavier"  # first weights; torch: its layers' own, tables and tokens N(0, 1)
    positions: Positions = field(
        default_factory=Learned
    )  # added at each scale's start; late-class-token adds them last
    attention: Attention = field(default_factory=Softmax)  # its heads are shared out among the scales
    block: Block = field(default_factory=Block)  # norms, MLP and regularisation, each scale's own
    join: JoinKind = field(default_factory=MeanJoin)  # how the scales meet

    def build(self, shape: Shape, classes: int) -> "MultiScaleTransformer":
        check_size(self.width, self.depth, classes)
        if not self.patches:
            raise BadInput("multi-scale needs at least one patch side")
        return MultiScaleTransformer(self, shape, classes)

    def attention_of_a_scale(self) -> Attention:
        if isinstance(self.attention, Uniform):
            return self.attention
        if self.attention.heads % len(self.patches):
            raise BadInput(f"{self.attention.heads} heads do not split evenly between {len(self.patches)} scales")
        return replace(self.attention, heads=self.attention.heads // len(self.patches))


class Join(nn.Module):
    """[class token, where the head reads one; tokens of each scale] + positions → blocks → norm → head."""

    def __init__(
        self, settings: MultiScale, classes: int, layout: Layout, head: Head, *, positions: Positions, depth: int
    ):
        super().__init__()
        self.layout = Layout(head.own_tokens, layout.grids)
        self.extra = nn.Parameter(torch.empty(head.own_tokens, settings.width)) if head.own_tokens else None
        self.positions = positions.build(self.layout, settings.width, head_width=None)
        self.blocks = Stack(settings.block, depth, settings.width, settings.attention, self.layout)
        self.norm = settings.block.normalise(settings.width)
        self.head = head.build(settings.width, classes, self.layout)

    def forward(self, scales: list[Tensor]) -> Tensor:
        return self.head.logits(self.features(scales))

    def features(self, scales: list[Tensor]) -> Tensor:
        return self.head.pool(self.norm(self.blocks(self.enter(scales), None, self.head.read)))

    def enter(self, scales: list[Tensor]) -> Tensor:
        """[extra; tokens of scale 1; tokens of scale 2; …], with their positions."""
        tokens = torch.cat(scales, dim=1)
        if self.extra is not None:
            tokens = torch.cat([self.extra.to(tokens.dtype).expand(tokens.shape[0], -1, -1), tokens], dim=1)
        return self.positions(tokens)


class Scale(nn.Module):
    """One patch size, with tokens, positions and blocks of its own."""

    def __init__(self, settings: MultiScale, shape: Shape, patch: int, positions: Positions):
        super().__init__()
        width, attention = settings.width, settings.attention_of_a_scale()
        self.layout = Layout(0, (divide(shape, patch),))
        self.tokens = ConvPatches(patch).build(shape, width)
        self.positions = positions.build(self.layout, width, attention.head_width(width))
        self.blocks = Stack(settings.block, settings.depth, width, attention, self.layout)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.blocks(self.embed(pictures), self.positions.rotation)

    def embed(self, pictures: Tensor) -> Tensor:
        return self.positions(self.tokens(pictures))

    def trace(self, pictures: Tensor, by_map: bool = False) -> Stream:
        tokens, rotation = self.embed(pictures), self.positions.rotation
        return follow(self.layout, self.blocks, rotation, tokens, read=slice(None), by_map=by_map)


class MultiScaleTransformer(nn.Module):
    def __init__(self, settings: MultiScale, shape: Shape, classes: int):
        super().__init__()
        self.shape = shape
        self.output: Output = settings.output
        early: Positions = NoPositions() if isinstance(settings.join, LateClassToken) else settings.positions
        self.scales = nn.ModuleList(Scale(settings, shape, patch, early) for patch in settings.patches)
        grids = tuple(divide(shape, patch) for patch in settings.patches)
        self.join = settings.join.build(settings, classes, Layout(0, grids))
        FIRST_WEIGHTS[settings.start](self)

    def forward(self, pictures: Tensor) -> Tensor:
        """(b, c, y, x) → (b, classes), in the form that `output` names."""
        return OUTPUTS[self.output](self.logits(pictures))

    def logits(self, pictures: Tensor) -> Tensor:
        return self.join([scale(pictures) for scale in self.scales])

    def features(self, pictures: Tensor) -> Tensor:
        """(b, c, y, x) → (b, d): what the logits are made of."""
        return self.join.features([scale(pictures) for scale in self.scales])

    def trace(self, pictures: Tensor, by_map: bool = False) -> Stream:
        """The join's stream, fed by one for each scale, to look at."""
        scales = tuple(scale.trace(pictures, by_map) for scale in self.scales if isinstance(scale, Scale))
        join, tokens = self.join, self.join.enter([stream.tokens[-1] for stream in scales])
        return follow(join.layout, join.blocks, None, tokens, read=join.head.read, before=scales, by_map=by_map)

    def finish(self, tokens: Tensor) -> Tensor:
        """The join's last tokens (b, n, d) → logits (b, classes)."""
        return self.join.head(self.join.norm(tokens[:, self.join.head.read]))

    def lens(self, stream: Stream) -> list[Tensor]:
        """The logits that the join would give of the scales before their first block and after each."""
        return [self.join(list(scales)) for scales in zip(*(scale.tokens for scale in stream.before), strict=True)]

    def maps(self, pictures: Tensor) -> list[Maps]:
        """The attention that `forward` uses on these pictures: a stream per scale, and the join's where it attends."""
        return [stream.maps() for stream in self.trace(pictures).all() if len(stream.blocks)]
