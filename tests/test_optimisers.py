"""Which weights decay, which Muon takes, and the learning rate step by step."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import (
    CLASSES,
    EVERY_MODEL,
    OPTIMISERS,
    build,
    choices,
    each,
    small_attention,
    small_multiscale,
    small_vit,
    some_pictures,
)
from torch import nn

from vitlab.engine.muon import Orthogonal
from vitlab.engine.optimisers import AdamW, Muon, Schedule
from vitlab.errors import BadInput
from vitlab.model.attention import LinformerMixer, Locality
from vitlab.model.blocks import BlockLayer
from vitlab.model.heads import PoolReader
from vitlab.model.tokens import ConvPool, HalvingStem, SeveralScales


def names(network: nn.Module, parameters) -> set[str]:
    by_id = {id(parameter): name for name, parameter in network.named_parameters()}
    return {by_id[id(parameter)] for parameter in parameters}


def matrices(network: nn.Module) -> set[str]:
    """Weights that multiply features: of dense layers, of convolutions, Linformer's squeezes, what a pool asks for."""
    found = {f"{name}.weight" for name, part in network.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)}
    for name, part in network.named_modules():
        if isinstance(part, LinformerMixer):
            found |= {f"{name}.squeeze_keys", f"{name}.squeeze_values"}
        if isinstance(part, PoolReader):
            found.add(f"{name}.ask")
    return found


def block_matrices(network: nn.Module) -> set[str]:
    return {
        f"{name}.{inner}.weight"
        for name, block in network.named_modules()
        if isinstance(block, BlockLayer)
        for inner, part in block.named_modules()
        if isinstance(part, nn.Linear)
    }


@each(OPTIMISERS)
@pytest.mark.parametrize("model", EVERY_MODEL)
def test_matrices_decay_and_nothing_else_does(model, kind) -> None:
    network = build(model)
    optimisers = kind(weight_decay=0.3).build(network)
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    decayed = [p for group in groups if group["weight_decay"] == 0.3 for p in group["params"]]
    free = [p for group in groups if group["weight_decay"] == 0 for p in group["params"]]
    everything = dict(network.named_parameters())
    assert len(decayed) + len(free) == len(everything), "each parameter is in one group"
    assert names(network, decayed) == matrices(network)
    assert names(network, free) == set(everything) - matrices(network)


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_muon_takes_the_matrices_of_the_blocks_and_adamw_the_rest(model) -> None:
    network = build(model)
    muon, adamw = Muon(learning_rate=0.01, matrix_rate=0.02).build(network)
    assert isinstance(muon, Orthogonal)
    assert isinstance(adamw, torch.optim.AdamW)
    taken = [p for group in muon.param_groups for p in group["params"]]
    left = [p for group in adamw.param_groups for p in group["params"]]
    assert names(network, taken) == block_matrices(network)
    assert names(network, left) == set(dict(network.named_parameters())) - block_matrices(network)
    assert {group["lr"] for group in muon.param_groups} == {0.02}
    assert {group["lr"] for group in adamw.param_groups} == {0.01}


@pytest.mark.parametrize(
    ("tokens", "first", "more"),
    [
        (HalvingStem(4, channels=6), "tokens.see.weight", 4),
        (ConvPool(4, layers=2, channels=6), "tokens.see.0.weight", 1),
        (SeveralScales((4, 8)), None, 0),
    ],
)
def test_muon_takes_the_filters_of_a_stem_where_it_is_told_to(tokens, first, more) -> None:
    network = build(small_vit(tokens=tokens))
    filters = {name for name, p in network.tokens.named_parameters(prefix="tokens") if p.ndim == 4} - {first}
    muon, _ = Muon(filters=True).build(network)
    taken = names(network, [p for group in muon.param_groups for p in group["params"]])
    assert taken - block_matrices(network) == (filters if more else set())
    assert len(taken) == len(block_matrices(network)) + more


def test_muon_moves_a_filter_as_a_row_of_a_matrix() -> None:
    own = nn.Parameter(torch.randn(6, 2, 3, 3))
    flat = nn.Parameter(own.detach().flatten(1).clone())
    for parameter in (own, flat):
        parameter.grad = torch.ones_like(parameter).cumsum(0)
        Orthogonal([parameter], 0.1, 0.2).step()
    torch.testing.assert_close(own.flatten(1), flat)


