"""A model for other pictures: filters, positions and channels by their defining properties, and both of R2's roads."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from foreign_models import pictures_of
from kinds import build, refusal, small_attention, small_vit, some_pictures

from vitlab.model import Shape, ViT
from vitlab.model.attention import Linformer
from vitlab.model.heads import SequencePool
from vitlab.model.layout import Grid
from vitlab.model.positions import Rotary, Sinusoidal2d
from vitlab.model.tokens import (
    ConvPatches,
    ConvPool,
    ConvStem,
    HalvingStem,
    LinearPatches,
    ResizedPatches,
    ShiftedPatches,
)
from vitlab.transfer.fit import Fitted, fit, nearest, of_channels, resized_filters, resized_positions
from vitlab.transfer.found import Found
from vitlab.transfer.mapping import TOLERANCE

SHAPE = Shape(3, 8, 16)


def found(model: ViT, shape: Shape = SHAPE) -> Found:
    return Found("a model", model, shape, build(model, shape).state_dict(), (), "half")


def network(fitted: Fitted, shape: Shape):
    made = fitted.model.build(shape, 5)
    made.load_state_dict(made.state_dict() | fitted.tensors)
    return made.eval()


@pytest.mark.parametrize(("patch", "larger"), [(4, 8), (4, 7), (16, 21)])
def test_a_filter_on_a_larger_patch_answers_as_before(patch: int, larger: int) -> None:
    """⟨w′, resized x⟩ = ⟨w, x⟩ for every patch x, which is what the pseudo-inverse is for."""
    filters, patches = torch.randn(6, 3, patch, patch), torch.randn(20, 3, patch, patch)
    resized = F.interpolate(patches, size=(larger, larger), mode="bicubic", antialias=True)
    before = torch.einsum("dcyx,bcyx->bd", filters, patches)
    after = torch.einsum("dcyx,bcyx->bd", resized_filters(filters, larger), resized)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)


def test_a_filter_on_a_smaller_patch_is_the_least_squares_one() -> None:
    """No other filter comes nearer on white noise: NumPy's least squares over the whole resize, in float64."""
    filters = torch.randn(2, 1, 6, 6)
    each = torch.eye(36).view(36, 1, 6, 6)
    whole = F.interpolate(each, size=(4, 4), mode="bicubic", antialias=True).flatten(1).double().numpy()  # (36, 16)
    best = np.linalg.lstsq(whole, filters.flatten(1).double().numpy().T, rcond=None)[0].T
    np.testing.assert_allclose(resized_filters(filters, 4).flatten(1).numpy(), best, rtol=1e-3, atol=1e-4)
    assert torch.equal(resized_filters(filters, 6).round(decimals=5), filters.round(decimals=5))


def test_positions_are_resampled_and_extra_tokens_keep_theirs() -> None:
    table = torch.randn(3 + 4 * 6, 5)
    moved = resized_positions(table, Grid(4, 6), Grid(7, 3))
    assert torch.equal(moved[:3], table[:3])
    laid = table[3:].T.reshape(1, 5, 4, 6)
    wanted = F.interpolate(laid, size=(7, 3), mode="bicubic", antialias=True).reshape(5, 21).T
    torch.testing.assert_close(moved[3:], wanted)
    torch.testing.assert_close(resized_positions(table, Grid(4, 6), Grid(4, 6)), table, rtol=1e-5, atol=1e-6)
    half = resized_positions(table.half(), Grid(4, 6), Grid(7, 3))  # as shipped models keep them
    assert half.dtype == torch.float16
    torch.testing.assert_close(half.float(), moved, rtol=2e-3, atol=2e-3)
    even = torch.cat([table[:3], torch.full((24, 5), 2.0)])
    torch.testing.assert_close(resized_positions(even, Grid(4, 6), Grid(9, 9))[3:], torch.full((81, 5), 2.0))


@pytest.mark.parametrize(("given", "wanted"), [(3, 1), (1, 3), (3, 2), (3, 4), (4, 3), (3, 6), (4, 6)])
def test_equal_channels_are_read_as_before(given: int, wanted: int) -> None:
    filters, grey = torch.randn(6, given, 4, 4), torch.randn(5, 1, 4, 4)
    before = torch.einsum("dcyx,bcyx->bd", filters, grey.expand(-1, given, -1, -1))
    after = torch.einsum("dcyx,bcyx->bd", of_channels(filters, wanted), grey.expand(-1, wanted, -1, -1))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [ConvPatches(4), LinearPatches(4)], ids=lambda tokens: tokens.kind)
def test_the_road_of_resized_pictures_gives_the_models_own_answer_on_them(tokens) -> None:
    """Grey pictures of another size: as the model answers on them when they are resized and repeated by hand."""
    given = found(small_vit(tokens=tokens, registers=1))
    shape = Shape(1, 6, 10)
    fitted = fit(given, shape, "resize")
    assert fitted.model.tokens == ResizedPatches(4, (8, 16))
    assert fitted.notes == ["filters for 3 channels made ones for 1 channel", "pictures are resized to 8×16"]
    pictures = some_pictures(3, shape)
    by_hand = F.interpolate(pictures, size=(8, 16), mode="bicubic", antialias=True).expand(-1, 3, -1, -1)
    original = build(given.model, SHAPE).eval()
    with torch.inference_mode():
        torch.testing.assert_close(network(fitted, shape).features(pictures), original.features(by_hand), **TOLERANCE)


