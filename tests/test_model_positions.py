"""Positions against their formulas, written out place by place."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from kinds import (
    ATTENTIONS,
    POSITIONS,
    SHAPE,
    build,
    each,
    fits,
    shuffle_patches,
    small_attention,
    small_multiscale,
    small_tokens,
    small_vit,
    some_pictures,
)
from numpy.typing import NDArray
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.model.attention import Linformer, Softmax
from vitlab.model.heads import ClassToken, Mean
from vitlab.model.layout import Grid, Layout
from vitlab.model.positions import Learned, NoPositions, Rotary, Rotation, Sinusoidal1d, Sinusoidal2d
from vitlab.model.tokens import LinearPatches, SeveralScales


def sinusoid(place: float, feature: int, width: int) -> float:
    angle = place / 10000 ** (2 * (feature // 2) / width)
    return math.cos(angle) if feature % 2 else math.sin(angle)


def added(positions, layout: Layout, width: int) -> NDArray:
    """What a kind adds to tokens that are all zero."""
    return positions.build(layout, width, None)(torch.zeros(1, layout.tokens, width))[0].detach().numpy()


@pytest.mark.parametrize("width", [1, 6, 7, 32])
def test_sinusoids_of_the_place_are_vaswanis(width: int) -> None:
    layout = Layout(2, (Grid(3, 4),))
    expected = [[sinusoid(place, feature, width) for feature in range(width)] for place in range(layout.tokens)]
    np.testing.assert_allclose(added(Sinusoidal1d(), layout, width), expected, atol=1e-7)


def test_sinusoids_of_row_and_column_take_half_the_width_each_and_leave_extra_tokens_alone() -> None:
    layout, width = Layout(2, (Grid(3, 4),)), 12
    table = added(Sinusoidal2d(), layout, width)
    assert (table[:2] == 0).all()
    for row in range(3):
        for column in range(4):
            expected = [sinusoid(row, i, 6) for i in range(6)] + [sinusoid(column, i, 6) for i in range(6)]
            np.testing.assert_allclose(table[2 + row * 4 + column], expected, atol=1e-7)


def test_learned_positions_are_a_free_table_that_is_added() -> None:
    layout = Layout(1, (Grid(2, 2),))
    position = Learned().build(layout, 8, None)
    (table,) = position.parameters()
    assert table.shape == (5, 8)
    assert 0.005 < table.std() < 0.03
    tokens = torch.randn(2, 5, 8)
    assert torch.equal(position(tokens), tokens + table)


def test_no_positions_add_nothing() -> None:
    tokens = torch.randn(2, 5, 8)
    assert torch.equal(NoPositions().build(Layout(1, (Grid(2, 2),)), 8, None)(tokens), tokens)


@pytest.mark.parametrize("base", [100.0, 10000.0])
@pytest.mark.parametrize("head_width", [4, 12])
def test_rotary_turns_pairs_as_complex_numbers(head_width: int, base: float) -> None:
    layout = Layout(2, (Grid(3, 5),))
    vectors = torch.randn(2, 3, layout.tokens, head_width)
    turned = Rotation(layout, head_width, base)(vectors).double().numpy()
    x = vectors.double().numpy()
    half, quarter = head_width // 2, head_width // 4
    for token in range(layout.tokens):
        row, column = divmod(token - 2, 5) if token >= 2 else (0, 0)
        for pair in range(half):
            along = row if pair < quarter else column
            angle = along * base ** (-(pair % quarter) / quarter)
            expected = (x[..., token, pair] + 1j * x[..., token, pair + half]) * np.exp(1j * angle)
            np.testing.assert_allclose(turned[..., token, pair], expected.real, atol=1e-5)
            np.testing.assert_allclose(turned[..., token, pair + half], expected.imag, atol=1e-5)


def test_rotary_scores_depend_on_the_offset_alone() -> None:
    rows, columns = 4, 5
    layout = Layout(0, (Grid(rows, columns),))
    query, key = torch.randn(2, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = Rotation(layout, 8, 100.0)
    everywhere = (rows * columns, 8)
    scores = rotation(query.expand(everywhere)) @ rotation(key.expand(everywhere)).T
    by_offset: dict[tuple[int, int], list[float]] = {}
    for i in range(rows * columns):
        for j in range(rows * columns):
            offset = (j // columns - i // columns, j % columns - i % columns)
            by_offset.setdefault(offset, []).append(scores[i, j].item())
    assert len(by_offset) == (2 * rows - 1) * (2 * columns - 1)
    for same in by_offset.values():
        assert max(same) - min(same) < 1e-5
    means = sorted(np.mean(same) for same in by_offset.values())
    assert np.diff(means).min() > 1e-6, "different offsets give different scores"
    assert means[-1] - means[0] > 1


def test_rotary_keeps_lengths() -> None:
    layout = Layout(1, (Grid(4, 4),))
    vectors = torch.randn(2, 3, 17, 8)
    torch.testing.assert_close(Rotation(layout, 8, 100.0)(vectors).norm(dim=-1), vectors.norm(dim=-1))


def test_a_model_with_rotary_positions_rotates() -> None:
    network = build(small_vit(positions=Rotary()))
    assert isinstance(network.positions.rotation, Rotation)
    plain = build(small_vit(positions=NoPositions()))
    plain.load_state_dict(network.state_dict(), strict=False)
    pictures = some_pictures()
    assert (network(pictures) - plain(pictures)).abs().max() > 1e-4


def test_rotary_positions_move_with_the_device_and_the_type() -> None:
    position = Rotary().build(Layout(0, (Grid(2, 2),)), 8, 8).double()
    assert position.rotation is not None
    assert position.rotation.cosine.dtype == torch.float64


def with_pixels_shuffled(pictures: Tensor) -> Tensor:
    count = SHAPE.height * SHAPE.width // 16
    order = torch.randperm(count, generator=torch.Generator().manual_seed(3))
    return shuffle_patches(pictures, 4, order)


@pytest.mark.parametrize("head", [Mean, ClassToken], ids=lambda head: head.kind)
@pytest.mark.parametrize(
    "kind",
    POSITIONS,
    ids=lambda kind: kind.kind,
)
def test_patches_in_another_order_change_the_logits_unless_there_are_no_positions(kind, head) -> None:
    network = build(small_vit(positions=kind(), head=head())).eval()
    pictures = some_pictures()
    change = (network(pictures) - network(with_pixels_shuffled(pictures))).abs().max()
    if kind is NoPositions:
        assert change < 1e-5
    else:
        assert change > 1e-3


@each(ATTENTIONS)
def test_without_positions_only_learned_squeezes_know_the_order(kind) -> None:
    network = build(small_vit(positions=NoPositions(), attention=small_attention(kind), head=Mean())).eval()
    pictures = some_pictures()
    change = (network(pictures) - network(with_pixels_shuffled(pictures))).abs().max()
    assert change > 1e-3 if kind is Linformer else change < 1e-5


@each(ATTENTIONS)
@pytest.mark.parametrize("position", POSITIONS, ids=lambda kind: kind.kind)
def test_every_position_works_with_every_attention_or_is_refused(position, kind) -> None:
    model = small_vit(positions=position(), attention=small_attention(kind))
    if fits(model):
        assert build(model)(some_pictures()).isfinite().all()
    else:
        with pytest.raises(BadInput, match=r"rotary.*uniform"):
            build(model)


def test_a_coarse_patch_lies_at_the_centre_of_the_fine_ones_it_covers() -> None:
    fine, coarse = Grid(4, 8), Grid(2, 2)
    centres = Layout(3, (coarse, fine)).coordinates()
    assert centres.shape == (coarse.tokens + fine.tokens, 2)
    fine_centres = centres[coarse.tokens :].reshape(4, 8, 2)
    expected = [[[row, column] for column in range(8)] for row in range(4)]
    assert torch.equal(fine_centres, torch.tensor(expected, dtype=torch.float32))
    for row in range(2):
        for column in range(2):
            covered = fine_centres[2 * row : 2 * row + 2, 4 * column : 4 * column + 4].reshape(-1, 2)
            torch.testing.assert_close(centres[row * 2 + column], covered.mean(dim=0))


def test_several_scales_share_one_frame_of_positions() -> None:
    """The coarse token's sinusoids are those of its centre in fine patches."""
    network = build(small_vit(tokens=small_tokens(SeveralScales), positions=Sinusoidal2d(), head=Mean()))
    table = network.positions.table.numpy()
    fine = 2 * 4  # 8×16 pixels in patches of 4; then 1×2 of 8
    for column, centre in enumerate((0.5, 2.5)):
        expected = [sinusoid(0.5, i, 8) for i in range(8)] + [sinusoid(centre, i, 8) for i in range(8)]
        np.testing.assert_allclose(table[fine + column], expected, atol=1e-6)


