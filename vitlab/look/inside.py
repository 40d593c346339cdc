"""Look inside: one walk forward, one walk back, and every map of a model as a return value.

Forward, the model runs as it always does, and the tokens between its blocks are kept. Backward, from the last block to
the first, each block is run once more by way of its map: A from the tokens that entered, then A·V in place of the fused
kernel. What comes out is held against what the fused kernel gave (`gap`), so a map that was not the truth would show.
Only one block's maps are in memory at a time, for as many pictures as a budget allows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.look import measures
from vitlab.look.tokens import describe_looking, extra_names, looking
from vitlab.model import Network, Shape, Stream
from vitlab.model.layout import Layout

MEMORY = 2**28  # bytes that the maps of one block may take, unless one picture's alone take more
COPIES = 6  # of a block's maps that a walk back through it holds at once


@dataclass(frozen=True, eq=False)
class Seen:
    """What one stream did with b pictures; a row is one weight per token, extra tokens first, then the patches."""

    layout: Layout
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
    looking: str  # which token looks, in words
    has_class: bool  # whether the first token of the last stream is a class token

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
    wanted = None if target is None else torch.as_tensor(target).expand(len(pictures))
    device = next(network.parameters()).device
    parts = []
    with in_evaluation(network):
        for places in torch.arange(len(pictures)).split(at_once(network, memory)):
            goal = None if wanted is None else wanted[places].to(device)
            parts.append(look_at(network, pictures[places].to(device), token, goal))
    streams = tuple(joined([part.streams[i] for part in parts]) for i in range(len(parts[0].streams)))
    logits, lens, goals = (torch.cat([getattr(part, n) for part in parts]) for n in ("logits", "lens", "target"))
    gap = max(part.gap for part in parts)
    return Inside(network.shape, logits, lens, goals, streams, gap, parts[0].looking, parts[0].has_class)


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
    read = looking(stream, None)[stream].to(last).expand(len(pictures), -1)
    walk = Walk(network.shape, looking(stream, token), from_the_head=token is None)
    walk.back(stream, slope, Flow(read, read, read))
    return Inside(
        network.shape, logits.cpu(), lens.cpu(), goal.cpu(), tuple(walk.seen), walk.gap,
        describe_looking(stream, token), "class" in extra_names(stream),
    )  # fmt: skip


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

    def __init__(self, shape: Shape, looking: dict[Stream, Tensor], from_the_head: bool):
        self.shape, self.looking, self.from_the_head = shape, looking, from_the_head
        self.seen: list[Seen] = []
        self.gap = 0.0

    def back(self, stream: Stream, slope: Tensor, flow: Flow) -> None:
        """rollout ← rollout·(I + mean Aₕ)/2 · relevance ← relevance·(I + mean (∇Aₕ ⊙ Aₕ)⁺), last block to first."""
        looking = self.looking[stream].to(slope)
        apart = measures.distances(stream.layout, self.shape).to(slope)
        rollout = flow.rollout if self.from_the_head else looking.expand_as(flow.rollout)
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
            rows.append(torch.einsum("n,bhnm->bhm", looking, weights).cpu())
            far.append(measures.distance(weights, apart).cpu())
            wide.append(measures.entropy(weights).cpu())
        extra, first = stream.layout.extra, stream.layout.extra
        for source in stream.before:
            count = source.layout.tokens
            self.back(source, slope[:, first : first + count], Flow(rollout, relevance, flow.read).part(first, count))
            first += count
        none = torch.empty(len(slope), 0, 0)
        self.seen.append(
            Seen(
                stream.layout,
                stacked(rows, torch.empty(len(slope), 0, 0, stream.layout.tokens)),
                rollout.cpu(),
                (relevance - flow.read).cpu(),
                torch.stack([measures.similarity(tokens, looking).cpu() for tokens in stream.tokens], dim=1),
                torch.stack([measures.alikeness(tokens[:, extra:]).cpu() for tokens in stream.tokens], dim=1),
                stacked(far, none),
                stacked(wide, none),
            )
        )


def times(row: Tensor, weights: Tensor) -> Tensor:
    """(b, n) · (b, n, n) → (b, n)."""
    return (row[:, None] @ weights)[:, 0]


def stacked(backwards: list[Tensor], none: Tensor) -> Tensor:
    """What was found from the last layer to the first, first layer first: (b, layers, …)."""
    return torch.stack(backwards[::-1], dim=1) if backwards else none


def joined(parts: list[Seen]) -> Seen:
    tensors = {f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(Seen) if f.name != "layout"}
    return Seen(layout=parts[0].layout, **tensors)


def at_once(network: Network, memory: int) -> int:
    """How many pictures' maps of one block fit into the memory; at least one."""
    largest = 1
    for module in network.modules():
        blocks, layout = getattr(module, "blocks", ()), getattr(module, "layout", None)
        for block in blocks:
            assert layout is not None
            largest = max(largest, getattr(block.attention, "heads", 1) * layout.tokens**2)
    return max(memory // (4 * COPIES * largest), 1)


@contextmanager
def in_evaluation(network: Network) -> Iterator[None]:
    """Evaluation mode, and back to what it was."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)
