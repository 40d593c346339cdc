"""What only a GPU shows: fused kernels in bfloat16, compilation, recorded steps, and training there.

Run by hand: pytest -m gpu.
"""

from collections import Counter
from contextlib import contextmanager
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from conftest import QUICK
from kinds import ATTENTIONS, build, each, small_attention, small_multiscale, small_vit, some_pictures
from loops import loop_of, small, stop_after, trained
from mistaken import MISTAKES, SOUND
from test_data_mapped import folder, noise
from torch import nn

import vitlab
from vitlab.check import check
from vitlab.engine.compiler import in_compiled_parts
from vitlab.look import inside
from vitlab.model import fused
from vitlab.model.attention import Attention, Softmax
from vitlab.model.blocks import Block
from vitlab.model.gelu import gelu, gelu_of, normed_gelu
from vitlab.model.layout import Grid, Layout
from vitlab.model.positions import Rotary
from vitlab.model.tokens import HalvingStem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # torch 2.11's own, when it compiles
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),  # a thread's first gradient
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),  # advice that float32 runs do not want
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),  # the compiler asks what is no leaf for it
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),  # which says that it is a prototype
]


@pytest.fixture(autouse=True)
def compiled_anew():
    """Each test compiles what it calls: past a number of shapes the compiler would give up, and call it plain."""
    torch.compiler.reset()


@pytest.mark.parametrize("kind", get_args(Attention), ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 4e-2)])
def test_the_map_is_what_the_fused_kernel_did(kind, dtype, tolerance):
    """Tolerance: relative error of tf32-free float32 sums, and of bfloat16's 8 bits over 65 tokens."""
    torch.manual_seed(0)
    mixer = kind().build(128, Layout(1, (Grid(8, 8),))).to("cuda", dtype)
    tokens = torch.randn(4, 65, 128, device="cuda", dtype=dtype)
    expected = mixer(tokens)
    found = mixer.join(mixer.map(tokens) @ mixer.values(tokens))
    assert (found - expected).norm() / expected.norm() < tolerance


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("turning", ["none", "one table", "a table each"])
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize(
    ("layout", "head"),
    [
        (Layout(0, (Grid(8, 8),)), 64),
        (Layout(1, (Grid(8, 8),)), 32),
        (Layout(0, (Grid(4, 4),)), 16),
        (Layout(2, (Grid(3, 7),)), 128),
    ],
    ids=["64 tokens", "65 tokens", "16 tokens", "23 tokens"],
)
def test_one_kernel_mixes_few_tokens(layout, head, norm, turning, compiled):
    """Outputs and gradients against float32 by torch; tolerance: bfloat16's 8 bits."""
    torch.manual_seed(0)
    mixer = Softmax(heads=3, qk_norm=norm, lean=True).build(3 * head, layout).to("cuda")
    rotation = None if turning == "none" else Rotary().build(layout, 3 * head, head).rotation.to("cuda")
    if turning == "a table each":
        rotation = rotation.at(torch.stack([torch.randperm(layout.tokens) for _ in range(5)]).to("cuda"))
    tokens = torch.randn(5, layout.tokens, 3 * head, device="cuda", requires_grad=True)
    asked = torch.randn_like(tokens)
    call = torch.compile(mixer, dynamic=False) if compiled else mixer
    with counted_kernels() as counted, torch.autocast("cuda", torch.bfloat16):
        found = call(tokens, rotation)
        wanted = [tokens, *mixer.parameters()]
        gradients = torch.autograd.grad(found, wanted, asked.to(found.dtype))
    assert counted == {"attention_mix": 1, "attention_unmix": 1}
    expected = mixer(tokens, rotation)
    assert counted == {"attention_mix": 1, "attention_unmix": 1}  # float32 goes another way
    for one, other in zip([found, *gradients], [expected, *torch.autograd.grad(expected, wanted, asked)], strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


@contextmanager
def counted_kernels():
    """How often each of our kernels is launched."""
    counted, launch = Counter(), fused.launch

    def count(name, *rest):
        counted[name] += 1
        launch(name, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "launch", count)
        yield counted


def near(found: torch.Tensor, expected: torch.Tensor, part: float) -> bool:
    """Whether it differs by less than a part of what is expected; nothing, or all zeros, must be met."""
    return bool((found - expected).norm() <= part * expected.norm())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("shape", [(7, 64, 384), (3, 5, 7), (0, 8)], ids=str)
def test_gelu_is_torchs_in_double_precision(shape, compiled):
    """Outputs and gradients from the same 16 bits; tolerance: what rounding the result to 8 bits adds."""
    torch.manual_seed(0)
    x = (3 * torch.randn(shape, device="cuda")).bfloat16().requires_grad_()
    asked = torch.randn_like(x)
    y = (torch.compile(gelu, dynamic=False) if compiled else gelu)(x)
    given = torch.autograd.grad(y, x, asked)[0]
    precise = x.detach().double().requires_grad_()
    expected = F.gelu(precise)
    wanted = torch.autograd.grad(expected, precise, asked.double())[0]
    assert y.dtype == given.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), expected.detach(), rtol=4e-3, atol=1e-6)
    torch.testing.assert_close(given.double(), wanted, rtol=4e-3, atol=1e-6)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("shape", [(7, 65, 96), (130, 8), (0, 16)], ids=str)
