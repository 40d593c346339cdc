"""The reports' experiments: what is trained, that it is what the reports have, and that it stops and goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import apart
import pytest
import torch
import torch.nn.functional as F
from conftest import refused
from kinds import refusal, shake
from safetensors.torch import load_file
from torch import Tensor, nn

from vitlab import override, recipe, recipes
from vitlab.data import Cifar10, Mnist, Sample
from vitlab.engine.run import Run
from vitlab.lab import evaluate
from vitlab.model import Shape, VisionTransformer
from vitlab.processes import choose_workers, cores, shared_gpu
from vitlab.recipes import reproductions
from vitlab.reproduce.runs import chosen, first_of, settings_of, slug

SHAPES = {Mnist: Shape(1, 28, 28), Sample: Shape(1, 28, 28), Cifar10: Shape(3, 32, 32)}
PLANS = reproductions()


def each_plan() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", list(PLANS))


def test_names_of_experiments_of_reports_and_all_come_in_the_order_of_the_reports() -> None:
    everything = chosen(["all"])
    assert everything == list(PLANS)
    assert [PLANS[name].report for name in everything] == sorted(plan.report for plan in PLANS.values())
    assert chosen(["r1-shallow"]) == ["r1-shallow"]
    assert chosen(["R4"]) == chosen(["r4"]) == [name for name in PLANS if name.startswith("r4-")]
    assert chosen(["r3", "R1-Shallow", "r0-attention", "r3-bag"]) == ["r0-attention", "r1-shallow", "r3-bag"]
    assert chosen(["r1", "all"]) == everything


@pytest.mark.parametrize(
    ("wrong", "near"), [("r1-shalow", "r1-shallow"), ("R0-atention", "r0-attention"), ("r2-widht", "r2-width")]
)
def test_an_unknown_experiment_is_refused_with_the_nearest(wrong: str, near: str) -> None:
    said = refusal(chosen, ["r3", wrong])
    assert f"no experiment called '{wrong.lower()}'" in said
    assert f"did you mean '{near}'?" in said


@each_plan()
@pytest.mark.parametrize("small", [False, True])
def test_every_variant_can_be_built_for_its_pictures_and_is_no_other(name: str, small: bool) -> None:
    plan, found = PLANS[name], set()
    for variant in plan.variants:
        experiment = override(recipe(name), settings_of(plan, variant, small))
        first = override(recipe(name), first_of(plan, variant, small)) if variant.first else None
        found.add((experiment, first))
        assert not small or first is None or isinstance(first.data.source, Sample)
        assert not small or isinstance(experiment.data.source, Sample), "small is for two cores and no download"
        shape = SHAPES[type(experiment.data.source)]
        with torch.device("meta"):
            network = experiment.model.build(shape, 10)
            experiment.training.optimiser.build(network)
            assert network(torch.empty(2, shape.channels, shape.height, shape.width)).shape == (2, 10)
    assert len(found) == len(plan.variants)


@each_plan()
def test_a_plan_agrees_with_itself(name: str) -> None:
    plan = PLANS[name]
    assert name.partition("-")[0].upper() == plan.report
    assert plan.seeds >= 3
    keys = [(variant.group, variant.name) for variant in plan.variants]
    assert len(set(keys)) == len(keys)
    folders = [slug(variant.title) for variant in plan.variants]
    assert len(set(folders)) == len(folders)
    assert all(folder.strip(".-") == folder != "" for folder in folders)
    for claim in plan.claims:
        assert claim.better not in claim.worse
        for one in (claim.better, *claim.worse):
            assert (claim.group, one) in keys


@pytest.mark.parametrize("small", [False, True])
def test_one_scale_of_one_experiment_is_the_softmax_of_another(small: bool) -> None:
    found = []
    for name, wanted in (("r0-attention", "softmax"), ("r0-multi-scale", "one scale")):
        plan = PLANS[name]
        (variant,) = (one for one in plan.variants if one.name == wanted)
        found.append(override(recipe(name), settings_of(plan, variant, small)))
    assert found[0] == found[1]


def built(name: str) -> VisionTransformer:
    """The report's model as written, its weights moved off their start so that nothing is neutral, not training."""
    torch.manual_seed(0)
    experiment = recipe(name)
    network = experiment.model.build(SHAPES[type(experiment.data.source)], 10)
    shake(network)
    return network.eval()


