"""Vision Transformers as people write them: a sound one, and the same with one mistake each."""

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIDE, PATCH, WIDTH, HEADS, CLASSES = 28, 7, 32, 4, 10
TOKENS = (SIDE // PATCH) ** 2


def cut(pictures: Tensor) -> Tensor:
    """(b, 1, y, x) → (b, n, pixels)."""
    return F.unfold(pictures, PATCH, stride=PATCH).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, divisor: float = math.sqrt(WIDTH // HEADS)):
        super().__init__()
        self.divisor = divisor
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = F.softmax(q @ k.transpose(-2, -1) / self.divisor, dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, -1))


class Block(nn.Module):
    def __init__(self, attention: Callable[[], nn.Module] = Attention):
        super().__init__()
        self.attention = attention()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


class Sound(nn.Module):
    """Patches, a class token, learned positions, three blocks; each mistake overrides one step."""

    def __init__(self, block: Callable[[], nn.Module] = Block, depth: int = 3):
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH, WIDTH)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.place()
        self.blocks = nn.Sequential(*(block() for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def place(self) -> None:
        self.positions = nn.Parameter(torch.randn(1, TOKENS + 1, WIDTH) * 0.02)

    def tokens(self, pictures: Tensor) -> Tensor:
        patches = self.embed(cut(pictures))
        return torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.read(self.blocks(self.tokens(pictures) + self.positions))

    def read(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(tokens[:, 0]))


# What the five reports wrote.


class TwoScales(nn.Module):
    """R0: two stacks side by side; the class token is put in front after the last block, and read."""

    def __init__(self) -> None:
        super().__init__()
        self.embeds = nn.ModuleList(nn.Conv2d(1, WIDTH, side, stride=side) for side in (7, 14))
        self.stacks = nn.ModuleList(nn.Sequential(Block(), Block()) for _ in range(2))
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        streams = [
            stack(embed(pictures).flatten(2).transpose(1, 2))
            for embed, stack in zip(self.embeds, self.stacks, strict=True)
        ]
        tokens = torch.cat([self.token.expand(len(pictures), -1, -1), *streams], dim=1)
        return self.head(self.norm(tokens)[:, 0])


class SoftmaxTwice(Sound):
    """R1: probabilities for cross-entropy."""

    def read(self, tokens: Tensor) -> Tensor:
        return F.softmax(super().read(tokens), dim=-1)


class PixelPositions(Sound):
    """R1: the "position" is a second Linear of the patch's own pixels; the first patch is read."""

    def place(self) -> None:
        self.second = nn.Linear(PATCH * PATCH, WIDTH)

    def forward(self, pictures: Tensor) -> Tensor:
        patches = cut(pictures)
        return (
            self.head(self.norm(self.blocks(self.embed(patches) + self.second(patches))[:, 0])) + 0 * self.token.sum()
        )


class WidthScale(Sound):
    """R1: scores divided by the root of the whole width."""

    def __init__(self) -> None:
        super().__init__(lambda: Block(lambda: Attention(math.sqrt(WIDTH))))


class Bag(nn.Module):
    """R3: one head, no positions, no norms, no output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.token = nn.Linear(PATCH * PATCH, WIDTH), nn.Parameter(torch.randn(1, 1, WIDTH))
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.embed(cut(pictures))
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        x = x + torch.softmax(self.q(x) @ self.k(x).mT / math.sqrt(WIDTH), dim=-1) @ self.v(x)
        return self.head((x + self.mlp(x))[:, 0])


class BatchFirst(nn.Module):
    """R4: nn.TransformerEncoderLayer given (batch, tokens, width), but not told so."""

    def __init__(self, batch_first: bool = False, mean: bool = False):
        super().__init__()
        self.mean = mean
        self.embed = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.positions = nn.Parameter(torch.randn(1, TOKENS + 1, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 64, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.embed(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        x = self.encoder(x)
        return self.head(x.mean(dim=1) if self.mean else x[:, 0])


# What else goes wrong.


class BatchStatistics(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, track_running_stats=False)


class DropoutAlways(Sound):
    def tokens(self, pictures: Tensor) -> Tensor:
        return F.dropout(super().tokens(pictures), 0.1)


class PlainTable(Sound):
    """A position table drawn at random and kept as a plain tensor."""

    def place(self) -> None:
        self.positions = torch.randn(1, TOKENS + 1, WIDTH)


class PlainSinusoids(Sound):
    """The same every time it is built, so nothing is lost; but it does not follow the model to a GPU."""

    def place(self) -> None:
        angles = torch.arange(TOKENS + 1)[:, None] / 100 ** (torch.arange(WIDTH // 2) / (WIDTH // 2))
        self.positions = torch.cat([angles.sin(), angles.cos()], dim=1)[None]


class PlainList(Sound):
    """Blocks in a Python list."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [Block() for _ in range(3)]
        del self.blocks
        self.layers = blocks

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.tokens(pictures) + self.positions
        for block in self.layers:
            tokens = block(tokens)
        return self.read(tokens)


class ForgottenPositions(Sound):
    """Made, but never added."""

    def forward(self, pictures: Tensor) -> Tensor:
        return self.read(self.blocks(self.tokens(pictures)))


class OnePosition(Sound):
    """The same vector for every token."""

    def place(self) -> None:
        self.positions = nn.Parameter(torch.randn(1, 1, WIDTH))


class ColumnsOnly(Sound):
    """A position for each column, none for the rows."""

    def place(self) -> None:
        self.columns = nn.Parameter(torch.randn(SIDE // PATCH, WIDTH))

    def forward(self, pictures: Tensor) -> Tensor:
        patches = self.embed(cut(pictures)) + self.columns.repeat(SIDE // PATCH, 1)
        return self.read(self.blocks(torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1)))


class Squeezed(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens).squeeze()


class FixedBatch(Sound):
    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.tokens(pictures) + self.positions
        return self.read(self.blocks(tokens.reshape(8 if len(tokens) == 8 else 2, TOKENS + 1, WIDTH)))


class ScrambledBatch(Sound):
    """Cuts any number of pixels into patches of the right size: four small pictures or one large one."""

    def tokens(self, pictures: Tensor) -> Tensor:
        patches = self.embed(cut(pictures).reshape(-1, TOKENS, PATCH * PATCH))
        return torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1)


class ReluLogits(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens).relu()


class SigmoidLogits(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens).sigmoid()


class Detached(Sound):
    def tokens(self, pictures: Tensor) -> Tensor:
        return super().tokens(pictures).detach()


class LostCorner(Sound):
    """Patches of the lower half are cut off."""

    def tokens(self, pictures: Tensor) -> Tensor:
        kept = super().tokens(pictures)
        return torch.cat([kept[:, : TOKENS // 2 + 1], torch.zeros_like(kept[:, TOKENS // 2 + 1 :])], dim=1)


class NoScale(Sound):
    def __init__(self) -> None:
        super().__init__(lambda: Block(lambda: Attention(1.0)))


class Wired(Attention):
    """Attention with its steps apart, so that one of them can be wrong."""

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1, HEADS, WIDTH // HEADS).transpose(1, 2)

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-1)

    def join(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).reshape(len(x), -1, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        return self.out(self.join(self.weigh(q @ k.mT / self.divisor) @ v))


class QueriesCompete(Wired):
    """A softmax over the queries."""

    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=-2)


class HeadsCompete(Wired):
    def weigh(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=1)


class HeadsByView(Wired):
    """Cut into heads, and joined again, by a reshape alone."""

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), HEADS, -1, WIDTH // HEADS)

    def join(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, WIDTH)


class JoinedByView(Wired):
    def join(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, WIDTH)


class LostHead(Wired):
    """The last head's place stays empty."""

    def join(self, x: Tensor) -> Tensor:
        return super().join(torch.cat([x[:, :-1], torch.zeros_like(x[:, -1:])], dim=1))


class KeysForValues(Attention):
    """A joint layer for queries, keys and values, of which the values are not read."""

    def __init__(self) -> None:
        super().__init__()
        del self.q, self.k, self.v
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        cut = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(cut[0], cut[1], cut[1]).transpose(1, 2).flatten(2))


def with_attention(attention: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Sound(lambda: Block(attention))


class PatchesByView(Sound):
    """Pixels in the order in which they lie in memory."""

    def tokens(self, pictures: Tensor) -> Tensor:
        patches = self.embed(pictures.reshape(len(pictures), TOKENS, PATCH * PATCH))
        return torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1)


class EveryFourthPixel(Sound):
    """Rows and columns of the grid taken for those of the patch."""

    def tokens(self, pictures: Tensor) -> Tensor:
        side = SIDE // PATCH
        patches = pictures.view(len(pictures), PATCH, side, PATCH, side).permute(0, 2, 4, 1, 3).flatten(3).flatten(1, 2)
        return torch.cat([self.token.expand(len(patches), -1, -1), self.embed(patches)], dim=1)


class CellsByView(Sound):
    """A convolution's (b, d, y, x) taken for (b, y·x, d)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(1, WIDTH, PATCH, stride=PATCH)

    def tokens(self, pictures: Tensor) -> Tensor:
        patches = self.embed(pictures).reshape(len(pictures), TOKENS, WIDTH)
        return torch.cat([self.token.expand(len(patches), -1, -1), patches], dim=1)


class InPlace(Sound):
    def forward(self, pictures: Tensor) -> Tensor:
        return super().forward(pictures.sub_(0.5).div_(0.5))


class TwoAtATime(Sound):
    """A class token for each of two pictures, and for no more."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(2, 1, WIDTH))

    def tokens(self, pictures: Tensor) -> Tensor:
        return torch.cat([self.token, self.embed(cut(pictures))], dim=1)


class FirstPicture(Sound):
    """x[0] for x[:, 0]: the tokens of the first picture."""

    def read(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(tokens[0]))


class OneBlock(Sound):
    """Three names for one block."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*[Block()] * 3)


class HeadsMixed(Wired):
    """Talking heads: what each attends to is mixed by learned weights, after the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(HEADS, HEADS))

    def weigh(self, scores: Tensor) -> Tensor:
        return torch.einsum("bhqk,hg->bgqk", super().weigh(scores), self.mix)


class BetweenChannels(Wired):
    """Attention between channels (XCiT): the same steps, along the other axes."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(f(x)).mT for f in (self.q, self.k, self.v))
        mixed = self.weigh(F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT) @ v
        return self.out(mixed.permute(0, 3, 1, 2).reshape(x.shape))


class Bare(nn.Module):
    """A block without residual connections and norms, its weights a tenth of what they should be."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        nn.init.normal_(self.mix[0].weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x)


class Vanishing(Sound):
    def __init__(self) -> None:
        super().__init__(Bare, 6)
        self.norm = nn.Identity()

    def read(self, tokens: Tensor) -> Tensor:
        return self.head(tokens.mean(dim=1))


class Branching(Sound):
    """Sound, but an if on a value keeps it from being one graph."""

    def read(self, tokens: Tensor) -> Tensor:
        logits = super().read(tokens)
        return logits * 2 if float(logits.detach().sum()) > 1e9 else logits


class Leaving(Sound):
    """Ends the program when it is asked for one picture."""

    def forward(self, pictures: Tensor) -> Tensor:
        if len(pictures) == 1:
            os._exit(3)
        return super().forward(pictures)


class Quitting(Sound):
    """The same, by sys.exit."""

    def forward(self, pictures: Tensor) -> Tensor:
        if len(pictures) == 1:
            sys.exit("one picture is too few")
        return super().forward(pictures)


class Sleeping(Sound):
    def forward(self, pictures: Tensor) -> Tensor:
        if len(pictures) == 1:
            time.sleep(1000)
        return super().forward(pictures)


class NotANumber(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens) / 0 * 0


class Lazy(Sound):
    """Layers that take their size from the first picture."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.LazyLinear(WIDTH)


class Half(Sound):
    """Rounded to 8 bits on the way, as under autocast."""

    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens).bfloat16()


class Remembering(Sound):
    """Keeps what it last saw for a look later."""

    def tokens(self, pictures: Tensor) -> Tensor:
        self.last = super().tokens(pictures)
        return self.last


class Written(Attention):
    """The same attention, its scores written in another way."""

    def __init__(self, scores: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.scores = scores

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.out((self.scores(q, k).softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, -1))


def turn(x: Tensor) -> Tensor:
    """Rotary positions."""
    n, half = x.shape[-2], x.shape[-1] // 2
    angle = torch.arange(n, dtype=x.dtype)[:, None] / 10 ** torch.arange(half, dtype=x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], dim=-1)


ROOT = math.sqrt(WIDTH // HEADS)
SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "scaled, then turned": lambda q, k: turn(q / ROOT) @ turn(k).mT,
    "turned, then scaled": lambda q, k: turn(q) @ turn(k).mT / ROOT,
    "scaled, then joined": lambda q, k: torch.cat([(q / ROOT)[:, :, :1], (q / ROOT)[:, :, 1:]], 2) @ k.mT,
    "cosines": lambda q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * 10,
    "softly capped": lambda q, k: 20 * torch.tanh(q @ k.mT / ROOT / 20),
    "alpha": lambda q, k: torch.baddbmm(
        q.new_zeros(()).expand(len(q) * HEADS, q.shape[2], q.shape[2]),
        q.flatten(0, 1),
        k.flatten(0, 1).mT,
        alpha=1 / ROOT,
    ).unflatten(0, (len(q), HEADS)),
}


class AttentionPool(Sound):
    """A learned query looks at all tokens, as in a Perceiver: its products are no scores of keys and queries."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(2, WIDTH) * 0.02)

    def read(self, tokens: Tensor) -> Tensor:
        weights = torch.einsum("qd,bnd->bqn", self.query, tokens).softmax(dim=-1)
        return self.head(self.norm((weights @ tokens).mean(dim=1)))


class SeveralOutputs(Sound):
    """Logits, and a second head with a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.second = nn.Linear(WIDTH, 4)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        tokens = self.blocks(self.tokens(pictures) + self.positions)
        return {"logits": self.read(tokens), "second": self.second(tokens[:, 1])}


class SilentTrain(Sound):
    """A train() that returns nothing, and blocks that return a dict."""

    def __init__(self) -> None:
        super().__init__(WrappedBlock)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.tokens(pictures) + self.positions
        for block in self.blocks:
            tokens = block(tokens)["tokens"]
        return self.read(tokens)

    def train(self, mode: bool = True) -> None:  # type: ignore[override]
        super().train(mode)


class WrappedBlock(Block):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"tokens": super().forward(x)}


class FrozenBackbone(Sound):
    """Only the head learns."""

    def __init__(self) -> None:
        super().__init__()
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name.startswith("head"))


class OneChannel(nn.Module):
    """Three channels come in, one is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Sound()

    def forward(self, pictures: Tensor) -> Tensor:
        return self.model(pictures[:, :1])


class NegativeShares(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return -10 * super().read(tokens).softmax(dim=-1)


# What cannot be trained, keeps something between calls, or bounds its answers; and what looks like it and is sound.


class ChangedInPlace(Sound):
    """The gradient of a sigmoid needs its output, which is another by then."""

    def tokens(self, pictures: Tensor) -> Tensor:
        tokens = super().tokens(pictures).sigmoid()
        tokens *= 2
        return tokens


class SummedInPlace(Sound):
    """In place, too, and harmless: no gradient needs a sum."""

    def tokens(self, pictures: Tensor) -> Tensor:
        tokens = super().tokens(pictures)
        tokens += 1
        return tokens


class AllZero(Sound):
    """No weight tells two pictures apart, and none learns to."""

    def __init__(self) -> None:
        super().__init__()
        for parameter in self.parameters():
            nn.init.zeros_(parameter)


class ZeroHead(Sound):
    """The head starts at zero, and learns all the same."""

    def __init__(self) -> None:
        super().__init__()
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)


class Lingering(Sound):
    """The tokens of the last batch are added to those of this one."""

    last: Tensor | None = None

    def tokens(self, pictures: Tensor) -> Tensor:
        tokens = super().tokens(pictures)
        mixed = tokens if self.last is None else tokens + 0.1 * self.last.mean(dim=0).to(tokens)
        self.last = tokens.detach()
        return mixed


class Cached(Sound):
    """A table that is made at the first call, and again for another precision."""

    table: Tensor | None = None

    def tokens(self, pictures: Tensor) -> Tensor:
        if self.table is None or self.table.dtype != pictures.dtype:
            self.table = torch.linspace(0, 1, TOKENS + 1, dtype=pictures.dtype)[:, None]
        return super().tokens(pictures) + self.table


class TanhLogits(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return super().read(tokens).tanh()


class SoftCap(Sound):
    """Bounded far out, where it does no harm."""

    def read(self, tokens: Tensor) -> Tensor:
        return 30 * (super().read(tokens) / 30).tanh()


class DroppedLogits(Sound):
    def read(self, tokens: Tensor) -> Tensor:
        return F.dropout(super().read(tokens), 0.3, self.training)


class LostPatch(Sound):
    """The class token takes the place of the first patch."""

    def tokens(self, pictures: Tensor) -> Tensor:
        tokens = super().tokens(pictures)
        return torch.cat([tokens[:, :1], tokens[:, :1], tokens[:, 2:]], dim=1)


class LostRow(Sound):
    """Less is cut off than many a patch leaves over, but at one side only."""

    def tokens(self, pictures: Tensor) -> Tensor:
        return super().tokens(F.pad(pictures[:, :, :-4], (0, 0, 0, 4)))


class OneValue(Wired):
    """Each query finds the same: the mean of all tokens."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        return self.out(self.join(self.weigh(q @ k.mT / self.divisor) @ v.mean(dim=2, keepdim=True).expand_as(v)))


class Widths(Sound):
    """Learned widths, which must be positive: their root is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.widths = nn.Parameter(torch.full((WIDTH,), 0.05))

    def tokens(self, pictures: Tensor) -> Tensor:
        return super().tokens(pictures) * self.widths.sqrt()


class Supervised(Sound):
    """In training each depth has a head and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.others = nn.ModuleList(nn.Linear(WIDTH, CLASSES) for _ in range(2))

    def forward(self, pictures: Tensor) -> Tensor | tuple[Tensor, list[Tensor]]:  # type: ignore[override]
        tokens, others = self.tokens(pictures) + self.positions, []
        for block, head in zip(self.blocks, [*self.others, None], strict=True):
            tokens = block(tokens)
            others += [head(tokens[:, 0])] if head is not None else []
        return (self.read(tokens), others) if self.training else self.read(tokens)


@dataclass
class Distilled:
    logits: Tensor
    teacher: Tensor | None


class DistilledObject(Sound):
    """The same with one head more, in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Distilled:  # type: ignore[override]
        tokens = self.blocks(self.tokens(pictures) + self.positions)
        return Distilled(self.read(tokens), self.teacher(tokens[:, 1]) if self.training else None)


class SinglePrecision(Sound):
    """Whatever comes in goes on in float32, and the blocks start at next to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.full((WIDTH,), 1e-6))

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.tokens(pictures.float()) + self.positions
        return self.read(tokens + self.small * self.blocks(tokens))


class Shifting(Sound):
    """Looks at the picture as far aside as it says itself; at first not at all aside."""

    def __init__(self) -> None:
        super().__init__()
        self.aside = nn.Linear(SIDE * SIDE, 6)
        nn.init.zeros_(self.aside.weight)
        with torch.no_grad():
            self.aside.bias.copy_(torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, pictures: Tensor) -> Tensor:
        middle = pictures[:, :, 4:-4, 4:-4].mean(dim=(2, 3))
        aside = self.aside(middle.expand(-1, SIDE * SIDE)).view(-1, 2, 3)
        places = F.affine_grid(aside, list(pictures.shape), align_corners=False)
        return super().forward(F.grid_sample(pictures, places, align_corners=False))


class Rounded(Sound):
    def tokens(self, pictures: Tensor) -> Tensor:
        return super().tokens((4 * pictures).round().detach())


class RoundedAnswer(Sound):
    """One class named, the others at nought: a part of the picture is mostly too little to name another."""

    def read(self, tokens: Tensor) -> Tensor:
        return F.one_hot(super().read(tokens).argmax(dim=1), CLASSES).to(tokens)


class RoundedHalf(Rounded):
    """And of the left half only."""

    def tokens(self, pictures: Tensor) -> Tensor:
        return super().tokens(torch.cat([pictures[..., : SIDE // 2], 0 * pictures[..., SIDE // 2 :]], dim=-1))


class ThirtyTwo(Sound):
    """A batch size that is written down."""

    def tokens(self, pictures: Tensor) -> Tensor:
        return torch.cat([self.token.expand(32, -1, -1), self.embed(cut(pictures))], dim=1)


class TwoArguments(Sound):
    def forward(self, pictures: Tensor, labels: Tensor) -> Tensor:  # type: ignore[override]
        return F.cross_entropy(super().forward(pictures), labels)


class AsMany(nn.Module):
    """As many cells as features, so that a missing transpose shows nowhere."""

    def __init__(self, transposed: bool):
        super().__init__()
        self.transposed, self.embed = transposed, nn.Conv2d(1, TOKENS, PATCH, PATCH)
        self.positions = nn.Parameter(torch.randn(TOKENS, TOKENS) * 0.02)
        self.mix, self.head = nn.Linear(TOKENS, TOKENS), nn.Linear(TOKENS, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        cells = self.embed(pictures).flatten(2)
        tokens = (cells.mT if self.transposed else cells) + self.positions
        return self.head(self.mix(tokens).relu().mean(dim=1))


class Recurrent(nn.Module):
    """Row after row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.head = nn.GRU(SIDE, WIDTH, batch_first=True), nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(self.rows(pictures[:, 0])[0][:, -1])


SOUND: dict[str, Callable[[], nn.Module]] = {
    "Sound": Sound,
    "batch_first": lambda: BatchFirst(batch_first=True),
    "PlainSinusoids": PlainSinusoids,
    "Branching": Branching,
    "Lazy": Lazy,
    "Half": Half,
    "Remembering": Remembering,
    "HeadsMixed": with_attention(HeadsMixed),
    "BetweenChannels": with_attention(BetweenChannels),
    "Bits16": lambda: Sound().bfloat16(),
    "OneBlock": OneBlock,
    "SummedInPlace": SummedInPlace,
    "ZeroHead": ZeroHead,
    "Cached": Cached,
    "SoftCap": SoftCap,
    "Widths": Widths,
    "Supervised": Supervised,
    "DistilledObject": DistilledObject,
    "SinglePrecision": SinglePrecision,
    "Shifting": Shifting,
    "Recurrent": Recurrent,
}

# Each mistake, and the probes that must find it; no other may.
MISTAKES: dict[str, tuple[Callable[[], nn.Module], set[str]]] = {
    "R0 TwoScales": (TwoScales, {"reach", "gradients", "overfit"}),
    "R1 SoftmaxTwice": (SoftmaxTwice, {"output"}),
    "R1 PixelPositions": (PixelPositions, {"positions", "gradients"}),
    "R1 WidthScale": (WidthScale, {"scale"}),
    "R3 Bag": (Bag, {"positions"}),
    "R4 BatchFirst": (BatchFirst, {"neighbours", "reach", "gradients", "overfit"}),
    "R4 BatchFirst, mean": (lambda: BatchFirst(mean=True), {"neighbours", "batch-sizes"}),
    "BatchStatistics": (BatchStatistics, {"neighbours", "batch-sizes"}),
    "DropoutAlways": (DropoutAlways, {"repeatable"}),
    "PlainTable": (PlainTable, {"saving"}),
    "PlainList": (PlainList, {"saving"}),
    "ForgottenPositions": (ForgottenPositions, {"positions", "gradients"}),
    "OnePosition": (OnePosition, {"positions"}),
    "ColumnsOnly": (ColumnsOnly, {"positions"}),
    "Squeezed": (Squeezed, {"batch-sizes"}),
    "FixedBatch": (FixedBatch, {"batch-sizes"}),
    "Quitting": (Quitting, {"batch-sizes"}),
    "ScrambledBatch": (ScrambledBatch, {"resolution"}),
    "ReluLogits": (ReluLogits, {"output"}),
    "SigmoidLogits": (SigmoidLogits, {"output"}),
    "Detached": (Detached, {"gradients"}),
    "LostCorner": (LostCorner, {"reach"}),
    "NoScale": (NoScale, {"scale"}),
    "QueriesCompete": (with_attention(QueriesCompete), {"torn"}),
    "HeadsCompete": (with_attention(HeadsCompete), {"torn"}),
    "HeadsByView": (with_attention(HeadsByView), {"torn", "reach"}),
    "JoinedByView": (with_attention(JoinedByView), {"torn", "gradients"}),
    "PatchesByView": (PatchesByView, {"torn"}),
    "EveryFourthPixel": (EveryFourthPixel, {"torn"}),
    "CellsByView": (CellsByView, {"torn"}),
    "LostHead": (with_attention(LostHead), {"gradients"}),
    "KeysForValues": (with_attention(KeysForValues), {"gradients"}),
    "InPlace": (InPlace, {"repeatable"}),
    "TwoAtATime": (TwoAtATime, {"batch-sizes"}),
    "Vanishing": (Vanishing, {"depth", "overfit"}),
    "ChangedInPlace": (ChangedInPlace, {"gradients", "overfit"}),
    "AllZero": (AllZero, {"overfit"}),
    "Lingering": (Lingering, {"repeatable"}),
    "TanhLogits": (TanhLogits, {"output"}),
    "DroppedLogits": (DroppedLogits, {"output"}),
    "LostPatch": (LostPatch, {"reach"}),
    "LostRow": (LostRow, {"reach"}),
    "OneValue": (with_attention(OneValue), {"gradients"}),
    "RoundedHalf": (RoundedHalf, {"reach"}),
}