def test_the_road_of_the_adapted_model_keeps_its_answer_on_enlarged_pictures() -> None:
    """Pictures of twice the size, patches of twice the side: each patch is enlarged alone, so nothing is lost."""
    given = found(small_vit())
    shape = Shape(3, 16, 32)
    fitted = fit(given, shape, "adapt")
    assert fitted.model.tokens == ConvPatches(8)
    assert fitted.notes == ["filters of 4×4 pixels resized to 8×8"]
    pictures = some_pictures(2)
    patches = pictures.unfold(2, 4, 4).unfold(3, 4, 4).flatten(0, 3)  # (b·c·y·x, 4, 4)
    enlarged = F.interpolate(patches[None], size=(8, 8), mode="bicubic", antialias=True)[0]
    enlarged = enlarged.reshape(2, 3, 2, 4, 8, 8).permute(0, 1, 2, 4, 3, 5).reshape(2, 3, 16, 32)
    with torch.inference_mode():
        ours, theirs = network(fitted, shape).features(enlarged), build(given.model, SHAPE).eval().features(pictures)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "tokens", [ConvPool(4, 3, 2, 6), ConvStem(4, 6), HalvingStem(4, 6)], ids=lambda kind: kind.kind
)
def test_a_stem_of_convolutions_is_carried_over_as_it_is(tokens) -> None:
    """Grey pictures of another size: the tokens are those of the same stem on three equal channels."""
    model, shape = small_vit(tokens=tokens, head=SequencePool()), Shape(1, 16, 12)
    fitted = fit(found(model), shape, "adapt")
    assert fitted.model == model
    assert fitted.notes == ["filters for 3 channels made ones for 1 channel", "positions resampled from 2×4 to 4×3"]
    grey, larger = some_pictures(2, shape), build(model, Shape(3, 16, 12)).eval()
    stem = {name: tensor for name, tensor in build(model, SHAPE).state_dict().items() if name.startswith("tokens.")}
    larger.load_state_dict(larger.state_dict() | stem)
    with torch.inference_mode():
        ours, theirs = network(fitted, shape).tokens(grey), larger.tokens(grey.expand(-1, 3, -1, -1))
    torch.testing.assert_close(ours, theirs, **TOLERANCE)


def test_an_adapted_model_is_checked_part_by_part() -> None:
    given = found(small_vit(registers=2))
    shape = Shape(1, 28, 20)
    fitted = fit(given, shape, "adapt", patch=2)
    assert fitted.notes == [
        "filters for 3 channels made ones for 1 channel",
        "filters of 4×4 pixels resized to 2×2",
        "positions resampled from 2×4 to 14×10",
    ]
    assert fitted.tensors["positions.table"].shape == (3 + 140, 16)
    assert torch.equal(fitted.tensors["blocks.1.mlp.enter.weight"], given.tensors["blocks.1.mlp.enter.weight"])
    assert network(fitted, shape)(pictures_of(28, channels=1)[..., :20]).isfinite().all()


@pytest.mark.parametrize("positions", [Sinusoidal2d(), Rotary(), Rotary(table=True)], ids=lambda kind: kind.kind)
def test_positions_that_follow_from_the_grid_are_those_of_the_new_one(positions) -> None:
    model = small_vit(positions=positions)
    shape = Shape(3, 16, 16)
    fitted = fit(found(model), shape, "adapt", patch=4)
    fresh = fitted.model.build(shape, 5).state_dict()
    names = [name for name in fresh if name.startswith("positions.")]
    assert names
    for name in names:
        learned = name == "positions.table" and isinstance(positions, Rotary)
        assert torch.equal(fitted.tensors[name], fresh[name]) != learned


def test_the_same_pictures_need_nothing() -> None:
    given = found(small_vit(tokens=ShiftedPatches(4)))
    fitted = fit(given, SHAPE, "adapt")
    assert (fitted.model, fitted.notes) == (given.model, [])


@pytest.mark.parametrize(
    ("grid", "shape", "side"),
    [((14, 14), (28, 28), 2), ((14, 14), (32, 32), 2), ((37, 37), (32, 32), 1), ((14, 14), (96, 96), 6)],
)
def test_a_patch_is_chosen_that_keeps_the_grid(grid, shape, side) -> None:
    assert nearest(Grid(*grid), Shape(1, *shape)) == side


@pytest.mark.parametrize(
    ("model", "road", "patch", "expected"),
    [
        (small_vit(tokens=ShiftedPatches(4)), "adapt", None, "tokens shifted-patches cannot be carried over"),
        (small_vit(tokens=ConvStem(4)), "resize", None, "tokens conv-stem see pictures of any size by patches of 4"),
        (small_vit(tokens=ConvPool(4)), "adapt", 2, "leave out patch, and use --road adapt"),
        (small_vit(), "resize", 2, "choose another patch with --road adapt"),
        (small_vit(), "adapt", 5, "patches of 5 do not divide pictures of 16×16"),
        (small_vit(attention=small_attention(Linformer)), "adapt", None, "squeeze_keys is made for other pictures"),
    ],
)
def test_what_cannot_be_fitted_is_refused(model, road, patch, expected) -> None:
    assert expected in refusal(lambda: fit(found(model), Shape(3, 16, 16), road, patch))


@pytest.mark.parametrize(
    ("size", "expected"), [((30, 30), "28×28 or 32×32 fit"), ((3, 9), "of 4×12 fit"), ((28, 31), "28×28 or 28×32 fit")]
)
def test_a_stem_names_the_sizes_that_its_patches_divide(size, expected) -> None:
    """Its patch cannot be chosen anew, as that of a single convolution can."""
    said = refusal(lambda: fit(found(small_vit(tokens=ConvStem(4))), Shape(3, *size), "adapt"))
    assert "tokens conv-stem cut pictures by patches of 4" in said
    assert expected in said
    height, width = map(int, expected.split()[-2].split("×"))
    fit(found(small_vit(tokens=ConvStem(4))), Shape(3, height, width), "adapt")
