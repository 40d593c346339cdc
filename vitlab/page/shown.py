"""What the page shows of one picture: the same by PyTorch here and, as ONNX, in the browser."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from vitlab.export.onnx import in_onnx
from vitlab.export.subject import needed
from vitlab.look.inside import times
from vitlab.look.tokens import looking
from vitlab.model import Network, Stream

SLOPES = (torch.ops.aten.silu_backward.default,)  # which the translator to ONNX does not know


class Shown(nn.Module):
    """Tokens, maps and lens of one way through the model; relevance, which needs the way back, only if it is wanted."""

    def __init__(self, network: Network, relevance: bool):
        super().__init__()
        self.network, self.relevance = network, relevance

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        """(1, c, y, x) → lens (l + 1, classes), tokens (n, d); maps (l, h, n, n), norms (l + 1, n), shares."""
        with torch.set_grad_enabled(self.relevance):
            stream = self.network.trace(picture, by_map=True)
        parts = list(stream.all())
        found = {
            "lens": torch.cat(self.network.lens(stream)),
            "attention": torch.cat([weights.flatten() for part in parts for weights in part.maps().layers]),
            "tokens": torch.cat([part.tokens[0][0] for part in parts if not part.before]),
            "norms": torch.cat([tokens[0].norm(dim=-1) for part in parts for tokens in part.tokens]),
            "shares": torch.cat([part.shares()[0] for part in parts]),
        }
        found = {name: values.detach() for name, values in found.items()}
        return found | {"relevance": relevance(self.network, stream)} if self.relevance else found


def relevance(network: Network, stream: Stream) -> Tensor:
    """relevance ← relevance·(I + mean (∇Aₕ ⊙ Aₕ)⁺) from what is read, last block to first (Chefer et al., 2021).

    ∇A is the slope of the logit of the class that it says, along the maps it went by.
    """
    with torch.enable_grad():
        logits = network.finish(stream.tokens[-1])
        said = torch.arange(logits.shape[1]) == logits.argmax(dim=1, keepdim=True)
        maps = [weights for part in stream.all() for weights in part.maps().layers]
        slopes = torch.autograd.grad(logits, maps, said.to(logits), allow_unused=True, materialize_grads=True)
    pulls = iter(
        [(slope * weights.detach()).clamp(min=0).mean(dim=1) for slope, weights in zip(slopes, maps, strict=True)]
    )
    of_stream = {part: [next(pulls) for _ in part.blocks] for part in stream.all()}
    read = looking(stream, None)[stream]
    return torch.cat([*sources(stream, of_stream, read, read)], dim=1)[0]


def sources(stream: Stream, pulls: dict[Stream, list[Tensor]], row: Tensor, read: Tensor) -> Iterator[Tensor]:
    """What reaches the tokens that are cut from the picture, less what is read of them: (1, n) for each such stream."""
    for pull in reversed(pulls[stream]):
        row = row + times(row, pull)
    first = stream.layout.extra
    for source in stream.before:
        count = source.layout.tokens
        yield from sources(source, pulls, row[:, first : first + count], read[:, first : first + count])
        first += count
    if not stream.before:
        yield row - read


def as_onnx(network: Network) -> bytes:
    """picture (1, c, y, x), normalised, and whether relevance is wanted → what the page shows."""
    shape = network.shape
    picture = torch.zeros(1, shape.channels, shape.height, shape.width)
    shown = Shown(network, relevance=True).eval()
    known = torch.export.default_decompositions()
    graph = make_fx(shown, {slope: known[slope] for slope in SLOPES})(picture)  # the way back is written out
    program = torch.export.export(graph, (picture,), strict=False)
    model = in_onnx(program, "picture", list(shown(picture)), extra="page", light=True)
    on_demand(model, "relevance", "wanted")
    written: bytes = model.SerializeToString()
    return written


def on_demand(model: Any, name: str, wanted: str) -> None:
    """Let an output be worked out only where `wanted` is true, and else be 0: what it alone needs becomes a branch."""
    (onnx,) = needed("onnx", extra="page")
    graph, helper = model.graph, onnx.helper
    (output,) = (each for each in graph.output if each.name == name)
    needs = {each.name for each in graph.output} - {name}
    for node in reversed(graph.node):
        if needs & {*node.output}:
            needs |= {*node.input}
    always = [node for node in graph.node if needs & {*node.output}]
    late = [node for node in graph.node if not needs & {*node.output}]
    inner = f"{name}_found"
    for node in late:
        node.output[:] = [inner if each == name else each for each in node.output]
    kind, shape = output.type.tensor_type.elem_type, [side.dim_value for side in output.type.tensor_type.shape.dim]
    zero = helper.make_tensor("zero", kind, shape, [0.0] * shape[0])
    made = helper.make_tensor_value_info
    found = helper.make_graph(late, "found", [], [made(inner, kind, shape)])
    none = helper.make_node("Constant", [], [f"{name}_none"], value=zero)
    absent = helper.make_graph([none], "absent", [], [made(f"{name}_none", kind, shape)])
    choice = helper.make_node("If", [wanted], [name], then_branch=found, else_branch=absent)
    graph.input.append(made(wanted, onnx.TensorProto.BOOL, []))
    del graph.node[:]
    graph.node.extend([*always, choice])
