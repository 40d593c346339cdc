"""The test of the maps: deletion and insertion against plain loops, ties against chance, and a map that must win."""

import math

import numpy as np
import pytest
import torch
from kinds import SHAPE, build, small_attention, small_multiscale, small_vit, some_pictures

from vitlab.look import Trust, heat, inside, trust
from vitlab.look.trust import RANDOM, Curves, filled, mean_of, ranks
from vitlab.model import Network
from vitlab.model.attention import Uniform


@pytest.mark.parametrize("model", [small_vit(), small_multiscale()], ids=["vit", "multi-scale"])
@pytest.mark.parametrize("kind", ["attention", "rollout", "relevance"])
def test_curves_are_those_of_one_patch_after_another(model, kind: str) -> None:
    network, pictures = build(model).eval(), some_pictures(3)
    seen = inside(network, pictures)
    tested = trust(network, pictures, seen, steps=8, orders=1)
    np.testing.assert_allclose(tested.shares, np.arange(9) / 8)
    maps = heat(seen, kind).abs().flatten(1).numpy()
    for place in range(3):
        order = np.argsort(-maps[place])  # the weights of these models differ, so there is one order
        assert len(set(np.round(maps[place] / maps[place].max(), 6))) == 8
        target = int(seen.target[place])
        for curve, start, end in (
            (tested.curves[kind].deletion[place], pictures[place], torch.zeros_like(pictures[place])),
            (tested.curves[kind].insertion[place], torch.zeros_like(pictures[place]), pictures[place]),
        ):
            current = start.clone()
            expected = []
            for count in range(9):
                if count:
                    row, column = divmod(int(order[count - 1]), 4)
                    cell = (slice(None), slice(4 * row, 4 * row + 4), slice(4 * column, 4 * column + 4))
                    current[cell] = end[cell]
                with torch.no_grad():
                    expected.append(float(network.logits(current[None]).double().softmax(-1)[0, target]))
            np.testing.assert_allclose(curve, expected, rtol=1e-4, atol=1e-6)


def test_the_ends_of_all_curves_meet() -> None:
    network, pictures = build(small_vit()).eval(), some_pictures(4)
    tested = trust(network, pictures, inside(network, pictures), steps=3)
    whole = network.logits(pictures).softmax(-1).amax(-1).detach()
    for curves in tested.curves.values():
        torch.testing.assert_close(curves.deletion[:, 0], whole)
        torch.testing.assert_close(curves.insertion[:, -1], whole)
        torch.testing.assert_close(curves.deletion[:, -1], curves.insertion[:, 0])
    assert tested.count == 4


def looking_network() -> Network:
    """Its class token looks for the bright patch and says class 1 the surer, the brighter what it sees."""
    network = build(small_vit(depth=1)).eval()
    block = network.blocks[0]
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.tokens.embed.weight[0] = 0.1  # the first feature is a patch's brightness
        block.norm_attention.weight.fill_(1.0)
        block.attention.qkv.bias[0] = 4.0  # the first head asks for it
        block.attention.qkv.weight[16, 0] = 4.0  # the keys answer with it
        block.attention.qkv.weight[32, 0] = 1.0  # and the values carry it
        block.attention.out.weight[1, 0] = 1.0  # to the second feature,
        network.norm.weight.fill_(1.0)
        network.head.logits.weight[1, 1] = 2.0  # which speaks for class 1
    return network