def cut(pictures: Tensor, patch: int) -> Tensor:
    """(b, c, y, x) → (b, n, c·p·p), by unfolding rows and then columns."""
    b, c = pictures.shape[:2]
    windows = pictures.unfold(2, patch, patch).unfold(3, patch, patch)
    return windows.permute(0, 2, 3, 1, 4, 5).reshape(b, -1, c * patch * patch)


def affine(layer: nn.Module, given: Tensor) -> Tensor:
    """W·x + b from a layer's tensors, whatever the layer does with them."""
    made = given @ layer.weight.T
    return made if layer.bias is None else made + layer.bias


def layer_norm(layer: nn.Module, given: Tensor, epsilon: float = 1e-5) -> Tensor:
    centred = given - given.mean(dim=-1, keepdim=True)
    deviation = (centred.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()
    return centred / deviation * layer.weight + layer.bias


def copied(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """A Linear of its own with these weights."""
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    made.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return made


class NotebookHead(nn.Module):
    """R1: one head with Linears of its own, its scores divided by the root of the whole width."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor):
        super().__init__()
        self.query, self.key, self.value = (copied(weight, None) for weight in (query, key, value))

    def forward(self, tokens: Tensor) -> Tensor:
        width = tokens.shape[-1]
        scores = self.query(tokens) @ self.key(tokens).transpose(1, 2) * width**-0.5
        return scores.softmax(dim=-1) @ self.value(tokens)


@torch.inference_mode()
def test_r1_as_written_is_the_notebooks_model() -> None:
    network, pictures = built("r1-shallow"), torch.randn(5, 1, 28, 28)
    assert network.tokens.embed.weight.shape == (32, 49)
    assert len(network.blocks) == 3
    patches = cut(pictures, 7)
    assert patches.shape == (5, 16, 49)
    tokens = affine(network.tokens.embed, patches) + affine(network.tokens.again, patches)
    for block in network.blocks:
        assert block.attention.qkv.bias is None
        queries, keys, values = (whole.chunk(4) for whole in block.attention.qkv.weight.chunk(3))
        heads = [NotebookHead(*parts) for parts in zip(queries, keys, values, strict=True)]
        seen = layer_norm(block.norm_attention, tokens)
        tokens = tokens + affine(block.attention.out, torch.cat([head(seen) for head in heads], dim=-1))
        hidden = affine(block.mlp.enter, layer_norm(block.norm_mlp, tokens)).relu()
        assert hidden.shape[-1] == 4 * 32
        tokens = tokens + affine(block.mlp.leave, hidden)
    expected = affine(network.head.logits, layer_norm(network.norm, tokens))[:, 0].softmax(dim=1)
    torch.testing.assert_close(network(pictures), expected, rtol=0, atol=1e-5)
    assert expected.std(dim=0).min() > 1e-3, "the pictures are told apart"
    assert set(dict(network.named_children())) == {"tokens", "positions", "blocks", "norm", "head"}
    assert not list(network.positions.parameters())


@torch.inference_mode()
def test_r3_as_written_is_one_head_without_norms_positions_or_projection() -> None:
    network, pictures = built("r3-bag"), torch.randn(5, 1, 28, 28)
    patch = recipe("r3-bag").model.tokens.patch  # chosen by us: the report does not say
    tokens = torch.cat([network.extra.expand(5, 1, 32), affine(network.tokens.embed, cut(pictures, patch))], dim=1)
    for block in network.blocks:
        weights = zip(block.attention.qkv.weight.chunk(3), block.attention.qkv.bias.chunk(3), strict=True)
        query, key, value = (copied(weight, bias) for weight, bias in weights)
        scores = torch.bmm(query(tokens), key(tokens).transpose(1, 2)) / 32**0.5
        tokens = tokens + torch.bmm(F.softmax(scores, dim=-1), value(tokens))
        mlp = nn.Sequential(copied(*block.mlp.enter.parameters()), nn.ReLU(), copied(*block.mlp.leave.parameters()))
        assert (mlp[0].out_features, mlp[2].in_features) == (32, 32)
        tokens = tokens + mlp(tokens)
    expected = affine(network.head.logits, tokens[:, 0])
    torch.testing.assert_close(network(pictures), expected, rtol=0, atol=1e-5)
    used = [network.extra, *network.tokens.parameters(), *network.head.parameters()]
    for block in network.blocks:
        used += [*block.attention.qkv.parameters(), *block.mlp.parameters()]
    assert len(list(network.parameters())) == len(used), "nothing else is learned"
    patches = F.unfold(pictures, patch, stride=patch)
    order = torch.arange(patches.shape[-1]).flip(0)
    shuffled = F.fold(patches[:, :, order], (28, 28), patch, stride=patch)
    assert not torch.equal(shuffled, pictures)
    torch.testing.assert_close(network(shuffled), expected, rtol=0, atol=1e-5)


def torchs_encoder(network: VisionTransformer) -> nn.TransformerEncoder:
    """What R4 prints: six of torch's layers, told nothing of the batch's place, with the network's weights."""
    layer = nn.TransformerEncoderLayer(128, 8, dim_feedforward=512, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    for theirs, ours in zip(encoder.layers, network.blocks, strict=True):
        pairs = {
            "self_attn.in_proj_": ours.attention.qkv, "self_attn.out_proj.": ours.attention.out,
            "linear1.": ours.mlp.enter, "linear2.": ours.mlp.leave,
            "norm1.": ours.norm_attention, "norm2.": ours.norm_mlp,
        }  # fmt: skip
        theirs.load_state_dict(
            {f"{name}{kind}": getattr(part, kind) for name, part in pairs.items() for kind in ("weight", "bias")}
        )
        assert theirs.norm1.eps == ours.norm_attention.eps
        assert theirs.dropout1.p == theirs.dropout.p == ours.end_attention.dropout.p == ours.mlp.dropout.p
        assert theirs.self_attn.dropout == ours.attention.dropout
    return encoder.eval()


@torch.inference_mode()
def test_r4_as_written_is_torchs_encoder_on_the_wrong_axis_and_cannot_see() -> None:
    network, pictures = built("r4-batch"), torch.randn(3, 3, 32, 32)
    encoder = torchs_encoder(network)
    # The report flattens a patch as (row, column, channel): the same Linear with its columns in another order.
    patches = cut(pictures, 4).view(3, 64, 3, 16).transpose(2, 3).reshape(3, 64, 48)
    weight = network.tokens.embed.weight.view(128, 3, 16).transpose(1, 2).reshape(128, 48)
    tokens = F.linear(patches, weight, network.tokens.embed.bias)
    tokens = torch.cat([network.extra.expand(3, 1, 128), tokens], dim=1) + network.positions.table
    final = encoder(tokens)
    expected = affine(network.head.logits, final[:, 0])
    torch.testing.assert_close(network(pictures), expected, rtol=0, atol=1e-5)
    other = network(torch.randn(3, 3, 32, 32))
    assert torch.equal(network(pictures), other), "the output cannot depend on the picture at all"
    torch.testing.assert_close(other, other[:1].expand(3, 10), rtol=0, atol=1e-6)
    assert final[:, 1:].std(dim=0).mean() > 1e-2, "though the patches themselves are told apart"


def test_r4_as_written_starts_every_layer_as_a_copy() -> None:
    first, *others = recipe("r4-batch").model.build(Shape(3, 32, 32), 10).blocks
    for block in others:
        assert all(torch.equal(one, two) for one, two in zip(first.parameters(), block.parameters(), strict=True))


TINY = '''"""A tiny experiment.

vitlab reproduce {name} · FIGURE
"""

from vitlab.experiment import Experiment
from vitlab.reproduce.plan import Claim, Reproduction, Variant
from vitlab.settings import override

words = "limit=64 validation=0 epochs=4 batch=16 patch=14 width=8 attention.heads=2 depth=1 warmup=0 graph=yes"
recipe = override(Experiment(), words.split() + {changes})

reproduction = Reproduction(
    report="{report}",
    title="Tiny",
    reading="It is tiny.",
    variants={variants},
    claims={claims},
    seeds=3,
    small={small},
)
'''
FILES = {
    "r8_tiny": {
        "changes": "[]",
        "variants": "(Variant('plain', reported=0.5), Variant('wide', ('width=16',)))",
        "claims": "(Claim('Wide is better.', 'wide', ('plain',)),)",
        "small": "('epochs=2',)",
    },
    "r9_twin": {
        "changes": "['width=16']",
        "variants": "(Variant('same', group='a'), Variant('other', ('width=24',), group='a'))",
        "claims": "()",
        "small": "('epochs=2',)",
    },
    "r9_carried": {
        "changes": "[]",
        "variants": "(Variant('plain'), Variant('carried', first=('patch=7',), small_first=('clip=2',)))",
        "claims": "()",
        "small": "('epochs=1',)",
    },
    "r9_long": {
        "changes": "['checkpoint=1000']",
        "variants": "(Variant('one'),)",
        "claims": "()",
        "small": "('epochs=100', 'measure=10')",
    },
    "r9_mnist": {
        "changes": "['source=mnist']",
        "variants": "(Variant('one'), Variant('two', ('width=16',)))",
        "claims": "()",
        "small": "()",
    },
}


PLACES = ("--runs", "runs", "--records", "records", "--device", "cpu")


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory) -> Path:
    """Experiments that train in a twinkling, as files beside those of the package."""
    folder = tmp_path_factory.mktemp("recipes")
    for name, parts in FILES.items():
        words = TINY.format(name=name.replace("_", "-"), report=name[:2].upper(), **parts)
        (folder / f"{name}.py").write_text(words, encoding="utf-8")
    return folder


@pytest.fixture
def tiny(tiny_folder, monkeypatch, vitlab) -> Callable[..., subprocess.CompletedProcess]:
    """vitlab reproduce in an empty folder, with the tiny experiments among the recipes."""
    monkeypatch.setattr(recipes, "__path__", [*recipes.__path__, str(tiny_folder)])
    yield lambda *words, status=0: vitlab("reproduce", *words, *PLACES, status=status)
    for name in FILES:
        sys.modules.pop(f"vitlab.recipes.{name}", None)


def record_of(name: str, folder: Path = Path("records")) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def files_of(folder: Path = Path("runs")) -> dict[Path, tuple[int, bytes]]:
    """When each file was written, and what is in it."""
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def weights_of(folder: Path) -> dict[str, bytes]:
    return {name: tensor.numpy().tobytes() for name, tensor in load_file(folder / "weights.safetensors").items()}


def table_of(done: subprocess.CompletedProcess) -> str:
    """What is printed from the tables on."""
    assert "\nR" in done.stdout
    return done.stdout[done.stdout.index("\nR") :]


def test_a_reproduction_leaves_a_record_a_page_and_ordinary_runs(tiny) -> None:
    done = tiny("r8-tiny", "--small")
    assert done.stderr == ""
    assert "2 runs to train on cpu, 1 at a time" in done.stdout
    record = record_of("r8-tiny")
    assert list(record) == ["name", "command", "small", "variants"]
    assert record["name"] == "r8-tiny"
    assert record["command"] == "vitlab reproduce r8-tiny --small"
    assert record["small"] is True
    assert [one["name"] for one in record["variants"]] == ["plain", "wide"]
    for one, extra in zip(record["variants"], ([], ["width=16"]), strict=True):
        assert {"name", "group", "settings", "config", "device", "date", "versions", "together", "runs"} <= set(one)
        assert "same_as" not in one
        assert one["settings"] == ["epochs=2", *extra]
        assert one["together"] == 1
        (run,) = one["runs"]
        folder = Path("runs/r8-tiny") / one["name"] / "seed-0"
        assert json.loads((folder / "experiment.json").read_text()) == one["config"]
        result = json.loads((folder / "result.json").read_text())
        kept = ("seed", "test_accuracy", "count", "train_seconds", "epochs", "images_per_second", "parameters")
        assert {name: run[name] for name in kept} == {name: result[name] for name in kept}
        assert (run["seed"], run["count"], run["epochs"]) == (0, 2000, 2)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert run["curve"]["epoch"] == [1, 2]
        assert run["curve"]["loss"] == pytest.approx([line["loss"] for line in lines], abs=1e-5)
        assert run["train_accuracy"] == pytest.approx(lines[-1]["accuracy"], abs=1e-5)
        assert evaluate(folder).accuracy == run["test_accuracy"]
    page = Path("records/reports.md").read_text(encoding="utf-8")
    assert "vitlab reproduce r8-tiny --small" in page
    for one in record["variants"]:
        assert f"{100 * one['runs'][0]['test_accuracy']:.2f}\N{NO-BREAK SPACE}%" in page
    assert "records/reports.md" in done.stdout


def test_what_is_learned_first_is_carried_over(tiny) -> None:
    done = tiny("r9-carried", "--small", "--seeds", "2")
    assert "6 runs to train on cpu, 1 at a time" in done.stdout
    plain, carried = record_of("r9-carried")["variants"]
    assert plain["config"] == carried["config"]
    assert "first" not in plain
    assert "same_as" not in carried, "the same settings, but from other weights on"
    assert carried["first"]["settings"] == ["epochs=1", "patch=7", "clip=2"]
    assert [run["seed"] for run in carried["first"]["runs"]] == [0, 1]
    folder = Path("runs/r9-carried")
    first, start = load_file(folder / "first-patch-7/seed-0/weights.safetensors"), Run(folder / "carried/seed-0").start
    taken = load_file(start)
    assert torch.equal(taken["blocks.0.mlp.enter.weight"], first["blocks.0.mlp.enter.weight"])
    assert first["tokens.embed.weight"].shape[2:] == (7, 7)
    assert taken["tokens.embed.weight"].shape[2:] == (14, 14)
    assert not Run(folder / "plain/seed-0").start.exists()
    before = files_of()
    assert table_of(tiny("r9-carried", "--small", "--seeds", "2")) == table_of(done)
    assert files_of() == before
    others = load_file(folder / "first-patch-7/seed-1/weights.safetensors")
    assert not torch.equal(first["blocks.0.mlp.enter.weight"], others["blocks.0.mlp.enter.weight"])
    taken = load_file(Run(folder / "carried/seed-1").start)
    assert torch.equal(taken["blocks.0.mlp.enter.weight"], others["blocks.0.mlp.enter.weight"])
    assert "first `epochs=1` `patch=7` `clip=2`" in Path("records/reports.md").read_text(encoding="utf-8")


def test_called_again_it_trains_nothing_and_says_the_same(tiny) -> None:
    first = tiny("r8-tiny", "--small", "--seeds", "2")
    files, record = files_of(), files_of(Path("records"))[Path("records/r8-tiny.json")]
    again = tiny("R8", "--small", "--seeds", "2")
    assert files_of() == files
    assert files_of(Path("records"))[Path("records/r8-tiny.json")] == record
    assert table_of(again) == table_of(first)
    assert "to train" not in again.stdout
    assert table_of(tiny("r8-tiny", "--small")) == table_of(first), "fewer seeds than there are ask for nothing"
    tiny("r8-tiny", "--small", "--seeds", "3")
    assert {path: kept for path, kept in files_of().items() if path in files} == files, "only the third is trained"
    assert [run["seed"] for run in record_of("r8-tiny")["variants"][0]["runs"]] == [0, 1, 2]


def test_a_variant_that_the_record_lost_comes_back_from_its_runs_or_is_trained_alone(tiny) -> None:
    first = tiny("r8-tiny", "--small")
    whole, files = record_of("r8-tiny"), files_of()
    lost = whole | {"variants": whole["variants"][1:]}
    path = Path("records/r8-tiny.json")
    path.write_text(json.dumps(lost))
    assert table_of(tiny("r8-tiny", "--small")) == table_of(first)
    assert record_of("r8-tiny") == whole
    assert files_of() == files
    path.write_text(json.dumps(lost))
    shutil.rmtree("runs/r8-tiny/plain")
    done = tiny("r8-tiny", "--small")
    assert "1 runs to train" in done.stdout or "1 run to train" in done.stdout
    assert {path: kept for path, kept in files_of().items() if "wide" in path.parts} == {
        path: kept for path, kept in files.items() if "wide" in path.parts
    }
    again = record_of("r8-tiny")
    assert [one["name"] for one in again["variants"]] == ["plain", "wide"]
    for old, new in zip(whole["variants"], again["variants"], strict=True):
        assert new["runs"][0]["test_accuracy"] == old["runs"][0]["test_accuracy"]
        assert new["runs"][0]["curve"] == old["runs"][0]["curve"]


@pytest.mark.parametrize("at_once", [True, False])
def test_variants_with_the_same_settings_are_trained_once_and_say_so(tiny, at_once: bool) -> None:
    if at_once:
        assert "3 runs to train" in tiny("r8-tiny", "r9-twin", "--small").stdout
    else:
        tiny("r8-tiny", "--small")
        assert "1 run" in tiny("r9-twin", "--small").stdout
    wide, twin = record_of("r8-tiny")["variants"][1], record_of("r9-twin")["variants"][0]
    assert (twin["name"], twin["group"], twin["settings"]) == ("same", "a", ["epochs=2"])
    assert twin["same_as"] == "r8-tiny, wide"
    assert (twin["runs"], twin["config"]) == (wide["runs"], wide["config"])
    assert "same_as" not in wide
    assert not Path("runs/r9-twin/a-same").exists()
    assert Path("runs/r9-twin/a-other/seed-0/result.json").exists()
    files = files_of()
    tiny("r8", "r9-twin", "--small")
    assert files_of() == files


def test_no_minutes_begin_nothing_and_lose_nothing(tiny, vitlab) -> None:
    done = tiny("r8-tiny", "--small", "--minutes", "0")
    assert "0 minutes are over, nothing is lost" in done.stdout
    assert not files_of()
    tiny("r8-tiny", "--small")
    files, record = files_of(), record_of("r8-tiny")
    done = tiny("r8-tiny", "r9-twin", "--small", "--minutes", "0")
    assert "0 minutes are over" in done.stdout
    assert files_of() == files
    assert record_of("r8-tiny") == record
    assert [one["name"] for one in record_of("r9-twin")["variants"]] == ["same"], "what needs no run is kept"
    assert "minutes are over" not in tiny("r8-tiny", "--small", "--minutes", "0").stdout, "nothing was left to do"
    real = vitlab("reproduce", "r3", "r1-shallow", "--small", "--minutes", "0")
    assert "16 runs to train" in real.stdout
    assert "0 minutes are over" in real.stdout
    assert real.stderr == ""


@pytest.mark.parametrize("word", ["seeds", "workers"])
def test_none_of_what_must_be_one_is_refused(tiny, word: str) -> None:
    line = refused(tiny("r8-tiny", "--small", f"--{word}", "0", status=2))
    assert f"{word} must be 1 or more, not 0" in line
    assert not list(Path().iterdir())


@pytest.mark.parametrize(
    "damaged", ["", "{", "[]", "null", "{}", '{"name": "r8-tiny", "small": true}',
                '{"name": "r8-tiny", "small": true, "variants": [{"name": "plain"}]}', "[" * 100_000,
                '{"name": "r8-tiny", "small": true, "variants": [{"name": [], "group": {}, "settings": [], '
                '"config": {}, "runs": 0, "together": 1, "device": "x", "date": "x", "versions": {}}]}'],
)  # fmt: skip
def test_a_damaged_record_is_refused_by_its_name_and_left_alone(tiny, damaged: str) -> None:
    path = Path("records/r8-tiny.json")
    path.parent.mkdir()
    path.write_text(damaged)
    assert str(path) in refused(tiny("r8-tiny", "--small", status=2))
    assert path.read_text() == damaged
    assert not files_of()


def test_full_and_small_records_and_runs_are_never_mixed(tiny) -> None:
    tiny("r8-tiny", "--seeds", "1")
    record = record_of("r8-tiny")
    assert record["small"] is False
    assert record["command"] == "vitlab reproduce r8-tiny"
    assert record["variants"][0]["runs"][0]["epochs"] == 4
    line = refused(tiny("r8-tiny", "--small", status=2))
    assert "records/r8-tiny.json is no record of the small r8-tiny" in line
    assert record_of("r8-tiny") == record


def test_finished_runs_of_other_settings_are_not_taken_for_these(tiny) -> None:
    """The full runs lie where the small ones would, and the record is gone."""
    tiny("r8-tiny", "--seeds", "1")
    files = files_of()
    shutil.rmtree("records")
    line = refused(tiny("r8-tiny", "--small", status=2))
    assert "runs/r8-tiny/plain/seed-0" in line
    assert files_of() == files


@pytest.mark.usefixtures("one_core")
def test_two_workers_give_the_bits_of_one(tiny, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    tiny("r8-tiny", "r9-twin", "--small")
    alone = {path.parent: weights_of(path.parent) for path in Path("runs").rglob("weights.safetensors")}
    assert len(alone) == 3
    Path("runs").rename("alone")
    Path("records").rename("alone-records")
    done = tiny("r8-tiny", "r9-twin", "--small", "--workers", "2")
    assert "3 runs to train on cpu, 2 at a time" in done.stdout
    assert done.stderr == ""
    assert {folder: weights_of(folder) for folder in alone} == alone
    assert {Run(folder).environment["threads"] for folder in alone} == {1}, "of the cores that this process may use"
    for name in ("r8-tiny", "r9-twin"):
        for one, two in zip(
            record_of(name)["variants"], record_of(name, Path("alone-records"))["variants"], strict=True
        ):
            assert one["together"] == 2
            assert two["together"] == 1
            assert one["runs"][0]["test_accuracy"] == two["runs"][0]["test_accuracy"]
            assert one.get("same_as") == two.get("same_as")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_in_a_worker_ends_in_one_line(tiny, workers: int) -> None:
    Path("empty").mkdir()
    line = refused(tiny("r9-mnist", "--seeds", "1", "--workers", str(workers), "--data", "empty", status=2))
    assert "mnist" in line
    assert not list(Path().rglob("result.json"))


def tiny_command_line(folder: Path, *words: str) -> None:
    recipes.__path__.append(str(folder))
    apart.command_line("reproduce", *words, *PLACES)


def interrupt(started: apart.Started, ready: Callable[[], bool], within: float) -> None:
    """Press Ctrl-C, which reaches every process, once it is ready, and see it end in one line."""
    started.wait_for(lambda: "to train on cpu" in started.out.read_text())
    started.wait_for(ready)
    asked = time.monotonic()
    started.send(signal.SIGINT)
    done = started.end(60)
    assert done.returncode == 130, done.stderr
    assert time.monotonic() - asked < within
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("vitlab: ")


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_interrupted_it_ends_at_once_and_the_same_command_goes_on_to_the_same_bits(
    tiny, tiny_folder, begin, workers: int
) -> None:
    words = ["r9-long", "--small", "--seeds", str(workers), "--workers", str(workers)]
    folders = [Path(f"runs/r9-long/one/seed-{seed}") for seed in range(workers)]
    metrics = [folder / "metrics.jsonl" for folder in folders]
    started = begin(tiny_folder, *words, call=tiny_command_line)
    interrupt(started, lambda: all(path.exists() and path.stat().st_size for path in metrics), within=8)
    assert any((folder / "checkpoint.safetensors").exists() for folder in folders), "it was stopped in the middle"
    assert not Path("records/r9-long.json").exists()
    assert tiny(*words).stderr == ""
    (entry,) = record_of("r9-long")["variants"]
    assert [run["seed"] for run in entry["runs"]] == list(range(workers))
    Path("runs").rename("stopped")
    Path("records").rename("stopped-records")
    tiny("r9-long", "--small", "--seeds", str(workers))
    for folder in folders:
        assert weights_of(folder) == weights_of("stopped" / folder.relative_to("runs"))


def test_interrupted_while_its_workers_start_it_ends_in_one_line(tmp_path, monkeypatch, tiny_folder, begin) -> None:
    """Ctrl-C reaches every process: one that is still importing, and one that has a run but does not train yet."""
    monkeypatch.chdir(tmp_path)
    words = ("r9-long", "--small", "--seeds", "2", "--workers", "2")

    def after_half_a_second() -> bool:
        time.sleep(0.5)
        return True

    interrupt(begin(tiny_folder, *words, call=tiny_command_line), after_half_a_second, within=20)
    assert not list(Path().rglob("result.json")), "it does not wait for the runs to end"


@pytest.mark.usefixtures("one_core")
def test_of_the_cores_those_count_that_this_process_may_use() -> None:
    assert cores() == 1
    assert choose_workers(shared=True) == 1, "which is too few to feed a GPU that is shared"


def test_a_gpu_is_shared_only_where_there_is_one() -> None:
    before = dict(os.environ)
    with shared_gpu(torch.device("cpu")) as shared:
        assert shared is False
        assert dict(os.environ) == before
    assert dict(os.environ) == before


def put_on_path(monkeypatch, folder: Path, script: str) -> Path:
    """A stand-in for NVIDIA's control program that writes down what it is told."""
    control, log = folder / "nvidia-cuda-mps-control", folder / "log"
    control.write_text(f"#!/bin/sh\n{script.replace('NOTES', str(log))}")
    control.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    return log


TELLS = """echo "arguments: $*, pipe: $CUDA_MPS_PIPE_DIRECTORY, log: $CUDA_MPS_LOG_DIRECTORY" >> NOTES
if [ "$1" != -d ]; then echo "told: $(cat)" >> NOTES; fi
"""


@pytest.mark.parametrize("fails_within", [False, True])
def test_the_service_that_shares_a_gpu_is_started_and_told_to_quit(monkeypatch, tmp_path, fails_within: bool) -> None:
    log = put_on_path(monkeypatch, tmp_path, TELLS)
    before = dict(os.environ)

    def use() -> str:
        with shared_gpu(torch.device("cuda")) as shared:
            assert shared is True
            inside = {name: value for name, value in os.environ.items() if before.get(name) != value}
            assert set(inside) == {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"}
            (folder,) = set(inside.values())
            assert Path(folder).is_dir()
            assert log.read_text() == f"arguments: -d, pipe: {folder}, log: {folder}\n"
            with shared_gpu(torch.device("cuda")) as again:
                assert again is True, "one that runs is used, and left running"
            assert log.read_text().count("\n") == 1
            used.append(folder)
            if fails_within:
                raise ZeroDivisionError
        return folder

    used: list[str] = []
    if fails_within:
        with pytest.raises(ZeroDivisionError):
            use()
    else:
        use()
    (folder,) = used
    assert log.read_text().splitlines()[1:] == [f"arguments: , pipe: {folder}, log: {folder}", "told: quit"]
    assert dict(os.environ) == before
    assert not Path(folder).exists()


def test_a_service_that_does_not_start_is_done_without(monkeypatch, tmp_path) -> None:
    log = put_on_path(monkeypatch, tmp_path, TELLS + "exit 1\n")
    before = dict(os.environ)
    with shared_gpu(torch.device("cuda")) as shared:
        assert shared is False
        assert dict(os.environ) == before
    assert dict(os.environ) == before
    assert log.read_text().count("\n") == 1, "and nothing is told to quit"


def test_a_gpu_without_the_service_is_not_shared(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with shared_gpu(torch.device("cuda")) as shared:
        assert shared is False