@each(OPTIMISERS)
@pytest.mark.parametrize("model", [small_vit(), small_multiscale()], ids=["vit", "multi-scale"])
def test_a_few_steps_lower_the_loss(model, kind) -> None:
    network = build(model)
    pictures, labels = some_pictures(16), torch.arange(16) % CLASSES
    optimisers = kind().build(network)
    losses = []
    for _ in range(8):
        loss = nn.functional.cross_entropy(network(pictures), labels)
        losses.append(loss.item())
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()
            optimiser.zero_grad()
    assert losses[-1] < 0.9 * losses[0]


def test_matrices_moved_together_move_as_torchs_muon_moves_them_one_by_one() -> None:
    """Wide, tall and square ones, several of a shape; one without a gradient stays. Tolerance: bfloat16's 8 bits."""
    torch.manual_seed(0)
    shapes = [(12, 8), (8, 12), (12, 8), (8, 8), (24, 8), (8, 8)]
    ours = [nn.Parameter(torch.randn(*shape)) for shape in shapes]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    muon, reference = Orthogonal(ours, 0.05, 0.3), torch.optim.Muon(theirs, lr=0.05, weight_decay=0.3)
    for _ in range(4):
        for place, (own, other) in enumerate(zip(ours, theirs, strict=True)):
            gradient = None if place == 3 else torch.randn_like(own)
            own.grad, other.grad = gradient, None if gradient is None else gradient.clone()
        muon.step()
        reference.step()
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=4 * 0.05 * 24**0.5 * 2**-8)
    start = torch.manual_seed(0) and [torch.randn(*shape) for shape in shapes]
    moved = [(own - first).abs().max().item() for own, first in zip(ours, start, strict=True)]
    assert moved[3] == 0
    assert min(moved[:3] + moved[4:]) > 0.05


def test_queries_keys_and_values_can_be_taken_one_by_one() -> None:
    network = build(small_vit())
    muon, _ = Muon(matrix_rate=0.05, weight_decay=0.3, apart=True).build(network)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    network(some_pictures(4)).square().sum().backward()
    muon.step()
    for name, parameter in network.named_parameters():
        if name not in block_matrices(network):
            continue
        pieces = [torch.nn.Parameter(part.clone()) for part in before[name].chunk(3 if "qkv" in name else 1)]
        for piece, gradient in zip(pieces, parameter.grad.chunk(len(pieces)), strict=True):
            piece.grad = gradient.clone()
        torch.optim.Muon(pieces, lr=0.05, weight_decay=0.3).step()
        torch.testing.assert_close(parameter, torch.cat(pieces), rtol=0, atol=0.05 * 2**0.5 * 2**-6)