def test_a_model_that_looks_at_one_patch_is_found_out_by_its_maps() -> None:
    network = looking_network()
    pictures = torch.zeros(8, SHAPE.channels, SHAPE.height, SHAPE.width)
    for patch in range(8):
        row, column = divmod(patch, 4)
        pictures[patch, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 1.0
    seen = inside(network, pictures)
    assert seen.target.tolist() == [1] * 8
    for kind in ("attention", "relevance"):
        assert heat(seen, kind).flatten(1).argmax(dim=1).tolist() == list(range(8))
    tested = trust(network, pictures, seen, steps=8, orders=5)
    for kind in ("attention", "rollout", "relevance"):
        curves = tested.curves[kind]
        torch.testing.assert_close(curves.deletion[:, 1], curves.deletion[:, -1])  # one patch gone, and all is gone
        assert tested.verdict(kind) == "better than random"
    assert tested.leads(RANDOM) == {"deletion": (0.0, 0.0), "insertion": (0.0, 0.0)}


def test_ties_are_drawn_and_do_not_follow_the_rows_of_the_picture() -> None:
    places = ranks(torch.full((4000, 6), 0.25), torch.Generator().manual_seed(0))
    assert (places.sort(dim=1).values == torch.arange(6)).all()
    shares = torch.stack([(places == rank).float().mean(dim=0) for rank in range(6)])
    assert (shares - 1 / 6).abs().max() < 0.03
    mixed = ranks(torch.tensor([[0.5, -2.0, 0.5, 1.0]]).expand(500, -1), torch.Generator().manual_seed(0))
    assert (mixed[:, 1] == 0).all(), "a negative weight is as strong as a positive one"
    assert (mixed[:, 3] == 1).all()
    assert 150 < int((mixed[:, 0] == 2).sum()) < 350


def test_a_map_that_says_nothing_does_not_beat_random_order() -> None:
    network, pictures = build(small_vit(attention=small_attention(Uniform))).eval(), some_pictures(60)
    tested = trust(network, pictures, inside(network, pictures))
    for mean, half in tested.leads("attention").values():
        assert abs(mean) <= 1.7 * half + 1e-6, "all weights are 1/n"


@pytest.mark.parametrize(("height", "width", "rows", "columns"), [(8, 16, 2, 4), (6, 6, 3, 3)])
def test_a_blur_is_the_mean_over_two_patches(height: int, width: int, rows: int, columns: int) -> None:
    pictures = torch.rand(1, 2, height, width)
    found = filled(pictures, "blur", rows, columns)[0].numpy()
    reach = height // rows
    for channel in range(2):
        for y in range(height):
            for x in range(width):
                ys = np.clip(np.arange(y - reach, y + reach + 1), 0, height - 1)
                xs = np.clip(np.arange(x - reach, x + reach + 1), 0, width - 1)
                expected = pictures[0, channel].numpy()[np.ix_(ys, xs)].mean()
                assert found[channel, y, x] == pytest.approx(expected, abs=1e-5)
    assert not filled(pictures, "mean", rows, columns).any()


def test_areas_are_those_of_the_trapezoid_rule_even_where_steps_are_uneven() -> None:
    network, pictures = build(small_vit()).eval(), some_pictures(3)
    tested = trust(network, pictures, inside(network, pictures), steps=5)  # of 8 patches
    assert len(set(np.diff(tested.shares).round(4))) == 2
    for kind, curves in tested.curves.items():
        for found, curve in zip(tested.areas(kind), (curves.deletion, curves.insertion), strict=True):
            np.testing.assert_allclose(found, np.trapezoid(curve.numpy(), tested.shares.numpy(), axis=1), rtol=1e-5)


def test_intervals_are_students() -> None:
    """Two values: half the interval is t(1) = 12.706 standard errors."""
    mean, half = mean_of(torch.tensor([0.1, 0.3]))
    assert (mean, half) == (pytest.approx(0.2), pytest.approx(12.7062 * 0.1, rel=1e-4))


def test_verdicts_need_both_tests_beyond_their_intervals() -> None:
    flat = torch.full((50, 3), 0.5)

    def verdict(deletion: float, insertion: float, noise: float) -> str:
        spread = noise * torch.linspace(-1, 1, 50)[:, None]
        curves = {"rollout": Curves(flat - deletion + spread, flat + insertion + spread), RANDOM: Curves(flat, flat)}
        return Trust(torch.linspace(0, 1, 3), curves).verdict("rollout")

    assert verdict(0.1, 0.1, 0.05) == "better than random"
    assert verdict(0.1, -0.1, 0.05) == "not clearly better than random"
    assert verdict(-0.1, -0.1, 0.05) == "worse than random"
    assert verdict(0.1, 0.1, 0.9) == "not clearly better than random"
    one = Trust(torch.linspace(0, 1, 3), {"rollout": Curves(flat[:1], flat[:1]), RANDOM: Curves(flat[:1], flat[:1])})
    assert math.isnan(one.leads("rollout")["deletion"][1])
    assert one.verdict("rollout") == "not clearly better than random", "one picture proves nothing"