def test_gelu_behind_a_bias_is_torchs(shape, compiled):
    """Outputs and gradients against float32; tolerance: bfloat16's 8 bits in a product and in what comes of it."""
    torch.manual_seed(0)
    layer = nn.Linear(shape[-1], 200).cuda()
    x = torch.randn(shape, device="cuda", requires_grad=True)
    wanted = [x, *layer.parameters()]
    call = torch.compile(gelu_of, dynamic=False) if compiled else gelu_of
    with torch.autocast("cuda", torch.bfloat16):
        y = call(layer, x)
    assert y.dtype == torch.bfloat16
    asked = torch.randn_like(y)
    found = torch.autograd.grad(y, wanted, asked)
    expected = F.gelu(layer(x))
    for one, other in zip([y, *found], [expected, *torch.autograd.grad(expected, wanted, asked.float())], strict=True):
        assert near(one.float(), other, 0.02)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("shape", [(9, 64, 32, 32), (3, 48, 7, 5), (2, 3, 4, 4), (2, 512, 2, 3), (0, 8, 2, 2)], ids=str)
def test_a_norm_with_gelu_is_torchs_in_double_precision(shape, compiled):
    """Tolerance: of outputs 8 bits; gradients go through a slope of 8 bits, and few numbers do not average that out."""
    torch.manual_seed(0)
    norm = nn.GroupNorm(1, shape[1]).cuda()
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    z = (2 * torch.randn(shape, device="cuda") + 1).bfloat16().requires_grad_()
    asked = torch.randn_like(z)
    y = (torch.compile(normed_gelu, dynamic=False) if compiled else normed_gelu)(z, norm)
    found = torch.autograd.grad(y, [z, *norm.parameters()], asked)
    precise = z.detach().double().requires_grad_()
    norm = norm.double()
    expected = F.gelu(norm(precise))
    wanted = torch.autograd.grad(expected, [precise, *norm.parameters()], asked.double())
    assert y.dtype == found[0].dtype == torch.bfloat16
    assert y.shape == z.shape
    assert near(y.double(), expected, 3e-3)
    for one, other in zip(found, wanted, strict=True):
        assert near(one.double(), other, 6e-3)


MIXED = ("optimiser=muon", "ema=0.99", "cutmix=1", "mixup=0.8", "erase=0.2")
LEAN = (
    "tokens=halving-stem", "patch=4", "filters=yes", "shift=8", "norm_kind=rms", "block.lean=yes", "attention.lean=yes",
    "qk_norm=yes", "start=zero", "head=mean", "stochastic_depth=0.1", "trivial=yes",
)  # fmt: skip


FAST = (*MIXED, *LEAN, "compile=yes", "graph=yes")


@pytest.mark.parametrize("extra", [(), ("compile=yes",), MIXED, FAST, (*FAST, "window=0.75")])
def test_it_learns_there(tmp_path, extra):
    words = ("epochs=4", "batch=100", "patch=7", "width=64", "learning_rate=2e-3", "warmup=0.5", "rotate=0", *extra)
    run = vitlab.train("digits", *words, runs=tmp_path, device="cuda", quiet=True)
    assert run.result["test_accuracy"] > 0.8
    there, here = vitlab.evaluate(run, device="cuda"), vitlab.evaluate(run, device="cpu")
    assert abs(there.accuracy - here.accuracy) < 0.01
    assert run.environment["device"] == torch.cuda.get_device_name()


