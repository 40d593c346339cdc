"""What is exported: pictures in 0 … 1 → logits and probabilities, normalised inside, at one size or at any."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from math import lcm

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.func import functional_call

from vitlab.data.prepared import Card
from vitlab.model import Model, Network, Shape
from vitlab.model.blocks import Shift
from vitlab.model.layout import Grid, Layout
from vitlab.model.positions import Position

BATCHES = (1, 2, 7)  # at which an export is compared with the model


class Graph(nn.Module):
    """logits = network((x − mean) / deviation), probabilities = softmax(logits / T), and what else is asked for."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: Network, card: Card, temperature: float, *, maps: bool = False, layers: bool = False):
        super().__init__()
        self.network, self.temperature, self.maps, self.layers = network, temperature, maps, layers
        self.register_buffer("mean", torch.tensor(card.mean).view(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(card.deviation).view(-1, 1, 1))
        self.eval().requires_grad_(False)

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        """(b, c, y, x) → logits, probabilities (b, classes); attention (b, l, h, n, n), layers (b, l + 1, classes)."""
        normalised = (pictures - self.mean) / self.deviation
        if not self.maps and not self.layers:
            return self.answers(self.network.logits(normalised))
        stream = self.network.trace(normalised)
        found = self.answers(self.network.finish(stream.tokens[-1]))
        if self.maps:
            seen = [torch.stack(part.maps().layers, dim=1) for part in stream.all() if len(part.blocks)]
            found |= dict(zip(attention_names(len(seen)), seen, strict=True))
        if self.layers:
            found["layers"] = torch.stack(self.network.lens(stream), dim=1)
        return found

    def answers(self, logits: Tensor) -> dict[str, Tensor]:
        return {"logits": logits, "probabilities": (logits / self.temperature).softmax(dim=-1)}


def attention_names(streams: int) -> list[str]:
    """`attention`, or for a model of several streams `attention_1`, `attention_2` …"""
    return ["attention"] if streams == 1 else [f"attention_{place}" for place in range(1, streams + 1)]


class AnySize(nn.Module):
    """A graph whose tables of places follow from the height and width of the pictures it is given."""

    def __init__(self, graph: Graph, settings: Model):
        super().__init__()
        self.inner, self.settings = graph, settings  # not `graph`: torch.export has one of its own

    def forward(self, pictures: Tensor) -> dict[str, Tensor]:
        tables = tables_at(self.inner.network, self.settings, *pictures.shape[-2:])
        return functional_call(self.inner, {f"network.{name}": table for name, table in tables.items()}, (pictures,))


@dataclass(frozen=True)
class Owner:
    """A part of a network that has a sequence of tokens of its own."""

    name: str
    layout: Layout
    positions: Position
    blocks: nn.ModuleList


def owners(network: Network) -> Iterator[Owner]:
    for name, part in network.named_modules():
        if isinstance(layout := getattr(part, "layout", None), Layout):
            yield Owner(f"{name}." if name else "", layout, part.positions, part.blocks)


def tables_at(network: Network, settings: Model, height: int, width: int) -> dict[str, Tensor]:
    """The tables of a network that follow from where patches lie, made anew for another size, by their names."""
    tables: dict[str, Tensor] = {}
    for owner in owners(network):
        grids = tuple(
            Grid(height // (network.shape.height // grid.rows), width // (network.shape.width // grid.columns))
            for grid in owner.layout.grids
        )
        layout = Layout(owner.layout.extra, grids)
        if dict(owner.positions.named_buffers()):
            rotation = owner.positions.rotation
            head_width = None if rotation is None else 2 * rotation.cosine.shape[-1]
            made = settings.positions.build(layout, settings.width, head_width)
            tables |= {f"{owner.name}positions.{name}": table for name, table in made.named_buffers()}
        for name, part in owner.blocks.named_modules():
            if isinstance(part, Shift):
                moved = Shift(part.groups, layout)
                tables |= {f"{owner.name}blocks.{name}.{key}": table for key, table in moved.named_buffers()}
    return tables


def step(network: Network) -> tuple[int, int]:
    """What height and width must be multiples of, so that every patch fits."""
    grids = [grid for owner in owners(network) for grid in owner.layout.grids]
    height, width = network.shape.height, network.shape.width
    return lcm(*(height // grid.rows for grid in grids)), lcm(*(width // grid.columns for grid in grids))


def made_for_one_size(network: Network, settings: Model) -> tuple[str, ...]:
    """The weights that fit pictures of one size alone, by name; a model without such can take any size."""
    shape = network.shape
    with torch.device("meta"):
        larger = settings.build(Shape(shape.channels, 2 * shape.height, 2 * shape.width), classes=1)
    own = {name: weight.shape for name, weight in sized(network) if "head.logits." not in name}
    return tuple(name for name, weight in sized(larger) if own.get(name, weight.shape) != weight.shape)


def sized(network: Network) -> Iterator[tuple[str, Tensor]]:
    """The weights, and the matrices by which a tokenizer resizes pictures; other tables follow from the size."""
    yield from network.named_parameters()
    yield from ((name, table) for name, table in network.named_buffers() if "tokens." in name)


@dataclass(frozen=True, eq=False)
class Form:
    """A graph to be exported, and what it must answer at every batch and size that it is meant for."""

    graph: Graph
    settings: Model
    held: str = ""  # why the format keeps to one size, if it does

    @cached_property
    def fixed(self) -> str:
        """Why height and width stay as they are; empty where they are free."""
        weights = made_for_one_size(self.graph.network, self.settings)
        return self.held or (f"{weights[0]} was made for that size" if weights else "")

    def program(self) -> ExportedProgram:
        """The graph as torch.export sees it: for any batch, and for any height and width if it allows that."""
        shape, free = self.graph.network.shape, {0: Dim("batch")}
        module: nn.Module = self.graph
        height, width = shape.height, shape.width
        if not self.fixed:
            tall, wide = step(self.graph.network)
            free |= {2: tall * Dim("rows", min=1), 3: wide * Dim("columns", min=1)}
            height, width = max(height, 2 * tall), max(width, 2 * wide)  # a 1 would be taken for a constant
            module = AnySize(self.graph, self.settings)
        pictures = torch.zeros(2, shape.channels, height, width)
        return torch.export.export(module, (pictures,), dynamic_shapes={"pictures": free}, strict=False)

    def sizes(self) -> list[tuple[int, int, int, int]]:
        """Shapes of the pictures on which an export is compared: batches, and other heights and widths if it may."""
        shape, (tall, wide) = self.graph.network.shape, step(self.graph.network)
        height, width = shape.height, shape.width
        asked = [(batch, height, width) for batch in BATCHES]
        if not self.fixed:
            asked += [(2, height + tall, width), (1, height, width + 3 * wide), (1, 4 * tall, 2 * wide)]
        return [(batch, shape.channels, y, x) for batch, y, x in asked]

    @torch.no_grad()
    def answer(self, pictures: Tensor) -> dict[str, Tensor]:
        """The model's own answer; for pictures of another size, that of the model built for them with these weights."""
        height, width = pictures.shape[-2:]
        graph, shape = self.graph, self.graph.network.shape
        if (height, width) != (shape.height, shape.width):
            network = self.settings.build(Shape(shape.channels, height, width), classes_of(graph.network))
            network.load_state_dict(dict(graph.network.named_parameters()), strict=False)
            graph = copy(graph)
            graph._modules = {"network": network.eval()}
        return graph(pictures)


def classes_of(network: Network) -> int:
    return next(len(weight) for name, weight in network.named_parameters() if name.endswith("head.logits.weight"))
