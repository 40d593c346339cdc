"""The Vision Transformer: images → tokens → positions → blocks → head, in one forward."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from vitlab.errors import BadInput, shorten
from vitlab.model.attention import Attention, Softmax, Uniform
from vitlab.model.blocks import Block, BlockLayer, Stack
from vitlab.model.heads import OUTPUTS, ClassToken, Head, Output, PoolReader
from vitlab.model.layout import Layout, Shape
from vitlab.model.positions import Learned, Positions, Rotary, Turning
from vitlab.model.stream import Maps, Stream, evenly, follow
from vitlab.model.tokens import ConvPatches, Tokens

Start = Literal["xavier", "zero", "torch"]


@dataclass(frozen=True)
class ViT:
    """logits = head(norm(blockᴸ(… block¹([class; registers; tokens(x)] + positions)))) (Dosovitskiy et al., 2021)."""

    kind: ClassVar[str] = "vit"
    width: int = 64  # features of a token
    depth: int = 4  # blocks
    registers: int = 0  # learned tokens beside the patches, not read by the head (Darcet et al., 2024)
    final_norm: bool = True  # normalise the tokens before the head
    output: Output = "logits"  # what forward gives; report R1 gave softmax to cross-entropy, R0 log-softmax
    across: Literal["tokens", "batch"] = "tokens"  # what attends to what; batch: report R4's axes, pictures mixed
    start: Start = "xavier"  # first weights; zero: xavier, but residual branches start at 0; torch: PyTorch's own
    copies: bool = False  # blocks start as copies of the first, as in nn.TransformerEncoder (report R4)
    tokens: Tokens = field(default_factory=ConvPatches)  # image → tokens; its kinds: 'vitlab settings digits tokens'
    positions: Positions = field(default_factory=Learned)  # how a token's place is known
    attention: Attention = field(default_factory=Softmax)  # how tokens exchange what they hold
    block: Block = field(default_factory=Block)  # norms, MLP and regularisation
    head: Head = field(default_factory=ClassToken)  # which tokens are read for the logits

    def build(self, shape: Shape, classes: int) -> "VisionTransformer":
        check_size(self.width, self.depth, classes)
        if self.registers < 0:
            raise BadInput(f"registers must be 0 or more, not {self.registers}")
        if self.copies and self.start == "zero":
            raise BadInput("copies that start at zero all get the same gradient, and stay copies: choose another start")
        if self.across == "batch" and not isinstance(self.attention, Softmax | Uniform):
            raise BadInput(f"across batch mixes pictures, which attention {self.attention.kind} cannot: use softmax")
        if self.across == "batch" and isinstance(self.positions, Rotary):
            raise BadInput("across batch mixes pictures, and positions rotary turn tokens: choose other positions")
        if self.across == "batch" and self.block.shift:
            raise BadInput("across batch mixes pictures, and shift takes features from neighbours in one: use shift=0")
        return VisionTransformer(self, shape, classes)


class VisionTransformer(nn.Module):
    def __init__(self, settings: ViT, shape: Shape, classes: int):
        super().__init__()
        width = settings.width
        self.shape, self.width = shape, width
        self.output: Output = settings.output
        self.across = settings.across
        self.tokens = settings.tokens.build(shape, width)
        extra = settings.head.own_tokens + settings.registers
        self.layout = Layout(extra, self.tokens.grids)
        self.extra = nn.Parameter(torch.empty(extra, width)) if extra else None
        self.positions = settings.positions.build(self.layout, width, settings.attention.head_width(width))
        self.blocks = Stack(settings.block, settings.depth, width, settings.attention, self.layout)
        self.norm = settings.block.normalise(width) if settings.final_norm else nn.Identity()
        self.head = settings.head.build(width, classes, self.layout)
        FIRST_WEIGHTS[settings.start](self)
        if settings.copies:
            for block in self.blocks:
                block.load_state_dict(self.blocks[0].state_dict())

    def forward(self, pictures: Tensor, places: Tensor | None = None) -> Tensor:
        """(b, c, y, x) → (b, classes), in the form that `output` names; of some patches alone, as in `enter`."""
        return OUTPUTS[self.output](self.logits(pictures, places))

    def logits(self, pictures: Tensor, places: Tensor | None = None) -> Tensor:
        return self.head.logits(self.features(pictures, places))

    def features(self, pictures: Tensor, places: Tensor | None = None) -> Tensor:
        """(b, c, y, x) → (b, d): what the logits are made of; of the patches at `places` alone, as in `enter`."""
        tokens, rotation = self.enter(pictures, places)
        if self.across == "batch":  # each place of the picture attends to the same place of the other pictures
            tokens = self.blocks(tokens.transpose(0, 1), rotation).transpose(0, 1)[:, self.head.read]
        else:
            tokens = self.blocks(tokens, rotation, self.head.read)
        return self.head.pool(self.norm(tokens))

    def enter(self, pictures: Tensor, places: Tensor | None = None) -> tuple[Tensor, Turning | None]:
        """The tokens that the blocks are given, and how these turn them: extra tokens, and patches.

        With `places` (b, m), the patches there alone, of pictures that are whole, or that show nothing else, and then
        in the picture's order.
        """
        if places is None:
            return self.embed(pictures), self.positions.rotation
        tokens, rotation = self.tokens(pictures), self.positions.rotation
        if pictures.shape[-2:] == (self.shape.height, self.shape.width):
            tokens = tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
        extra = torch.arange(self.layout.extra, device=places.device).expand(len(places), -1)
        places = torch.cat([extra, places + self.layout.extra], dim=1)
        return self.positions(self.led(tokens), places), None if rotation is None else rotation.at(places)

    def embed(self, pictures: Tensor) -> Tensor:
        """(b, c, y, x) → (b, n, d): extra tokens and patches, with their positions."""
        embedded: Tensor = self.positions(self.led(self.tokens(pictures)))
        return embedded

    def led(self, tokens: Tensor) -> Tensor:
        """Tokens, with the extra ones before them."""
        if self.extra is None:
            return tokens
        return torch.cat([self.extra.to(tokens.dtype).expand(tokens.shape[0], -1, -1), tokens], dim=1)

    def trace(self, pictures: Tensor, by_map: bool = False) -> Stream:
        """The way of these pictures' tokens through the blocks, to look at."""
        if self.across == "batch":
            raise BadInput("this model attends across the batch, from picture to picture: no map lies on one picture")
        tokens, rotation = self.embed(pictures), self.positions.rotation
        weigh = self.weigh if isinstance(self.head, PoolReader) else evenly
        return follow(self.layout, self.blocks, rotation, tokens, read=self.head.read, weigh=weigh, by_map=by_map)

    def weigh(self, read: Tensor) -> Tensor:
        """The last tokens that are read (b, m, d) → how much each counts (b, m), where these weigh differently."""
        assert isinstance(self.head, PoolReader)
        return self.head.shares(self.norm(read))

    def finish(self, tokens: Tensor) -> Tensor:
        """Tokens (b, n, d) → logits (b, classes)."""
        return self.head(self.norm(tokens[:, self.head.read]))

    def lens(self, stream: Stream) -> list[Tensor]:
        """The logits that the head would give before the first block and after each (nostalgebraist, 2020)."""
        return [self.finish(tokens) for tokens in stream.tokens]

    def maps(self, pictures: Tensor) -> list[Maps]:
        """The attention that `forward` uses on these pictures, as one stream; none where it is across the batch."""
        return [] if self.across == "batch" else [self.trace(pictures).maps()]