@pytest.mark.parametrize(
    "words",
    [
        ("trivial=yes", "crop=2", "cutmix=1", "window=0.5", "ema=0.9"),
        ("objective=mae", "ema=0.9"),
        ("objective=dino", "colour=0.4"),
    ],
    ids=["supervised", "mae", "dino"],
)
def test_a_step_does_not_wait_for_the_one_before(tmp_path, words):
    """What is sent to the device from pageable memory and waited for would let it stand idle."""
    loop = loop_of(small("optimiser=muon", "head=mean", *words), tmp_path, "cuda")
    chosen = torch.arange(16, device="cuda")
    for _ in range(2):
        loop.train_step(chosen)
    try:
        torch.cuda.set_sync_debug_mode("error")
        loop.train_step(chosen)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", ["digits-mae", "digits-dino"])
def test_without_labels_a_compiled_and_recorded_run_learns_what_a_plain_one_learns(tmp_path, name):
    words = ("epochs=2", "measure=1", "limit=2000", "precision=float32")
    plain = vitlab.train(name, *words, name="plain", runs=tmp_path, device="cuda", quiet=True)
    fast = vitlab.train(name, *words, "compile=yes", "graph=yes", name="fast", runs=tmp_path, device="cuda", quiet=True)
    losses = [[line["loss"] for line in run.metrics()] for run in (plain, fast)]
    assert losses[1] == pytest.approx(losses[0], rel=5e-3)
    assert abs(fast.result["knn_accuracy"] - plain.result["knn_accuracy"]) < 0.03


def test_a_compiled_model_is_the_plain_one():
    """In float32, gradients too: stochastic depth draws other numbers, so that it is off."""
    model = small_vit(
        tokens=HalvingStem(4, channels=8), positions=Rotary(table=True), block=Block(shift=4, layer_scale=0.1), depth=3
    )
    network, pictures = build(model).cuda().train(), some_pictures(6).cuda()
    found = []
    for forward in (network, in_compiled_parts(network)):
        network.zero_grad()
        logits = forward(pictures)
        logits.square().sum().backward()
        found.append([logits.detach(), *(p.grad.clone() for p in network.parameters())])
    for plain, compiled in zip(*found, strict=True):
        torch.testing.assert_close(compiled, plain, rtol=2e-3, atol=2e-4)


def test_a_diverging_run_is_noticed_although_the_gpu_is_asked_only_now_and_then(tmp_path):
    with pytest.raises(vitlab.BadInput, match="no longer a number at step"):
        vitlab.train(
            "digits",
            *QUICK,
            "optimiser=adamw",
            "learning_rate=1e30",
            "clip=0",
            runs=tmp_path,
            device="cuda",
            quiet=True,
        )


# Twenty steps in float32: more than the three that come before a recorded one, in two epochs. A recorded AdamW counts
# its steps on the device in float32, so that it differs by 1e-7 a step, which twenty let grow. Draws that did not
# follow (seed, step) move the losses by 1e-2 and more.
RECORDED = ("epochs=2", "data.limit=1000", "batch=100", "patch=7", "width=64", "precision=float32", "warmup=0.5")
CLOSE = {"rel": 1e-3}
DROPPED = ("block.dropout=0.1", "hidden_dropout=0.1", "attention.dropout=0.1", "stochastic_depth=0.1")


def recorded(*words: str) -> vitlab.Experiment:
    return vitlab.override(vitlab.Experiment(), [*RECORDED, *words])


def losses_of(run: vitlab.Run) -> list[float]:
    """Of each epoch, and of the test part at the end."""
    return [line["loss"] for line in run.metrics()] + [run.result["test_loss"]]


@pytest.mark.parametrize(
    "extra",
    [
        (),
        ("block.dropout=0.1",),
        (*DROPPED, "ema=0.9", "clip=0.1", "rotate=10"),
        ("clip=0", "head=mean"),
        ("optimiser=muon", "mixup=0.8", "cutmix=1", "mixed=0.7", "label_smoothing=0.1", "ema=0.9"),
        ("window=0.5", "window_until=0.5"),
        ("objective=mae", "head=mean"),
        ("objective=dino", "small_views=2", "prototypes=64", "frozen=0.3"),
    ],
)
def test_a_recorded_step_learns_what_a_plain_one_learns(tmp_path, extra):
    plain = trained(recorded(*extra), tmp_path / "plain", device="cuda")
    graph = trained(recorded(*extra, "graph=yes"), tmp_path / "graph", device="cuda")
    other = trained(recorded(*extra, "graph=yes", "seed=1"), tmp_path / "other", device="cuda")
    assert losses_of(graph) == pytest.approx(losses_of(plain), **CLOSE)
    assert losses_of(other) != pytest.approx(losses_of(plain), **CLOSE), "the tolerance tells two seeds apart"
    assert abs(graph.result["test_accuracy"] - plain.result["test_accuracy"]) <= 0.005


