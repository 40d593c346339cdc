"""Vision Transformers once more, in NumPy and float64, one picture at a time, straight from the equations.

Maps can be nudged entry by entry, so that the gradient with respect to a map comes from differences, not from autograd.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from vitlab.model import MultiScale, Network, ViT
from vitlab.model.attention import Linformer, Locality, Uniform

Nudge = Callable[[int, int, np.ndarray], np.ndarray]  # stream, layer, map (h, n, n) → the map to use


def erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.from_numpy(x)).numpy()


@dataclass
class Stream:
    """What one stream did: its maps (h, n, n), and its tokens (n, d) before the first block and after each."""

    maps: list[np.ndarray] = field(default_factory=list)
    tokens: list[np.ndarray] = field(default_factory=list)


@dataclass
class Answer:
    logits: np.ndarray
    streams: list[Stream]  # the read one last
    lens: np.ndarray  # (layers + 1, classes)


class Reference:
    """The model of these settings with the network's weights."""

    def __init__(self, settings: Any, network: Network):
        self.settings = settings
        self.weights = {name: tensor.detach().double().numpy() for name, tensor in network.state_dict().items()}

    def answer(self, picture: np.ndarray, nudge: Nudge = lambda stream, layer, weights: weights) -> Answer:
        return self.vit(picture, nudge) if isinstance(self.settings, ViT) else self.scales(picture, nudge)

    def vit(self, picture: np.ndarray, nudge: Nudge) -> Answer:
        settings = self.settings
        tokens = self.patches(picture, "tokens.embed", settings.tokens.patch)
        if "extra" in self.weights:
            tokens = np.concatenate([self.weights["extra"], tokens])
        tokens = tokens + self.weights["positions.table"]
        stream = self.blocks(tokens, "blocks", settings.depth, settings.attention, lambda i, a: nudge(0, i, a))
        lens = np.stack([self.read(each, settings.head.kind, settings.registers) for each in stream.tokens])
        return Answer(lens[-1], [stream], lens)

    def scales(self, picture: np.ndarray, nudge: Nudge) -> Answer:
        settings: MultiScale = self.settings
        late = settings.join.kind == "late-class-token"
        streams = []
        for number, patch in enumerate(settings.patches):
            name = f"scales.{number}"
            tokens = self.patches(picture, f"{name}.tokens.embed", patch)
            if not late:
                tokens = tokens + self.weights[f"{name}.positions.table"]
            attention = settings.attention_of_a_scale()
            nudged = lambda i, a, number=number: nudge(number, i, a)  # noqa: E731
            streams.append(self.blocks(tokens, f"{name}.blocks", settings.depth, attention, nudged))
        last = len(streams)
        joined = [
            self.join([stream.tokens[step] for stream in streams], lambda i, a: nudge(last, i, a))
            for step in range(settings.depth + 1)
        ]
        lens = np.stack([self.read(stream.tokens[-1], settings.join.kind, 0, "join.") for stream in joined])
        return Answer(lens[-1], [*streams, joined[-1]], lens)

    def join(self, scales: list[np.ndarray], nudge: Callable[[int, np.ndarray], np.ndarray]) -> Stream:
        tokens = np.concatenate(scales)
        kind = self.settings.join.kind
        if kind != "mean":
            tokens = np.concatenate([self.weights["join.extra"], tokens])
        if kind == "late-class-token":
            tokens = tokens + self.weights["join.positions.table"]
        return self.blocks(tokens, "join.blocks", int(kind == "class-attention"), self.settings.attention, nudge)

    def patches(self, picture: np.ndarray, name: str, side: int) -> np.ndarray:
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        rows = []
        for y in range(0, picture.shape[1], side):
            for x in range(0, picture.shape[2], side):
                cut = picture[:, y : y + side, x : x + side]
                rows.append(np.tensordot(weight, cut, axes=3) + bias)
        return np.array(rows)

    def blocks(self, tokens: np.ndarray, name: str, depth: int, attention: Any, nudge: Callable[..., Any]) -> Stream:
        stream = Stream(tokens=[tokens])
        after = self.settings.block.norm == "after"
        for layer in range(depth):
            own = f"{name}.{layer}"
            seen = tokens if after else self.norm(tokens, f"{own}.norm_attention")
            weights, values = self.attend(seen, f"{own}.attention", attention)
            weights = nudge(layer, weights)
            mixed = np.concatenate([a @ v for a, v in zip(weights, values, strict=True)], axis=1)
            tokens = tokens + self.linear(mixed, f"{own}.attention.out")
            if after:
                tokens = self.norm(tokens, f"{own}.norm_attention")
            seen = tokens if after else self.norm(tokens, f"{own}.norm_mlp")
            hidden = self.linear(seen, f"{own}.mlp.enter")
            hidden = hidden * (1 + erf(hidden / math.sqrt(2))) / 2
            tokens = tokens + self.linear(hidden, f"{own}.mlp.leave")
            if after:
                tokens = self.norm(tokens, f"{own}.norm_mlp")
            stream.maps.append(weights)
            stream.tokens.append(tokens)
        return stream

    def attend(self, tokens: np.ndarray, name: str, attention: Any) -> tuple[np.ndarray, list[np.ndarray]]:
        """The map (h, n, n) on the tokens themselves, and the values of each head."""
        count, width = tokens.shape
        if isinstance(attention, Uniform):
            return np.full((1, count, count), 1 / count), [self.linear(tokens, f"{name}.value")]
        queries, keys, values = np.split(self.linear(tokens, f"{name}.qkv"), 3, axis=1)
        heads = [np.split(part, attention.heads, axis=1) for part in (queries, keys, values)]
        maps = []
        for number, (q, k, _) in enumerate(zip(*heads, strict=True)):
            scale = 1 / math.sqrt(width // attention.heads)
            if isinstance(attention, Locality):
                scores = q @ k.T * self.weights[f"{name}.sharpness"][number]
                np.fill_diagonal(scores, -np.inf)
                maps.append(softmax(scores))
            elif isinstance(attention, Linformer):
                squeeze = self.weights[f"{name}.squeeze_keys"][0], self.weights[f"{name}.squeeze_values"][0]
                maps.append(softmax(q @ (squeeze[0].T @ k).T * scale) @ squeeze[1].T)
            else:
                maps.append(softmax(q @ k.T * scale))
        return np.stack(maps), heads[2]

    def read(self, tokens: np.ndarray, kind: str, registers: int, name: str = "") -> np.ndarray:
        tokens = self.norm(tokens, f"{name}norm")
        if kind == "distilled":
            return self.linear(np.concatenate([tokens[0], tokens[1]]), f"{name}head.logits")
        if kind == "sequence-pool":
            return self.linear(self.asked(tokens[registers:]) @ tokens[registers:], f"{name}head.logits")
        rows = {"mean": tokens[registers:], "first-token": tokens[registers : registers + 1]}.get(kind, tokens[:1])
        return self.linear(rows.mean(axis=0), f"{name}head.logits")

    def asked(self, tokens: np.ndarray) -> np.ndarray:
        """How much each of these tokens, after the norm, counts for a head that pools by learned weights."""
        return softmax(tokens @ self.weights["head.ask"][0])

    def linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + self.settings.block.epsilon)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def pulls(reference: Reference, picture: np.ndarray, target: int, step: float = 1e-5) -> list[list[np.ndarray]]:
    """∂ logit / ∂ A for every entry of every map, by central differences."""

    def logit(at: tuple[int, int], entry: tuple[int, ...], by: float) -> float:
        def nudge(stream: int, layer: int, weights: np.ndarray) -> np.ndarray:
            if (stream, layer) != at:
                return weights
            moved = weights.copy()
            moved[entry] += by
            return moved

        return float(reference.answer(picture, nudge).logits[target])

    found = []
    for number, stream in enumerate(reference.answer(picture).streams):
        found.append([])
        for layer, weights in enumerate(stream.maps):
            slopes = np.zeros_like(weights)
            for entry in np.ndindex(*weights.shape):
                at = (number, layer)
                slopes[entry] = (logit(at, entry, step) - logit(at, entry, -step)) / (2 * step)
            found[-1].append(slopes)
    return found