def check_size(width: int, depth: int, classes: int) -> None:
    for name, value, least in (("width", width, 1), ("depth", depth, 0), ("the number of classes", classes, 1)):
        if not least <= value < 2**31:
            raise BadInput(f"{name} must be {least} or more, and below 2³¹, not {shorten(str(value))}")


def leave_to_torch(model: nn.Module) -> None:
    """torch's own first weights for every layer, and N(0, 1) for tables and extra tokens, as torch.randn gives."""
    for name, parameter in model.named_parameters():
        if name.endswith(("extra", "positions.table")):
            nn.init.normal_(parameter)


def initialise(model: nn.Module) -> None:
    """Xavier for dense layers (queries, keys and values apart), zero biases, 0.02 for the logits and extra tokens."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            if name.endswith("logits"):
                nn.init.trunc_normal_(module.weight, std=0.02)
            else:
                for matrix in module.weight.chunk(3) if name.endswith("qkv") else [module.weight]:
                    nn.init.xavier_uniform_(matrix)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for name, parameter in model.named_parameters():
        if name.endswith("extra"):
            nn.init.trunc_normal_(parameter, std=0.02)


def branches_at_zero(model: nn.Module) -> None:
    """As `initialise`, but the last matrix of every branch is 0, so that each block first passes its tokens on."""
    initialise(model)
    for part in model.modules():
        if isinstance(part, BlockLayer):
            nn.init.zeros_(part.attention.last)
            nn.init.zeros_(part.mlp.leave.weight)


FIRST_WEIGHTS: dict[Start, Callable[[nn.Module], None]] = {
    "xavier": initialise,
    "zero": branches_at_zero,
    "torch": leave_to_torch,
}