def test_adamw_is_the_papers_equation() -> None:
    """Three steps of Loshchilov & Hutter's algorithm 2 in float64, decay on the matrix and not on the bias."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    (optimiser,) = AdamW(learning_rate=0.05, weight_decay=0.2, beta2=0.97).build(layer)
    expected = [(p.detach().double().numpy().copy(), decay) for p, decay in ((layer.weight, 0.2), (layer.bias, 0.0))]
    first = [np.zeros_like(p) for p, _ in expected]
    second = [np.zeros_like(p) for p, _ in expected]
    for step in range(1, 4):
        gradients = [torch.randn_like(p) for p in (layer.weight, layer.bias)]
        layer.weight.grad, layer.bias.grad = (gradient.clone() for gradient in gradients)
        optimiser.step()
        for i, (weights, decay) in enumerate(expected):
            g = gradients[i].double().numpy()
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.97 * second[i] + 0.03 * g**2
            steady, spread = first[i] / (1 - 0.9**step), second[i] / (1 - 0.97**step)
            weights[:] = weights - 0.05 * (steady / (np.sqrt(spread) + 1e-8) + decay * weights)
    np.testing.assert_allclose(layer.weight.detach(), expected[0][0], atol=1e-6)
    np.testing.assert_allclose(layer.bias.detach(), expected[1][0], atol=1e-6)


def test_muons_first_step_is_nearly_orthogonal() -> None:
    """The update of a square matrix is its gradient with all singular values near one, times the rate."""
    network = build(small_vit())
    muon, _ = Muon(matrix_rate=0.02, weight_decay=0.0).build(network)
    weight = network.blocks[0].attention.out.weight
    before = weight.detach().clone()
    network(some_pictures(8)).square().sum().backward()
    gradient = weight.grad.clone()
    muon.step()
    update = (before - weight.detach()) / 0.02
    values = torch.linalg.svdvals(update)
    assert values.max() < 1.3
    assert values[: len(values) // 2].min() > 0.6
    assert (update * gradient).sum() > 0, "downhill"


def test_muon_leaves_alone_what_has_no_gradient() -> None:
    network = build(small_vit())
    before = [parameter.clone() for parameter in network.parameters()]
    for optimiser in Muon().build(network):
        optimiser.step()
    assert all(torch.equal(one, other) for one, other in zip(network.parameters(), before, strict=True))


def test_muon_refuses_a_model_without_blocks() -> None:
    with pytest.raises(BadInput, match=r"muon.*blocks.*depth and tuning none learns.*adamw") as caught:
        Muon().build(build(small_vit(depth=0)))
    assert "\n" not in str(caught.value)
    assert AdamW().build(build(small_vit(depth=0)))


@pytest.mark.parametrize(
    ("name", "value"),
    [("learning_rate", -1.0), ("weight_decay", -0.1), ("beta2", 1.0), ("beta2", -0.5)],
)
@each(OPTIMISERS)
def test_wrong_settings_are_refused(kind, name: str, value: float) -> None:
    with pytest.raises(BadInput, match=name):
        kind(**{name: value}).build(build(small_vit()))


# The schedule.


def formula(decay: str, warm: float, steps: int, step: int) -> float:
    """Rises to 1 over the warm-up, each step using the rate reached at its end; then falls over what is left."""
    if step + 1 <= warm:
        return (step + 1) / warm
    done = (step - warm) / (steps - warm)
    return {"cosine": math.cos(math.pi / 2 * done) ** 2, "linear": 1 - done, "none": 1.0}[decay]


@pytest.mark.parametrize("decay", choices(Schedule, "decay"))
@pytest.mark.parametrize(("warmup", "epochs", "per_epoch"), [(0, 3, 7), (1, 4, 10), (2, 5, 3), (0.5, 3, 10), (3, 6, 5)])
def test_the_rate_follows_the_formula(warmup: float, epochs: int, per_epoch: int, decay: str) -> None:
    schedule, steps = Schedule(warmup, decay), epochs * per_epoch
    ours = [schedule.factor(step, steps, per_epoch) for step in range(steps)]
    assert ours == pytest.approx([formula(decay, warmup * per_epoch, steps, step) for step in range(steps)])


@pytest.mark.parametrize("decay", ["cosine", "linear"])
def test_the_rate_starts_above_nothing_peaks_once_and_ends_near_nothing(decay: str) -> None:
    rates = [Schedule(2, decay).factor(step, 1000, 100) for step in range(1000)]
    assert rates[0] == pytest.approx(1 / 200)
    assert max(rates) == 1
    assert rates.index(1) == 199
    assert rates[:200] == sorted(rates[:200])
    assert rates[199:] == sorted(rates[199:], reverse=True)
    assert 0 < rates[-1] < 0.002


def test_without_decay_the_rate_stays_up() -> None:
    assert [Schedule(1, "none").factor(step, 8, 2) for step in range(8)] == [0.5] + [1.0] * 7


@pytest.mark.parametrize("decay", choices(Schedule, "decay"))
def test_a_warm_up_takes_half_of_the_training_at_most(decay: str) -> None:
    """One epoch of a recipe that warms up for one would never learn at its rate, nor settle."""
    rates = [Schedule(50, decay).factor(step, 6, 3) for step in range(6)]
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, *(formula(decay, 3, 6, step) for step in (3, 4, 5))])


@pytest.mark.parametrize("decay", choices(Schedule, "decay"))
def test_one_step_of_training_has_a_rate(decay: str) -> None:
    assert Schedule(0, decay).factor(0, 1, 1) == 1
    assert Schedule(1, decay).factor(0, 1, 1) == 1
    assert Schedule(0.5, decay).factor(0, 0, 1) >= 0, "0 epochs"


@settings(deadline=None)
@given(
    st.floats(0, 20), st.sampled_from(choices(Schedule, "decay")), st.integers(1, 8), st.integers(1, 12)
)  # fmt: skip
def test_the_rate_never_leaves_zero_to_one(warmup: float, decay: str, epochs: int, per_epoch: int) -> None:
    steps = epochs * per_epoch
    for step in range(steps):
        assert 0 < Schedule(warmup, decay).factor(step, steps, per_epoch) <= 1


def test_a_negative_warm_up_is_refused() -> None:
    with pytest.raises(BadInput, match="warmup"):
        Schedule(warmup=-1)


def test_the_temperature_of_locality_is_learned_by_adamw_under_muon() -> None:
    network = build(small_vit(attention=small_attention(Locality)))
    _, adamw = Muon().build(network)
    left = names(network, [p for group in adamw.param_groups for p in group["params"]])
    assert any(name.endswith("sharpness") for name in left)