@each([kind for kind in POSITIONS if kind is not Rotary])
def test_positions_serve_every_scale_of_a_multi_scale_model(kind) -> None:
    network = build(small_multiscale(positions=kind())).eval()
    pictures = some_pictures()
    order = torch.tensor([1, 0])
    change = (network(pictures) - network(shuffle_patches(pictures, 8, order))).abs().max()
    assert change < 1e-5 if kind is NoPositions else change > 1e-3


def test_a_second_linear_of_the_same_pixels_is_no_position() -> None:
    """What report R1 added to tell places apart tells none apart: the patches are a bag to the model."""
    network = build(small_vit(tokens=LinearPatches(4, twice=True), positions=NoPositions(), head=Mean())).eval()
    pictures = some_pictures()
    shuffled = with_pixels_shuffled(pictures)
    assert not torch.equal(pictures, shuffled)
    torch.testing.assert_close(network(shuffled), network(pictures), rtol=0, atol=1e-5)


def test_rotary_positions_serve_every_scale_of_a_multi_scale_model() -> None:
    settings = small_multiscale(positions=Rotary(), attention=Softmax(heads=4))
    network, plain = build(settings), build(replace(settings, positions=NoPositions()))
    plain.load_state_dict(network.state_dict(), strict=False)
    assert (network(some_pictures()) - plain(some_pictures())).abs().max() > 1e-4
