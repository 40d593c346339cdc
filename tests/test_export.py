"""Our models out: onnxruntime answers as the model does, for every kind of every part."""

import os
import subprocess
import sys
from itertools import cycle, islice

import numpy as np
import onnx
import pytest
import torch
from kinds import (
    ATTENTIONS,
    CLASSES,
    HEADS,
    POSITIONS,
    TOKENS,
    build,
    small_attention,
    small_multiscale,
    small_tokens,
    small_vit,
)
from torch import Tensor

import vitlab as package
from vitlab.data.prepared import Card
from vitlab.export.graph import Form, Graph
from vitlab.export.onnx import check_standard, session_of, translate
from vitlab.model import Network, Shape
from vitlab.model.blocks import Block
from vitlab.model.tokens import ConvPatches

CARD = Card("noise", 3, 8, 16, tuple("abcde"), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 1, 0, 0, "", ())
BLOCKS = (
    Block(), Block(norm="after", activation="relu"), Block(norm="none"), Block(norm_kind="rms", activation="swiglu"),
    Block(shift=8, lean=True, layer_scale=0.1),
)  # fmt: skip


def each_kind_at_least_once() -> list:
    """As few models as hold every kind of every part; a multi-scale one has the first kind of tokens."""
    # Learned positions meet what takes long to follow at any size; rotary ones do not meet uniform attention.
    parts = (TOKENS[1:], POSITIONS[1:] + POSITIONS[:1], ATTENTIONS[2:] + ATTENTIONS[:2], HEADS, BLOCKS)
    assert isinstance(small_tokens(TOKENS[0]), ConvPatches)
    rows = zip(*(islice(cycle(kinds), max(map(len, parts))) for kinds in parts), strict=True)
    models = []
    for place, (tokens, positions, attention, head, block) in enumerate(rows):
        model = small_vit(
            tokens=small_tokens(tokens), positions=positions(), head=head(), block=block, depth=1, registers=place % 2,
            attention=small_attention(attention, qk_norm=place == 1),
        )  # fmt: skip
        asked = {"maps": place < len(ATTENTIONS), "layers": place == 0}  # the maps of each kind, once
        models.append(pytest.param(model, asked, id=f"{tokens.kind}-{positions.kind}-{attention.kind}-{head.kind}"))
    return [*models, pytest.param(small_multiscale(depth=1), {"maps": True}, id="multi-scale")]


def normalised(pictures: Tensor) -> Tensor:
    mean, deviation = (np.array(each).reshape(-1, 1, 1) for each in (CARD.mean, CARD.deviation))
    return torch.from_numpy((pictures.double().numpy() - mean) / deviation).float()


def expected(network: Network, pictures: Tensor) -> dict[str, Tensor]:
    """What the model itself says, by the methods that vitlab look uses."""
    given = normalised(pictures)
    logits = network.logits(given)
    maps = [torch.stack(stream.layers, dim=1) for stream in network.maps(given)]
    names = ["attention"] if len(maps) == 1 else [f"attention_{i + 1}" for i in range(len(maps))]
    warm = torch.from_numpy(np.exp(logits.double().numpy() / 1.5))
    lens = torch.stack(network.lens(network.trace(given)), dim=1)
    found = {"logits": logits, "probabilities": (warm / warm.sum(dim=-1, keepdim=True)).float(), "layers": lens}
    return found | dict(zip(names, maps, strict=True))


def asked_names(asked: dict[str, bool]) -> set[str]:
    more = {"maps": "attention", "layers": "layers"}
    return {"logits", "probabilities", *(more[name] for name, wanted in asked.items() if wanted)}


@pytest.mark.parametrize(("model", "asked"), each_kind_at_least_once())
@torch.no_grad()
def test_onnxruntime_answers_as_the_model_does(model, asked) -> None:
    network = build(model).eval()
    form = Form(Graph(network, CARD, temperature=1.5, **asked), model)
    made = translate(form)
    check_standard(made)
    answer = session_of(made.SerializeToString(), threads=1)
    tables = [name for name, _ in network.named_parameters() if "positions.table" in name or "squeeze" in name]
    tables += [name for name, _ in network.named_buffers() if name == "tokens.rows"]
    learned = bool(tables)
    assert form.fixed == (f"{tables[0]} was made for that size" if tables else "")
    sizes = [(1, 8, 16), (2, 8, 16), (7, 8, 16)] + ([] if learned else [(2, 16, 16), (1, 24, 40), (3, 8, 8)])
    for batch, height, width in sizes:
        pictures = torch.rand(batch, 3, height, width)
        sized = model.build(Shape(3, height, width), CLASSES).eval()
        sized.load_state_dict(dict(network.named_parameters()), strict=False)
        found, wanted = answer(pictures), expected(sized, pictures)
        left_out = {name for name in wanted if name.partition("_")[0] not in asked_names(asked)}
        assert found.keys() == wanted.keys() - left_out
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, wanted[name], rtol=1e-4, atol=1e-5, msg=name)
    sides = [side.dim_param or side.dim_value for side in made.graph.input[0].type.tensor_type.shape.dim]
    assert sides == ["batch", 3, *([8, 16] if learned else ["height", "width"])]


def test_onnxruntime_reports_to_nobody_and_keeps_nothing(tmp_path) -> None:
    """Left alone, it writes a number for this machine into the user's cache, and reports under it."""
    home = {"HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    kept = {
        name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    said = subprocess.run(
        [sys.executable, "-c", "from vitlab.export.subject import needed; needed('onnxruntime')"],
        env=kept | home, capture_output=True, check=True,
    )  # fmt: skip
    assert (said.stdout, said.stderr) == (b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_graph_with_another_s_operators_is_refused() -> None:
    node = onnx.helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    value = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    with pytest.raises(package.BadInput, match=r"com\.microsoft"):
        check_standard(onnx.helper.make_model(graph))
