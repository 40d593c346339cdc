"""Our models out: onnxruntime and torch.export answer as the model does, for every kind of every part."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from conftest import refused
from huggingface_hub import ModelCard
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
from torch import Tensor, nn

import vitlab as package
from vitlab.data.prepared import Card
from vitlab.export import Mismatch, Subject, TorchExport, export
from vitlab.export.graph import Form, Graph
from vitlab.export.onnx import check_standard, session_of, translate
from vitlab.model import Network, Shape
from vitlab.model.blocks import Block

CARD = Card("noise", 3, 8, 16, tuple("abcde"), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), 1, 0, 0, "", ())
BLOCKS = (
    Block(), Block(norm="after", activation="relu"), Block(norm="none"), Block(norm_kind="rms", activation="swiglu"),
    Block(shift=8, lean=True, layer_scale=0.1),
)  # fmt: skip


def each_kind_at_least_once() -> list:
    """As few models as hold every kind of every part; each kind alone was tried by hand."""
    count = max(map(len, (TOKENS, POSITIONS, ATTENTIONS, HEADS, BLOCKS)))
    rows = zip(*(islice(cycle(kinds), count) for kinds in (TOKENS, POSITIONS, ATTENTIONS, HEADS, BLOCKS)), strict=True)
    models = []
    for place, (tokens, positions, attention, head, block) in enumerate(rows):
        model = small_vit(
            tokens=small_tokens(tokens), positions=positions(), head=head(), block=block, depth=1, registers=place % 2,
            attention=small_attention(attention, qk_norm=place == 1),
        )  # fmt: skip
        models.append(pytest.param(model, id=f"{tokens.kind}-{positions.kind}-{attention.kind}-{head.kind}"))
    return [*models, pytest.param(small_multiscale(depth=1), id="multi-scale")]


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


@pytest.mark.parametrize("model", each_kind_at_least_once())
@torch.no_grad()
def test_onnxruntime_answers_as_the_model_does(model) -> None:
    network = build(model).eval()
    form = Form(Graph(network, CARD, temperature=1.5, maps=True, layers=True), model)
    made = translate(form)
    check_standard(made)
    answer = session_of(made.SerializeToString(), threads=1)
    tables = [name for name, _ in network.named_parameters() if "positions.table" in name or "squeeze" in name]
    learned = bool(tables)
    assert form.fixed == (f"{tables[0]} was learned for that size" if tables else "")
    sizes = [(1, 8, 16), (2, 8, 16), (7, 8, 16)] + ([] if learned else [(2, 16, 16), (1, 24, 40), (3, 8, 8)])
    for batch, height, width in sizes:
        pictures = torch.rand(batch, 3, height, width)
        sized = model.build(Shape(3, height, width), CLASSES).eval()
        sized.load_state_dict(dict(network.named_parameters()), strict=False)
        found, wanted = answer(pictures), expected(sized, pictures)
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5, msg=name)
    sides = [side.dim_param or side.dim_value for side in made.graph.input[0].type.tensor_type.shape.dim]
    assert sides == ["batch", 3, *([8, 16] if learned else ["height", "width"])]


def test_a_graph_with_another_s_operators_is_refused() -> None:
    node = onnx.helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    value = [onnx.helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    with pytest.raises(package.BadInput, match=r"com\.microsoft"):
        check_standard(onnx.helper.make_model(graph))


def test_a_run_becomes_an_onnx_file_that_says_what_it_is_and_needs_no_torch(trained: Path, vitlab, tmp_path) -> None:
    done = vitlab("export", trained, "--out", "own/seven.onnx", "--licence", "cc-by-4.0")
    assert "28×28 alone, since positions.table was learned for that size" in done.stdout
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["seven.onnx"]
    model = onnx.load(tmp_path / "own/seven.onnx")
    facts = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(facts["classes"]) == list("0123456789")
    assert (facts["run"], facts["data"], facts["licence"]) == ("digits", "digits", "cc-by-4.0")
    assert {each.version for each in model.opset_import} == {20}
    page = (Path(__file__).parent.parent / "docs/export.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    assert 'open("docs/seven.png")' in example
    assert len(example.strip().splitlines()) <= 10
    picture = Path(__file__).parent.parent / "docs/seven.png"
    code = example.replace("docs/seven.png", str(picture)).replace("seven.onnx", "own/seven.onnx")
    code += "\nimport sys\nassert 'torch' not in sys.modules\n"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    likeliest, share = said.stdout.split()
    (found,) = package.predict(trained, [picture])
    assert likeliest == found.classes[0]
    assert float(share) == pytest.approx(found.probabilities[0], abs=1e-4)


def test_weights_in_8_bits_are_what_numpy_rounds_them_to(trained: Path, vitlab, tmp_path) -> None:
    run = package.open_run(trained)
    done = vitlab("export", trained, "--int8", "--out", "small.onnx")
    assert "test pictures" in done.stdout.splitlines()[-1]
    stored = onnx.load(tmp_path / "small.onnx").graph.initializer
    packed = [array for array in map(onnx.numpy_helper.to_array, stored) if array.dtype == np.int8]
    layers = [part for part in run.model().modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    weights = [part.weight.detach().flatten(1).double().numpy() for part in layers]
    assert len(packed) == len(weights)
    for weight in weights:
        scale = np.abs(weight).max(axis=1, keepdims=True) / 127
        whole = np.rint(weight / scale)
        flat = [array.reshape(len(array), -1) for array in packed]
        alike = [each for array in flat for each in (array, array.T) if each.shape == whole.shape]
        near = [np.abs(array.astype(float) - whole).max() for array in alike]
        assert min(near) <= 1, "a weight on the line between two steps may fall to either side in float32"
    float_bytes = 4 * sum(weight.size for weight in weights)
    assert (tmp_path / "small.onnx").stat().st_size < 0.25 * float_bytes + 40_000


@dataclass(frozen=True)
class Wrong(TorchExport):
    """Writes another model than it was given."""

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        with torch.no_grad():
            subject.network.head.logits.bias.add_(0.01)
            super().write(subject, form, path)
            subject.network.head.logits.bias.sub_(0.01)


def test_an_export_that_answers_otherwise_is_an_error_and_leaves_nothing(trained: Path, tmp_path) -> None:
    subject = Subject(package.open_run(trained))
    with pytest.raises(Mismatch, match=r"digits as torch-export is not kept: logits of 1×1×28×28 pictures differ"):
        export(subject, Wrong(), tmp_path / "wrong.pt2")
    assert not list(tmp_path.iterdir())


def test_a_torch_program_answers_without_vitlab(trained: Path, vitlab, tmp_path) -> None:
    done = vitlab("export", trained, "--to", "torch-export", "--maps", "--layers", "--out", "m.pt2")
    assert "loaded again and run at batches of 1, 2, 7" in done.stdout
    program = torch.export.load(tmp_path / "m.pt2").module()
    run = package.open_run(trained)
    pictures = torch.rand(5, 1, 28, 28)
    given = (pictures - run.card.mean[0]) / run.card.deviation[0]
    found, network = program(pictures), run.model()
    with torch.no_grad():
        torch.testing.assert_close(found["logits"], network.logits(given), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found["attention"][:, 1], network.maps(given)[0].layers[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found["layers"][:, -1], network.logits(given), rtol=1e-4, atol=1e-5)


def test_a_run_goes_to_the_hub_and_back_with_a_card_that_the_hub_reads(trained: Path, vitlab, tmp_path) -> None:
    pretrained = import_module("vitlab.export.pretrained")
    shutil.copytree(trained, tmp_path / "run")
    vitlab("calibrate", "run")
    assert "own: " in vitlab("export", "run", "--to", "hub", "--out", "own", "--licence", "mit").stdout
    run = package.open_run("run")
    model = pretrained.Pretrained.from_pretrained("own")
    pictures = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        logits = run.model().logits((pictures - run.card.mean[0]) / run.card.deviation[0])
        torch.testing.assert_close(model(pictures), logits, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.probabilities(pictures), (logits / run.temperature).softmax(dim=-1))
    card = ModelCard.load(tmp_path / "own/README.md")
    assert (card.data.library_name, card.data.license) == ("vitlab", "mit")
    (measured,) = card.data.eval_results
    assert measured.metric_value == pytest.approx(run.result["test_accuracy"], abs=1e-6)
    result = run.result
    for share in (result["test_accuracy"], result["low"], result["high"]):
        assert f"{100 * share:.2f} %" in card.text
    assert f"{sum(weight.numel() for weight in run.model().parameters()):,}" in card.text
    assert f"{run.temperature:.3f}" in card.text
    assert "| `model.attention.heads` | 4 |" in card.text
    example = card.text.split("```python\n")[1].split("```")[0].replace('"run"', '"own"')
    exec("import torch\npictures = torch.rand(1, 1, 28, 28)\n" + example)
    again = model.save_pretrained("again")
    assert again is None
    assert (tmp_path / "again/README.md").read_bytes() == (tmp_path / "own/README.md").read_bytes()
    assert vitlab("predict", "again", Path(__file__).parent.parent / "docs/seven.png").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "onyx"), "no format called 'onyx': choose from hub, onnx, torch-export; did you mean 'onnx'?"),
        (("--to", "torch-export", "--int8"), "--to torch-export has no --int8"),
        (("--push", "me/mine"), "--push is for --to hub"),
    ],
)
def test_what_cannot_be_exported_is_refused(trained: Path, vitlab, words, said) -> None:
    assert said in refused(vitlab("export", trained, *words, status=2))
