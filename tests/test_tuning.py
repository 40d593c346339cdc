"""Fine-tuning: rates by depth, frozen weights, logits first, low-rank changes; all in the same loop."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kinds import build, refusal, small_multiscale, small_vit, some_pictures
from loops import loop_of, pictures_of, small, stop_after
from torch import Tensor, nn

from vitlab import Run, override
from vitlab.engine.loop import Loop
from vitlab.engine.optimisers import AdamW, Muon
from vitlab.engine.tuning import Everything, HeadOnly, LowRank, Pace, merge
from vitlab.given import check_that_it_builds
from vitlab.model.multiscale import ClassAttention
from vitlab.model.tokens import ConvStem, HalvingStem, ShiftedPatches
from vitlab.objectives import Supervised

TESTED = 20


def state_of(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.session.learner.network.state_dict().items()}


def finished(loop: Loop) -> Run:
    loop.train()
    return loop.run


def learner_of(model=None) -> nn.Module:
    return Supervised().build(build(model or small_vit(depth=3, registers=1)))


def groups_of(optimisers) -> dict[int, dict]:
    return {id(p): group for optimiser in optimisers for group in optimiser.param_groups for p in group["params"]}


@pytest.mark.parametrize("optimiser", [AdamW(learning_rate=0.5), Muon(learning_rate=0.5, matrix_rate=0.25)])
def test_rates_fall_with_depth_exactly(optimiser) -> None:
    """base · decay^(depth + 1 − i), i = 0 for what comes before the blocks, depth + 1 for norm and logits."""
    learner = learner_of()
    groups = groups_of(optimiser.build(learner, Everything(layer_decay=0.75).paces(learner)))
    seen = set()
    for name, parameter in learner.named_parameters():
        rest = name.removeprefix("network.")
        place = 4 if rest.startswith(("norm.", "head.")) else 0
        if rest.startswith("blocks."):
            place = int(rest.split(".")[1]) + 1
        base = 0.25 if isinstance(optimiser, Muon) and parameter.ndim == 2 and "blocks." in name else 0.5
        assert groups[id(parameter)]["lr"] == base * 0.75 ** (4 - place), name
        seen.add(place)
    assert seen == {0, 1, 2, 3, 4}


def test_without_decay_the_groups_are_what_they_were() -> None:
    learner = learner_of()
    (optimiser,) = AdamW().build(learner, Everything().paces(learner))
    decayed, free = optimiser.param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.05, 0.0)
    assert decayed["lr"] == free["lr"] == 1e-3


def test_scales_side_by_side_have_rates_by_their_own_depth() -> None:
    learner = learner_of(small_multiscale())
    paces = Everything(layer_decay=0.5).paces(learner)
    shares = {name: paces(name).share for name, _ in learner.named_parameters()}
    assert {share for name, share in shares.items() if ".blocks.0." in name} == {0.25}
    assert {share for name, share in shares.items() if "head.logits" in name} == {1.0}


@pytest.mark.parametrize("tokens", [HalvingStem(4, channels=4), ConvStem(4, channels=4), ShiftedPatches(4)])
def test_all_of_a_stem_comes_before_the_blocks(tokens) -> None:
    learner = learner_of(small_vit(tokens=tokens, depth=3))
    paces = Everything(layer_decay=0.5).paces(learner)
    names = [name for name, _ in learner.named_parameters() if ".tokens." in name]
    assert any(".norm." in name for name in names)
    assert {paces(name).share for name in names} == {0.5**4}


def test_what_joins_the_scales_comes_after_their_blocks() -> None:
    learner = learner_of(small_multiscale(join=ClassAttention()))
    paces = Everything(layer_decay=0.5).paces(learner)
    joining = [name for name, _ in learner.named_parameters() if ".join." in name]
    assert any(".blocks." in name for name in joining)
    assert {paces(name).share for name in joining} == {1.0}


@pytest.mark.parametrize("more", [(), ("ema=0.9",)], ids=["plain", "mean"])
def test_frozen_weights_do_not_move_a_bit(tmp_path: Path, more) -> None:
    loop = loop_of(small("tuning=head", "weight_decay=0.5", *more), tmp_path, tested=TESTED)
    before, run = state_of(loop), finished(loop)
    after = run.model().state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"head.logits.weight", "head.logits.bias"}


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_the_logits_learn_first_and_then_all(tmp_path: Path, optimiser: str) -> None:
    loop = loop_of(small("head_first=1", "warmup=0", f"optimiser={optimiser}"), tmp_path, tested=TESTED)
    before, session = state_of(loop), loop.session
    for _ in range(session.steps_per_epoch):
        loop.train_step(torch.arange(16))
        now = state_of(loop)
        assert {name for name in before if not torch.equal(before[name], now[name])} == {
            "head.logits.weight", "head.logits.bias",
        }  # fmt: skip
    loop.train_step(torch.arange(16))
    now = state_of(loop)
    assert not [name for name in before if torch.equal(before[name], now[name])]


def low_rank(**settings) -> tuple[nn.Module, nn.Module]:
    """A learner with changes, and its twin without."""
    learner, twin = learner_of(), learner_of()
    LowRank(**settings).prepare(learner)
    return learner.eval(), twin.eval()


@torch.no_grad()
def test_low_rank_changes_start_at_nothing_and_merge_into_plain_weights() -> None:
    learner, twin = low_rank(rank=3, alpha=6.0, matrices=("qkv", "out", "enter", "leave"))
    pictures = some_pictures(4)
    assert torch.equal(learner.network(pictures), twin.network(pictures)), "B is 0 at first"
    generator = torch.Generator().manual_seed(1)
    for name, parameter in learner.named_parameters():
        if name.endswith(".b"):
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    change = dict(learner.named_parameters())
    prefix = "network.blocks.1.attention.qkv"
    by_hand = twin.network.blocks[1].attention.qkv.weight + 2 * (change[f"{prefix}.b"] @ change[f"{prefix}.a"])
    unmerged = learner.network(pictures)
    assert (unmerged - twin.network(pictures)).abs().max() > 0.1
    merge(learner)
    assert learner.state_dict().keys() == twin.state_dict().keys()
    torch.testing.assert_close(learner.network.blocks[1].attention.qkv.weight, by_hand)
    torch.testing.assert_close(learner.network(pictures), unmerged)


def test_only_changes_and_logits_learn_by_low_rank() -> None:
    learner, _ = low_rank(rank=2, matrices=("qkv",))
    names = {name for name, parameter in learner.named_parameters() if parameter.requires_grad}
    blocks = {f"network.blocks.{i}.attention.qkv.{part}" for i in range(3) for part in "ab"}
    assert names == blocks | {"network.head.logits.weight", "network.head.logits.bias"}


@pytest.mark.parametrize("more", [(), ("ema=0.9",)], ids=["plain", "mean"])
def test_a_low_rank_run_leaves_ordinary_weights_near_its_start(tmp_path: Path, more) -> None:
    experiment = small("tuning=lora", "rank=2", "learning_rate=0.01", *more)
    loop = loop_of(experiment, tmp_path / "whole", tested=TESTED)
    before, run = state_of(loop), finished(loop)
    after = run.model().state_dict()
    for name, tensor in after.items():
        change = tensor - before[name]
        if name.endswith(("qkv.weight", "out.weight")):
            assert 0 < torch.linalg.matrix_rank(change, rtol=1e-3) <= 2
        elif "logits" not in name:
            assert not change.any(), name
    assert run.result["parameters"] == sum(p.numel() for p in run.model().parameters())
    stop_after(3, loop_of(experiment, tmp_path / "stopped", tested=TESTED))
    again = finished(loop_of(experiment, tmp_path / "stopped", tested=TESTED)).model().state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in again.items()), "stopped and gone on"


REFUSED = [
    ("layer_decay=-0.1", "layer_decay is a share from 0 to 1"),
    ("layer_decay=1.5", "layer_decay is a share from 0 to 1"),
    ("head_first=-1", "head_first must be 0 epochs or more"),
    (("tuning=lora", "rank=0"), "rank must be 1 or more"),
    (("tuning=lora", "optimiser=muon"), "none learns: use adamw"),
    (("tuning=head", "objective=dino"), "are for fine-tuning with labels"),
    (("layer_decay=0.5", "objective=mae"), "are for fine-tuning with labels"),
    (("tuning=lora", "matrices="), "matrices names none for tuning lora to change: choose from qkv, out"),
    (("tuning=lora", "matrices=qvk"), "did you mean 'qkv'"),
]


@pytest.mark.parametrize(("words", "expected"), REFUSED)
def test_what_makes_no_sense_is_refused(words, expected: str) -> None:
    given = [words] if isinstance(words, str) else list(words)
    card = pictures_of(small()).card
    assert expected in refusal(lambda: check_that_it_builds(override(small(), given), card))


def test_a_model_without_such_matrices_is_refused() -> None:
    text = refusal(LowRank().prepare, learner_of(small_vit(depth=0)))
    assert "qkv, out, which this attention and depth have not" in text


def test_paces_are_alike_by_default() -> None:
    learner = learner_of()
    assert {Everything().paces(learner)(name) for name, _ in learner.named_parameters()} == {Pace()}
    assert replace(Everything(), head_first=1.0).paces(learner)("network.extra") == Pace(1.0, waits=True)
    assert HeadOnly().paces(learner)("network.head.logits.weight") == Pace()
