"""A block: attention, then an MLP, each on a residual branch with its norm, layer scale and stochastic depth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.errors import BadInput
from vitlab.model.attention import Attention, RmsNorm, keep
from vitlab.model.gelu import gelu_of
from vitlab.model.layout import Layout
from vitlab.model.positions import Turning


@dataclass(frozen=True)
class Block:
    """before: x ← x + f(norm(x)) (Xiong et al., 2020) · after: x ← norm(x + f(x)) (Vaswani et al., 2017).

    between: x ← norm(x + attention(norm(x))), x ← x + mlp(x), as CCT was published (Hassani et al., 2021).
    """

    norm: Literal["before", "after", "between", "none"] = "before"  # where each branch is normalised
    norm_kind: Literal["layer", "rms"] = "layer"  # LayerNorm or RMSNorm
    activation: Literal["gelu", "relu", "swiglu"] = "gelu"  # of the MLP; swiglu keeps the number of weights
    mlp: float = 4.0  # hidden features of the MLP, in widths
    shift: int = 0  # cut the features into so many groups and shift four of them by a patch (after Wang et al., 2022)
    dropout: float = 0.0  # share dropped at the end of each branch
    hidden_dropout: float = 0.0  # share of the MLP's hidden features dropped
    stochastic_depth: float = 0.0  # share of pictures that skip the last block's branches; grows with depth from 0
    layer_scale: float = 0.0  # first value of the learned scale on each branch (Touvron et al., 2021); 0: none
    lean: bool = False  # no biases in the MLP and no weights in the norms: fewer passes over memory
    epsilon: float = 1e-6  # added to the variance by the norms

    def __post_init__(self) -> None:
        for name in ("dropout", "hidden_dropout", "stochastic_depth"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"block.{name} is a share from 0 up to 1, not {getattr(self, name)}")
        if self.epsilon < 0:
            raise BadInput(f"epsilon must be 0 or more, not {self.epsilon}")

    def normalise(self, width: int) -> nn.Module:
        if self.norm_kind == "rms":
            return RmsNorm(width, eps=self.epsilon, elementwise_affine=not self.lean)
        return nn.LayerNorm(width, eps=self.epsilon, elementwise_affine=not self.lean)

    def build(self, width: int, attention: Attention, layout: Layout, depth: float) -> "BlockLayer":
        """One block; `depth` is its place in the stack, from 0 (first) to 1 (last)."""
        return BlockLayer(self, width, attention, layout, self.stochastic_depth * depth)


class BlockLayer(nn.Module):
    def __init__(self, settings: Block, width: int, attention: Attention, layout: Layout, skip: float):
        super().__init__()
        self.place = settings.norm
        self.attention = attention.build(width, layout)
        self.mlp = Mlp(settings, width, layout)
        no_norm = settings.norm == "none"
        self.norm_attention = nn.Identity() if no_norm else settings.normalise(width)
        self.norm_mlp = nn.Identity() if no_norm else settings.normalise(width)
        self.end_attention = BranchEnd(settings, width, skip)
        self.end_mlp = BranchEnd(settings, width, skip)

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        """Tokens (b, n, d) → the tokens in `read` (all, if none is named), after attention and MLP."""
        early, late = (read, None) if self.mlp.shift is None else (None, read)  # a shift needs the neighbours
        mixed = self.attention(self.seen(tokens), rotation, early)
        return keep(self.finish(keep(tokens, early), mixed), late)

    def map(self, tokens: Tensor, rotation: Turning | None = None) -> Tensor:
        """The attention weights (b, h, n, n) that `forward` uses on these tokens."""
        return self.attention.map(self.seen(tokens), rotation)

    def through(self, tokens: Tensor, weights: Tensor) -> Tensor:
        """What `forward` gives when attention mixes by these weights; by those of `map`, it is `forward`."""
        values = self.attention.values(self.seen(tokens))
        return self.finish(tokens, self.attention.join(weights.to(values.dtype) @ values))

    def seen(self, tokens: Tensor) -> Tensor:
        """The tokens as attention sees them."""
        return tokens if self.place == "after" else self.norm_attention(tokens)

    def finish(self, tokens: Tensor, mixed: Tensor) -> Tensor:
        """Add what attention mixed, then the MLP."""
        tokens = tokens + self.end_attention(mixed)
        if self.place == "after":
            tokens = self.norm_attention(tokens)
            return self.norm_mlp(tokens + self.end_mlp(self.mlp(tokens)))
        if self.place == "between":
            tokens = self.norm_mlp(tokens)
            return tokens + self.end_mlp(self.mlp(tokens))
        return tokens + self.end_mlp(self.mlp(self.norm_mlp(tokens)))


class Stack(nn.ModuleList):
    """Blocks one after another, each with weights of its own."""

    def __init__(self, settings: Block, depth: int, width: int, attention: Attention, layout: Layout):
        super().__init__(
            settings.build(width, attention, layout, i / (depth - 1) if depth > 1 else 1.0) for i in range(depth)
        )

    def forward(self, tokens: Tensor, rotation: Turning | None = None, read: slice | None = None) -> Tensor:
        """All blocks; the last one works only on the tokens in `read`, since nothing looks at the others."""
        if read == slice(0, None):
            read = None
        for place, block in enumerate(self, start=1):
            tokens = block(tokens, rotation, read if place == len(self) else None)
        return tokens if len(self) else keep(tokens, read)


class Mlp(nn.Module):
    """W₂·act(W₁·x), or W₂·(silu(W₁·x) ⊙ W₃·x) for SwiGLU (Shazeer, 2020); `shift` brings neighbours into x."""

    def __init__(self, settings: Block, width: int, layout: Layout):
        super().__init__()
        hidden = round(settings.mlp * width)
        if not 1 <= hidden < 2**31:
            raise BadInput(f"an MLP of {settings.mlp} widths cannot be built at width {width}")
        if settings.shift and (settings.shift < 4 or width % settings.shift):
            raise BadInput(
                "shift cuts the width into 4 equal groups or more, one for each neighbour, "
                f"and {settings.shift} are none of a width of {width}"
            )
        gated = settings.activation == "swiglu"
        if gated:
            hidden = max(round(hidden * 2 / 3 / 8) * 8, 8)  # three matrices of ⅔ the size weigh as much as two
        self.activated = ACTIVATIONS[settings.activation]
        self.enter = nn.Linear(width, 2 * hidden if gated else hidden, bias=not settings.lean)
        self.shift = Shift(settings.shift, layout) if settings.shift else None
        self.leave = nn.Linear(hidden, width, bias=not settings.lean)
        self.dropout = nn.Dropout(settings.hidden_dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.activated(self.enter, tokens if self.shift is None else self.shift(tokens))
        return self.leave(self.dropout(features))


def relu_of(layer: nn.Module, x: Tensor) -> Tensor:
    return F.relu(layer(x))


def gated_silu_of(layer: nn.Module, x: Tensor) -> Tensor:
    """silu(W₁·x) ⊙ W₃·x, both matrices in one layer."""
    gate, features = layer(x).chunk(2, dim=-1)
    return F.silu(gate) * features


ACTIVATIONS: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "gelu": gelu_of,
    "relu": relu_of,
    "swiglu": gated_silu_of,
}


class Shift(nn.Module):
    """x[i, group g] ← x[neighbour of i above, below, left or right for g = 0 … 3, g], 0 beyond the edge."""

    def __init__(self, groups: int, layout: Layout):
        super().__init__()
        source, inside = layout.neighbours()
        stay = torch.arange(layout.tokens).expand(groups - len(source), -1)
        opposite = [1, 0, 3, 2]  # what came from above goes back to it from below
        for name, order in (("", [0, 1, 2, 3]), ("_back", opposite)):
            self.register_buffer(f"source{name}", torch.cat([source[order], stay]).mT.contiguous(), persistent=False)
            kept = torch.cat([inside[order], torch.ones_like(stay, dtype=torch.bool)]).mT.unsqueeze(-1)
            self.register_buffer(f"inside{name}", kept.contiguous(), persistent=False)
        self.groups = groups
        self.extra, self.grids, self.tokens = layout.extra, layout.grids, layout.tokens
        self.smaller: Shift | None = None  # for pictures of fewer patches, where there are such

    def allow(self, layout: Layout) -> None:
        """Take pictures of this layout as well."""
        self.smaller = Shift(self.groups, layout) if layout.tokens != self.tokens else None

    def forward(self, tokens: Tensor) -> Tensor:
        if self.smaller is not None and tokens.shape[1] != self.tokens:
            return self.smaller(tokens)
        if tokens.is_cuda:
            return self.by_slices(tokens)
        there, back = (self.source, self.inside), (self.source_back, self.inside_back)
        moved: Tensor = Move.apply(tokens.unflatten(-1, (self.groups, -1)), *there, *back)
        return moved.flatten(-2)

    def by_slices(self, tokens: Tensor) -> Tensor:
        """The same by the sides of the grids, which a GPU reads faster; a graph for pictures of any size has none."""
        extra, *parts = tokens.split([self.extra, *(grid.tokens for grid in self.grids)], dim=1)
        laid = [part.unflatten(1, (grid.rows, grid.columns)) for part, grid in zip(parts, self.grids, strict=True)]
        return torch.cat([extra, *(step(patches, self.groups).flatten(1, 2) for patches in laid)], dim=1)


def step(patches: Tensor, groups: int) -> Tensor:
    """(b, y, x, d): the first of `groups` comes from above, the second from below, then left and right."""
    group = patches.shape[-1] // groups
    sides = ((0, 0, 0, 0, 1, -1), (0, 0, 0, 0, -1, 1), (0, 0, 1, -1), (0, 0, -1, 1))  # one more here, one less there
    *parts, stay = patches.split([group] * len(sides) + [group * (groups - len(sides))], dim=-1)
    return torch.cat([*(F.pad(part, side) for part, side in zip(parts, sides, strict=True)), stay], dim=-1)


class Move(torch.autograd.Function):
    """x[:, source[i, g], g] where inside[i, g], else 0: its gradient is the move back, a gather and not a scatter."""

    generate_vmap_rule = True

    @staticmethod
    def forward(groups: Tensor, source: Tensor, inside: Tensor, source_back: Tensor, inside_back: Tensor) -> Tensor:
        return groups[:, source, torch.arange(source.shape[1], device=source.device)] * inside

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        source, inside, source_back, inside_back = ctx.saved_tensors
        return Move.apply(gradient, source_back, inside_back, source, inside), None, None, None, None


class BranchEnd(nn.Module):
    """What a residual branch passes before it is added: dropout, layer scale, stochastic depth (Huang et al., 2016)."""

    skip: Tensor

    def __init__(self, settings: Block, width: int, skip: float):
        super().__init__()
        self.dropout = nn.Dropout(settings.dropout)
        self.scale = nn.Parameter(torch.full((width,), settings.layer_scale)) if settings.layer_scale else None
        # The share is a tensor and a first block's draws come too, so that blocks of a stack are compiled as one.
        self.skips = settings.stochastic_depth > 0
        self.register_buffer("skip", torch.tensor(skip), persistent=False)

    def forward(self, branch: Tensor) -> Tensor:
        branch = self.dropout(branch)
        if self.scale is not None:
            branch = branch * self.scale.to(branch.dtype)
        if self.skips and self.training:
            kept = torch.rand(len(branch), 1, 1, device=branch.device) >= self.skip
            branch = branch * (kept / (1 - self.skip)).to(branch.dtype)
        return branch