def test_what_is_dropped_in_a_recorded_step_is_drawn_anew_at_each(tmp_path):
    """A learning rate of nothing keeps the weights: only the draws set one epoch's loss apart from another's."""
    still = ("learning_rate=0", "data.limit=100", "epochs=8", "validation=0.5")
    graph = trained(recorded(*still, "block.dropout=0.3", "graph=yes"), tmp_path / "graph", device="cuda")
    losses = [line["loss"] for line in graph.metrics()]
    assert len(losses) == 8
    assert len({round(loss, 5) for loss in losses}) == 8
    plain = trained(recorded(*still, "block.dropout=0.3"), tmp_path / "plain", device="cuda")
    assert losses == pytest.approx([line["loss"] for line in plain.metrics()], rel=1e-5)


@pytest.mark.parametrize("extra", [(), ("window=0.5", "window_until=0.4")], ids=["whole", "window"])
@pytest.mark.parametrize("steps", [2, 7, 10, 16])
def test_a_run_with_a_recorded_step_goes_on_from_its_checkpoint(tmp_path, steps, extra):
    """Stopped before the step is recorded, and after; in the middle of an epoch, and at its end."""
    experiment = recorded(*DROPPED, "ema=0.9", "clip=0.1", "graph=yes", *extra)
    whole = trained(experiment, tmp_path / "whole", device="cuda")
    stop_after(steps, loop_of(experiment, tmp_path / "stopped", device="cuda"))
    stopped = trained(experiment, tmp_path / "stopped", device="cuda")
    assert losses_of(stopped) == pytest.approx(losses_of(whole), **CLOSE)
    assert [line["step"] for line in stopped.metrics()] == [10, 20]


def test_a_recorded_run_that_diverges_is_noticed_at_its_step(tmp_path):
    """The step is read where the recorded one counts it, so that it is the step of a plain run."""
    words = ("learning_rate=1e30", "clip=0", "warmup=2", "data.limit=400")
    said = []
    for graph in ("yes", "no"):
        with pytest.raises(vitlab.BadInput, match="no longer a number at step") as caught:
            trained(recorded(*words, f"graph={graph}"), tmp_path / graph, device="cuda")
        said.append(str(caught.value).partition(";")[0])
    assert said[0] == said[1]


@pytest.mark.parametrize("name", ["Sound", "R1 SoftmaxTwice", "R4 BatchFirst, mean"])
def test_a_model_is_checked_where_it_lies(name):
    make, expected = MISTAKES.get(name, (SOUND.get(name), set()))
    report = check(lambda: make().cuda(), (1, 28, 28))
    assert set(report.named("mistake")) == expected
    assert not report.named("unknown")


@each(ATTENTIONS)
@pytest.mark.parametrize("several", [False, True], ids=["vit", "multi-scale"])
def test_looking_inside_shows_the_same_on_a_gpu(kind, several):
    model = (
        small_multiscale(attention=small_attention(kind, heads=4))
        if several
        else small_vit(attention=small_attention(kind))
    )
    network, pictures = build(model, seed=3), some_pictures(5)
    on_cpu = inside(network, pictures)
    there = inside(network.cuda(), pictures)
    assert there.gap < 1e-4
    for stream, other in zip(on_cpu.streams, there.streams, strict=True):
        for name in ("attention", "rollout", "relevance", "similarity", "distance", "entropy"):
            torch.testing.assert_close(getattr(stream, name), getattr(other, name), rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("extra", [(), ("graph=yes",), ("objective=mae",)])
def test_pictures_on_disk_go_there_batch_by_batch(tmp_path, extra):
    source = f"data.source=folder:{folder(tmp_path / 'noise', noise(40))}"
    words = (source, "epochs=3", "batch=16", "patch=4", "width=16", "depth=2", "measure=1", "by_turns=yes", "flip=yes")
    here, disk = (
        vitlab.train("digits", *words, *extra, f"memory={memory}", name=f"m{memory}", runs=tmp_path, data=tmp_path,
                     device="cuda", quiet=True)
        for memory in (4, 0)
    )  # fmt: skip
    assert "not in memory" in disk.card.notes[-1]
    assert [line["loss"] for line in disk.metrics()] == pytest.approx(
        [line["loss"] for line in here.metrics()], rel=1e-3
    )
    assert torch.allclose(disk.evaluation.logits, here.evaluation.logits, atol=1e-2)
