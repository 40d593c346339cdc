"""The arithmetic of a model agrees with what its equations say, and peak memory with what was allocated."""

import threading
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vitlab import recipe
from vitlab.engine import memory
from vitlab.engine.cost import block_share, flops, step_flops
from vitlab.model import Shape, ViT
from vitlab.model.attention import Attention, Linformer, Locality, Softmax, Uniform
from vitlab.model.blocks import Block
from vitlab.model.heads import Mean, SequencePool
from vitlab.model.tokens import ConvPatches
from vitlab.objectives import Dino, Supervised

WIDTH, DEPTH, CLASSES, SIDE, SQUEEZED = 32, 3, 7, 28, 5
KINDS: list[Attention] = [Softmax(heads=4), Linformer(heads=4, k=SQUEEZED), Uniform(), Locality(heads=4)]


def mixing(kind: str, tokens: int, asking: int) -> int:
    """Multiply-adds that mix the tokens of one block for those that ask: products with weights, then with tokens."""
    square = WIDTH * WIDTH
    weights = (3 * tokens + asking) * square
    return {
        "softmax": weights + 2 * asking * tokens * WIDTH,
        "locality": 4 * tokens * square + 2 * tokens * tokens * WIDTH,
        "linformer": weights + 2 * SQUEEZED * tokens * WIDTH + 2 * asking * SQUEEZED * WIDTH,
        "uniform": 2 * square,
    }[kind]


def by_hand(kind: str, patch: int, read: int | None, mlp: int) -> int:
    """2 · multiply-adds of patches, blocks and logits; the last block works only on what the head reads."""
    patches = (SIDE // patch) ** 2
    tokens = patches + (read == 1)
    read = read or patches
    seen = tokens * (DEPTH - 1) + read
    return 2 * (
        patches * patch * patch * WIDTH
        + (DEPTH - 1) * mixing(kind, tokens, tokens)
        + mixing(kind, tokens, read)
        + seen * 2 * WIDTH * mlp * WIDTH
        + WIDTH * CLASSES
    )


@pytest.mark.parametrize("attention", KINDS, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("patch", [7, 4])  # 17 tokens are mixed by plain products, 50 by the CPU's fused kernel
def test_operations_are_those_of_the_equations(attention: Attention, patch: int) -> None:
    model = ViT(WIDTH, DEPTH, tokens=ConvPatches(patch=patch), attention=attention, block=Block(mlp=2))
    network = model.build(Shape(1, SIDE, SIDE), CLASSES)
    assert flops(network) == by_hand(attention.kind, patch, read=1, mlp=2)


def test_a_mean_head_reads_every_token() -> None:
    model = ViT(WIDTH, DEPTH, tokens=ConvPatches(patch=4), block=Block(mlp=4), head=Mean())
    network = model.build(Shape(1, SIDE, SIDE), CLASSES)
    assert flops(network) == by_hand("softmax", 4, read=None, mlp=4)


def test_torchs_own_counter_misses_the_fused_kernel() -> None:
    """The day it does not, the mapping in engine.cost has served."""
    model = ViT(WIDTH, DEPTH, tokens=ConvPatches(patch=4), head=Mean())
    network = model.build(Shape(1, SIDE, SIDE), CLASSES).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(torch.zeros(1, 1, SIDE, SIDE))
    missed = 2 * DEPTH * 2 * 49 * 49 * WIDTH
    assert counter.get_total_flops() + missed == flops(network)


def test_counting_leaves_the_model_as_it_was() -> None:
    network = ViT(WIDTH, 1, block=Block(dropout=0.5)).build(Shape(1, SIDE, SIDE), CLASSES)
    for training in (True, False):
        network.train(training)
        flops(network)
        assert all(module.training is training for module in network.modules())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_step_costs_what_its_objective_does() -> None:
    """Thrice a forward by a label; without, each view of the student thrice and of the teacher once, and the rest."""
    network = ViT(WIDTH, DEPTH, head=Mean()).build(Shape(1, SIDE, SIDE), CLASSES)
    pictures, labels, count = torch.rand(6, 1, SIDE, SIDE), torch.zeros(6, dtype=torch.int64), 6
    assert step_flops(Supervised().build(network), pictures, labels) == 3 * flops(network)
    settings = Dino(prototypes=0, head_width=24, bottleneck=8, small_views=0)
    learner = settings.build(network)
    view = flops(network) - 2 * WIDTH * CLASSES + 2 * (WIDTH * 24 + 24 * 24 + 24 * 8)
    likened = 2 * 2 * 2 * count * 8  # each of two student views with all of two teacher views, for one picture
    assert step_flops(learner, pictures, labels) == 2 * (3 + 1) * view + 3 * likened + likened // 2


def test_peak_memory_is_that_of_the_run_and_not_of_the_process() -> None:
    device, size = torch.device("cpu"), 200_000_000
    memory.begin(device)
    before = memory.peak(device)
    torch.ones(size, dtype=torch.uint8)  # given back at once, but it was there
    high = memory.peak(device)
    assert high - before > 0.9 * size
    memory.begin(device)
    assert high - memory.peak(device) > 0.9 * size


def test_peak_memory_where_the_system_tells_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without /proc the peak is that of the process's whole life, in the unit of the system: no less than the run's."""
    device = torch.device("cpu")
    known = memory.peak(device)
    monkeypatch.setattr(memory, "OWN", tmp_path / "nowhere")
    memory.begin(device)
    assert 0.5 * known < memory.peak(device) < 100 * known


def test_the_share_of_the_blocks_is_what_patches_and_logits_leave() -> None:
    model = ViT(width=WIDTH, depth=DEPTH, tokens=ConvPatches(7), attention=Softmax(heads=4), head=Mean())
    network = model.build(Shape(1, SIDE, SIDE), CLASSES)
    outside = 2 * (16 * 49 * WIDTH + WIDTH * CLASSES)
    assert block_share(network) == pytest.approx(1 - outside / flops(network), rel=1e-12)
    assert 0.5 < block_share(network) < 1


@pytest.mark.parametrize(("name", "share"), [("cifar10-fast", 0.86), ("cifar10-light", 0.87), ("cifar10-best", 0.81)])
def test_the_recipes_are_vits_by_their_arithmetic(name: str, share: float) -> None:
    """At least 80 % in attention and MLPs: no convolutional network with a block on top."""
    network = recipe(name).model.build(Shape(3, 32, 32), 10)
    assert block_share(network) == pytest.approx(share, abs=0.005)


def test_models_are_counted_and_used_in_threads_at_once():
    network, counted = ViT(WIDTH, DEPTH, head=SequencePool()).build(Shape(1, SIDE, SIDE), CLASSES), threading.Event()
    wanted, faults = flops(network), []

    def look() -> None:
        try:
            while not counted.is_set():
                network.trace(torch.zeros(1, 1, SIDE, SIDE)).shares()
        except Exception as error:
            faults.append(error)

    looking = threading.Thread(target=look)
    looking.start()
    found = {flops(network) for _ in range(20)}
    with torch.inference_mode():
        found.add(flops(network))
    counted.set()
    looking.join()
    assert found == {wanted}
    assert not faults
