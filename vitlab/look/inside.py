"""Look inside: one walk forward, one walk back, and every map of a model as a return value.

Forward, the model runs as it always does, and the tokens between its blocks are kept. Backward, from the last block to
the first, each block is run once more by way of its map: A from the tokens that entered, then A·V in place of the fused
kernel. What comes out is held against what the fused kernel gave (`gap`), so a map that was not the truth would show.
Only one block's maps are in memory at a time, for as many pictures as a budget allows.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from vitlab.engine.modes import in_evaluation
from vitlab.errors import BadInput
from vitlab.look import measures
from vitlab.look.tokens import describe_looking, extra_names, looking
from vitlab.model import Network, Shape, Stream
from vitlab.model.layout import Layout

MEMORY = 2**26  # bytes that the maps of one block may take, unless one picture's alone take more
COPIES = 6  # of a block's maps that a walk back through it holds at once


@dataclass(frozen=True, eq=False)
class Seen:
    """What one stream did with b pictures; a row is one weight per token, extra tokens first, then the patches."""

    layout: Layout
    names: tuple[str, ...]  # of the tokens before the patches: class, register 1 …
    looking: str  # which token looks, in words
    attention: Tensor  # (b, layers, heads, n): the row of the token that looks
    rollout: Tensor  # (b, n): what reaches it through all layers (Abnar and Zuidema, 2020)
    relevance: Tensor  # (b, n): what of that speaks for the class (Chefer et al., 2021)
    similarity: Tensor  # (b, layers + 1, n): cosine with the token that looks, before the first block and after each
    alikeness: Tensor  # (b, layers + 1): mean cosine between patches
    distance: Tensor  # (b, layers, heads): how far a head looks, in pixels of the model's picture
    entropy: Tensor  # (b, layers, heads): how widely, in bits; log₂ n is everywhere alike


@dataclass(frozen=True, eq=False)
class Inside:
    """What a model did with b pictures: the streams that feed others first, the one that is read last."""

    shape: Shape
    logits: Tensor  # (b, classes)
    lens: Tensor  # (b, layers + 1, classes): what the head would say before the first block and after each
    target: Tensor  # (b,): the class that relevance is about
    streams: tuple[Seen, ...]
    gap: float  # how far tokens made by way of the maps lie from the model's own, as a share of the largest
    token: str | None  # the token that was asked to look
    asked: int | None  # the class that was asked for, where it is one for all pictures

    @property
    def attending(self) -> list[Seen]:
        """The streams that have blocks, and so attention."""
        return [seen for seen in self.streams if seen.attention.shape[1]]

    @property
    def looking(self) -> str:
        """Which token looks, in the last stream that attends."""
        return (self.attending or list(self.streams))[-1].looking

    @property
    def blind(self) -> bool:
        """Whether nothing of the picture reaches what is read, as with a class token that joins too late."""
        return self.token is None and not any(bool(seen.rollout[:, seen.layout.extra :].any()) for seen in self.sources)

    @property
    def sources(self) -> list[Seen]:
        """The streams whose tokens are cut from the picture: one, or one for each scale."""
        return [seen for seen in self.streams if seen is not self.streams[-1]] or list(self.streams)


def inside(
    network: Network,
    pictures: Tensor,
    token: str | None = None,
    target: Tensor | int | None = None,
    memory: int = MEMORY,
) -> Inside:
    """Every map of a network on pictures (b, c, y, x) as it takes them.

    `token` is the one that looks: "class", "register 2" or a patch's "row,column", counted from 1; left out, what the
    head reads. `target` is the class that relevance is about; left out, the one it guesses.
    """
    if token is not None and not isinstance(token, str):
        raise BadInput(f"a token is named in words, such as 'class' or '2,3', not {token!r}")
    wanted = None if target is None else torch.as_tensor(target).expand(len(pictures))
    like = next(network.parameters())
    parts = []
    with in_evaluation(network), torch.inference_mode(False):
        for places in torch.arange(len(pictures)).split(at_once(network, memory)):
            goal = None if wanted is None else wanted[places].to(like.device)
            parts.append(look_at(network, pictures[places].detach().to(like, copy=True), token, goal))
    streams = tuple(joined([part.streams[i] for part in parts]) for i in range(len(parts[0].streams)))
    logits, lens, goals = (torch.cat([getattr(part, n) for part in parts]) for n in ("logits", "lens", "target"))
    gap = max(part.gap for part in parts)
    return Inside(network.shape, logits, lens, goals, streams, gap, token, target if isinstance(target, int) else None)


def look_at(network: Network, pictures: Tensor, token: str | None, goal: Tensor | None) -> Inside:
    """As many pictures as are looked at together."""
    with torch.no_grad():
        stream = network.trace(pictures)
        logits = network.finish(stream.tokens[-1])
        lens = torch.stack(network.lens(stream), dim=1)
    if not bool(logits.isfinite().all()):
        raise BadInput("what this model answers are no numbers, so there is nothing to look at: has it diverged?")
    goal = logits.argmax(dim=-1) if goal is None else goal
    if not 0 <= int(goal.min()) <= int(goal.max()) < logits.shape[1]:
        raise BadInput(f"class {int(goal.max())} is not one of this model's {logits.shape[1]}, counted from 0")
    with torch.enable_grad():
        last = stream.tokens[-1].detach().requires_grad_()
        (slope,) = torch.autograd.grad(network.finish(last).gather(1, goal[:, None]).sum(), last)
    read = looking(stream, None)[stream]
    walk = Walk(network.shape, looking(stream, token), token)
    walk.back(stream, slope, Flow(read, read, read))
    parts = (kept(logits), kept(lens), goal.cpu())
    return Inside(network.shape, *parts, tuple(walk.seen), walk.gap, token, None)


@dataclass(frozen=True, eq=False)
class Flow:
    """Rows (b, n) on their way back: what reaches the head by rollout and by relevance, and what it read itself."""

    rollout: Tensor
    relevance: Tensor
    read: Tensor

    def part(self, first: int, count: int) -> "Flow":
        return Flow(*(getattr(self, field.name)[:, first : first + count] for field in fields(self)))


class Walk:
    """From the last block of a stream to its first, then back into the streams that feed it."""

    def __init__(self, shape: Shape, looking: dict[Stream, Tensor], token: str | None):
        self.shape, self.looking, self.token = shape, looking, token
        self.seen: list[Seen] = []
        self.gap = 0.0

    def back(self, stream: Stream, slope: Tensor, flow: Flow) -> None:
        """rollout ← rollout·(I + mean Aₕ)/2 · relevance ← relevance·(I + mean (∇Aₕ ⊙ Aₕ)⁺), last block to first."""
        looking = self.looking[stream]
        apart = measures.distances(stream.layout, self.shape).to(slope)
        rollout = flow.rollout if self.token is None else looking
        relevance = flow.relevance
        rows, far, wide = [], [], []
        for block, entered, left in reversed(list(stream.steps())):
            with torch.enable_grad():
                tokens = entered.detach().requires_grad_()
                weights = block.map(tokens, stream.rotation)
                if not weights.requires_grad:  # uniform weights follow from no token, yet the answer follows from them
                    weights.requires_grad_()
                made = block.through(tokens, weights)
                pull, slope = torch.autograd.grad(made, (weights, tokens), slope)
            weights = weights.detach()
            self.gap = max(self.gap, float((made.detach() - left).abs().max() / left.abs().max().clamp(min=1e-30)))
            rollout = (rollout + times(rollout, weights.mean(dim=1))) / 2
            relevance = relevance + times(relevance, (pull * weights).clamp(min=0).mean(dim=1))
            rows.append(kept(torch.einsum("bn,bhnm->bhm", looking, weights)))
            far.append(kept(measures.distance(weights, apart)))
            wide.append(kept(measures.entropy(weights)))
        extra, first = stream.layout.extra, stream.layout.extra
        for source in stream.before:
            count = source.layout.tokens
            self.back(source, slope[:, first : first + count], Flow(rollout, relevance, flow.read).part(first, count))
            first += count
        none = torch.empty(len(slope), 0, 0)
        self.seen.append(
            Seen(
                stream.layout,
                tuple(extra_names(stream)),
                describe_looking(stream, self.token),
                stacked(rows, torch.empty(len(slope), 0, 0, stream.layout.tokens)),
                kept(rollout),
                kept(relevance - flow.read),
                torch.stack([kept(measures.similarity(tokens, looking)) for tokens in stream.tokens], dim=1),
                torch.stack([kept(measures.alikeness(tokens[:, extra:])) for tokens in stream.tokens], dim=1),
                stacked(far, none),
                stacked(wide, none),
            )
        )


def kept(found: Tensor) -> Tensor:
    """What is given back, whatever the model's own type and device."""
    return found.detach().float().cpu()


def times(row: Tensor, weights: Tensor) -> Tensor:
    """(b, n) · (b, n, n) → (b, n)."""
    return (row[:, None] @ weights)[:, 0]


def stacked(backwards: list[Tensor], none: Tensor) -> Tensor:
    """What was found from the last layer to the first, first layer first: (b, layers, …)."""
    return torch.stack(backwards[::-1], dim=1) if backwards else none


def joined(parts: list[Seen]) -> Seen:
    """The same stream of several lots of pictures."""
    names = [name for name, value in vars(parts[0]).items() if isinstance(value, Tensor)]
    tensors: dict[str, Any] = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
    return replace(parts[0], **tensors)


def at_once(network: Network, memory: int) -> int:
    """How many pictures' maps of one block fit into the memory; at least one."""
    largest = 1
    for module in network.modules():
        blocks, layout = getattr(module, "blocks", ()), getattr(module, "layout", None)
        for block in blocks:
            assert layout is not None
            largest = max(largest, getattr(block.attention, "heads", 1) * layout.tokens**2)
    return max(memory // (4 * COPIES * largest), 1)
