"""The masked autoencoder: what is hidden stays hidden, and the loss is the one written down, in NumPy float64."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from kinds import (
    ATTENTIONS,
    BLOCKS,
    HEADS,
    POSITIONS,
    SHAPE,
    TOKENS,
    build,
    fits,
    refusal,
    small_attention,
    small_multiscale,
    small_tokens,
    small_vit,
    some_pictures,
)
from loops import check_ordinary, check_resumed, loop_of, small, trained
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

import vitlab
from vitlab.chance import Chance
from vitlab.data.prepared import Normalise
from vitlab.given import load_data
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Locality, Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import FirstToken, Mean
from vitlab.model.positions import Rotary
from vitlab.model.tokens import ConvPatches, LinearPatches, ResizedPatches, SeveralScales
from vitlab.objectives import Mae
from vitlab.objectives.mae import Autoencoder

SMALL = {"decoder_width": 16, "decoder_depth": 1, "decoder_heads": 2}
WORDS = ("objective=mae", "decoder_width=16", "decoder_depth=1", "decoder_heads=2")


def chance_of(*key: int) -> Chance:
    chance = Chance(torch.device("cpu"))
    chance.start(*key)
    return chance


def learner_of(model: Any = None, shape: Shape = SHAPE, **settings: Any) -> Autoencoder:
    return Mae(**SMALL | settings).build(build(model or small_vit(), shape)).eval()


def orders_of(learner: Autoencoder, count: int, seed: int = 0) -> Tensor:
    """The orders of cells that a batch of this many pictures is given."""
    shape = learner.network.shape
    pictures = torch.zeros(count, shape.channels, shape.height, shape.width)
    return learner.batch(pictures, torch.zeros(count), lambda given: given, chance_of(seed))[1]


def rectangles(learner: Autoencoder) -> list[tuple[slice, slice]]:
    """Where each cell lies in a picture, row by row."""
    (tall, wide), grid = learner.cells.size, learner.cells.grid
    corners = product(range(0, grid.rows * tall, tall), range(0, grid.columns * wide, wide))
    return [(slice(y, y + tall), slice(x, x + wide)) for y, x in corners]


@pytest.mark.parametrize(
    ("height", "width", "hidden", "expected"),
    [
        (8, 16, 0.75, 6), (8, 16, 0.5, 4), (8, 16, 0.01, 1), (8, 16, 0.99, 7), (8, 16, 0.3, 2), (12, 20, 0.6, 9),
        (12, 20, 0.75, 11), (4, 8, 0.75, 1), (4, 8, 0.1, 1), (4, 28, 0.9, 6), (28, 28, 0.75, 37), (28, 28, 0.7, 34),
    ],
)  # fmt: skip
def test_every_picture_has_the_same_number_of_hidden_cells(height, width, hidden, expected) -> None:
    """Patches of 4: the share of them that is asked for, to the nearest, but never none and never all."""
    learner = learner_of(shape=Shape(1, height, width), hidden=hidden)
    cells = height * width // 16
    orders = orders_of(learner, 40)
    assert len(learner.cells) == cells
    assert orders.shape == (40, cells)
    assert orders.dtype == torch.int64
    np.testing.assert_array_equal(np.sort(orders.numpy(), axis=1), np.tile(np.arange(cells), (40, 1)))
    assert cells - learner.shown == expected
    pictures = torch.zeros(40, 1, height, width)
    assert learner.drawn(pictures, orders).shape == (40, expected, 16)
    assert learner.encode(pictures, orders[:, : learner.shown]).shape == (40, cells - expected, 16)


@pytest.mark.parametrize("hidden", [0.25, 0.5, 0.75])
def test_every_cell_is_hidden_equally_often_and_every_picture_has_draws_of_its_own(hidden: float) -> None:
    learner = learner_of(hidden=hidden)
    orders = torch.cat([orders_of(learner, 2_000, seed) for seed in range(3)]).numpy()
    often = np.bincount(orders[:, learner.shown :].ravel(), minlength=8)
    assert len(np.unique(orders, axis=0)) > 5_000, "of 8! = 40 320"
    assert np.abs(often - 6_000 * hidden).max() < 4.5 * math.sqrt(6_000 * hidden * (1 - hidden))


def test_the_draws_of_a_step_follow_from_it_alone() -> None:
    learner = learner_of()
    assert torch.equal(orders_of(learner, 30, 5), orders_of(learner, 30, 5))
    assert not torch.equal(orders_of(learner, 30, 5), orders_of(learner, 30, 6))


def _encoders() -> list[Any]:
    """Every kind of every part that may be shown some patches only, and every pair of attention and positions."""
    found = [pytest.param(small_vit(tokens=small_tokens(kind)), id=kind.kind) for kind in TOKENS]
    attentions = [kind for kind in ATTENTIONS if kind is not Linformer]
    for kind, position in product(attentions, POSITIONS):
        model = small_vit(attention=small_attention(kind), positions=position())
        if fits(model):
            found.append(pytest.param(model, id=f"{kind.kind}-{position.kind}"))
    for index, block in enumerate(block for block in BLOCKS if not block.shift):
        found.append(pytest.param(small_vit(block=block), id=f"block-{index}"))
    for kind in (kind for kind in HEADS if kind is not FirstToken):
        found.append(pytest.param(small_vit(head=kind(), registers=2, final_norm=False), id=f"{kind.kind}-registers"))
    mixed = small_vit(tokens=SeveralScales((8, 4)), positions=Rotary(table=True), registers=1)
    twice = small_vit(tokens=LinearPatches(4, twice=True), attention=Softmax(2, qk_norm=True))
    return [*found, pytest.param(mixed, id="scales-rotary-table"), pytest.param(twice, id="twice-qk-norm")]


ENCODERS = _encoders()


@pytest.mark.parametrize("model", ENCODERS)
def test_hidden_pixels_never_reach_the_encoder(model) -> None:
    learner = learner_of(model, hidden=0.5)
    pictures, order = some_pictures(3), orders_of(learner, 3, 1)
    shown, hidden = order[:, : learner.shown], order[:, learner.shown :]
    before = learner.encode(pictures, shown)
    changed, places = pictures.clone(), rectangles(learner)
    noise = some_pictures(3, seed=9) * 100
    concealed = torch.zeros_like(pictures, dtype=torch.bool)
    for picture, cells in enumerate(hidden.tolist()):
        for y, x in (places[cell] for cell in cells):
            concealed[picture, :, y, x] = True
    changed[concealed] = noise[concealed]
    assert not torch.equal(changed, pictures)
    assert torch.equal(learner.encode(changed, shown), before)

    pictures.requires_grad_()
    weights = torch.randn(before.shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad((learner.encode(pictures, shown) * weights).sum(), pictures)
    assert (gradient[concealed] == 0).all()
    assert (gradient[~concealed] != 0).double().mean() > 0.9, "all that is shown is looked at"

    y, x = places[int(shown[0, 0])]
    other = pictures.detach().clone()
    other[0, :, y, x] = noise[0, :, y, x]
    after = learner.encode(other, shown)
    assert not torch.allclose(after[0], before[0], atol=1e-3)
    assert torch.equal(after[1:], before[1:])


@pytest.mark.parametrize("model", ENCODERS)
def test_shown_everything_it_encodes_as_the_network_does(model) -> None:
    """The network's own tokens, after its blocks and norm; of several scales, the mean of all patches in a cell."""
    learner = learner_of(model).double()
    network, pictures = learner.network, some_pictures(3).double()
    tokens = network.norm(network.blocks(network.embed(pictures), network.positions.rotation))
    patches, start = tokens[:, network.layout.extra :].detach().numpy(), 0
    coarse = learner.cells.grid
    found: list[list[NDArray]] = [[] for _ in range(coarse.tokens)]
    for grid in network.layout.grids:
        for row, column in product(range(grid.rows), range(grid.columns)):
            cell = row * coarse.rows // grid.rows * coarse.columns + column * coarse.columns // grid.columns
            found[cell].append(patches[:, start + row * grid.columns + column])
        start += grid.tokens
    expected = np.stack([np.mean(inside, axis=0) for inside in found], axis=1)
    natural = torch.arange(coarse.tokens).expand(3, -1)
    np.testing.assert_allclose(learner.encode(pictures, natural).detach(), expected, rtol=1e-10, atol=1e-10)
    mixed = torch.stack([torch.randperm(coarse.tokens, generator=torch.Generator().manual_seed(i)) for i in range(3)])
    permuted = np.take_along_axis(expected, mixed.numpy()[:, :, None], axis=1)
    np.testing.assert_allclose(learner.encode(pictures, mixed).detach(), permuted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("model", [param for param in ENCODERS if "rotary" in param.id or param.id == "conv-patches"])
def test_the_order_of_the_shown_cells_means_nothing(model) -> None:
    learner = learner_of(model, hidden=0.5).double()
    pictures, order = some_pictures(3).double(), orders_of(learner, 3, 1)
    flipped = torch.cat([order[:, : learner.shown].flip(1), order[:, learner.shown :]], dim=1)
    torch.testing.assert_close(learner.drawn(pictures, flipped), learner.drawn(pictures, order), rtol=1e-9, atol=1e-9)
    others = torch.cat([order[:, : learner.shown], order[:, learner.shown :].flip(1)], dim=1)
    drawn = learner.drawn(pictures, others).flip(1)
    torch.testing.assert_close(drawn, learner.drawn(pictures, order), rtol=1e-9, atol=1e-9)


SHAPES = [
    pytest.param(Shape(1, 8, 16), ConvPatches(4), id="1-8-16"),
    pytest.param(Shape(3, 12, 8), ConvPatches(2), id="3-12-8"),
    pytest.param(Shape(5, 8, 16), SeveralScales((2, 8, 4)), id="5-scales"),
]


@pytest.mark.parametrize(("shape", "tokens"), SHAPES)
def test_cells_are_cut_as_plain_slices_and_joined_again(shape: Shape, tokens: Any) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape)
    pictures = some_pictures(2, shape)
    cut = learner.cells.cut(pictures)
    plain = [pictures.numpy()[:, :, y, x].transpose(0, 2, 3, 1).reshape(2, -1) for y, x in rectangles(learner)]
    np.testing.assert_array_equal(cut, np.stack(plain, axis=1))
    assert torch.equal(learner.cells.join(cut), pictures)
    pixels = torch.randn(cut.shape)
    assert torch.equal(learner.cells.cut(learner.cells.join(pixels)), pixels)


def normalised(learner: Autoencoder, pictures: Tensor) -> NDArray:
    """(x − μ) / √(σ² + 10⁻⁶) of each cell, σ² with n − 1 below: (b, cells, p), each channel last."""
    found = []
    for y, x in rectangles(learner):
        cell = pictures.double().numpy()[:, :, y, x].transpose(0, 2, 3, 1).reshape(len(pictures), -1)
        apart = cell - cell.mean(axis=1, keepdims=True)
        variance = (apart**2).sum(axis=1, keepdims=True) / (cell.shape[1] - 1)
        found.append(apart / np.sqrt(variance + 1e-6))
    return np.stack(found, axis=1)


@pytest.mark.parametrize(("shape", "tokens"), SHAPES)
def test_the_loss_is_the_mean_square_over_hidden_cells_alone(shape: Shape, tokens: Any) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape, hidden=0.5)
    pictures, order = some_pictures(4, shape), orders_of(learner, 4)
    y, x = rectangles(learner)[int(order[0, -1])]
    pictures[0, :, y, x] = 0.7  # a hidden cell of one colour, which has no deviation to divide by
    drawn, wanted = learner.drawn(pictures, order).detach().double().numpy(), normalised(learner, pictures)
    squares = []
    for picture, cells in enumerate(order[:, learner.shown :].tolist()):
        for place, cell in enumerate(cells):
            squares.append((drawn[picture, place] - wanted[picture, cell]) ** 2)
    loss, measures = learner(pictures, order)
    assert loss.item() == pytest.approx(np.mean(squares), rel=1e-5)
    assert measures.shape == (0,)
    assert learner.measures == ()


def test_the_gradient_is_that_of_finite_differences() -> None:
    """Of the loss in float64, by a weight in each part: encoder, blank, decoder."""
    learner = learner_of(small_vit(positions=Rotary()), hidden=0.5).double()
    pictures, order = some_pictures(3).double(), orders_of(learner, 3)

    def loss() -> Tensor:
        wanted = torch.from_numpy(normalised(learner, pictures))
        hidden = order[:, learner.shown :, None].expand(-1, -1, wanted.shape[-1])
        return (learner.drawn(pictures, order) - wanted.gather(1, hidden)).square().mean()

    learner(pictures, order)[0].backward()
    named = dict(learner.named_parameters())
    for name in ("network.tokens.embed.weight", "network.extra", "decoder.blank", "decoder.leave.weight"):
        weight, step = named[name], 1e-5
        flat, place = weight.data.view(-1), int(weight.grad.abs().argmax())
        kept, found = float(flat[place]), []
        for moved in (kept + step, kept - step, kept):
            flat[place] = moved
            found.append(loss().item())
        slope = (found[0] - found[1]) / (2 * step)
        assert weight.grad.view(-1)[place].item() == pytest.approx(slope, rel=1e-4), "its own loss is in float32"


class Perfect(Autoencoder):
    """Draws what is there."""

    def drawn(self, pictures: Tensor, order: Tensor) -> Tensor:
        wanted = torch.from_numpy(normalised(self, pictures)).float()
        return torch.stack([wanted[i, cells] for i, cells in enumerate(order[:, self.shown :])])


@pytest.mark.parametrize(("shape", "tokens"), SHAPES)
def test_a_perfect_decoder_gives_the_picture_back_at_no_loss(shape: Shape, tokens: Any) -> None:
    learner = Perfect(Mae(**SMALL), build(small_vit(tokens=tokens), shape))
    pictures, order = some_pictures(3, shape) * 5 + 2, orders_of(learner, 3)
    shown, restored = learner.restore(pictures, order)
    torch.testing.assert_close(restored, pictures, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(shown, pictures)
    assert learner(pictures, order)[0].item() < 1e-10


@pytest.mark.parametrize(("shape", "tokens"), SHAPES)
def test_restored_pictures_keep_the_shown_cells_and_get_the_others_from_the_decoder(shape: Shape, tokens: Any) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape, hidden=0.5)
    pictures, order = some_pictures(3, shape), orders_of(learner, 3)
    with torch.no_grad():
        (shown, restored), drawn = learner.restore(pictures, order), learner.drawn(pictures, order).double().numpy()
    assert shown.shape == restored.shape == pictures.shape
    channels, (tall, wide) = shape.channels, learner.cells.size
    for picture, cells in enumerate(order.tolist()):
        for place, cell in enumerate(cells):
            y, x = rectangles(learner)[cell]
            own = pictures[picture, :, y, x]
            if place < learner.shown:
                assert torch.equal(shown[picture, :, y, x], own)
                assert torch.equal(restored[picture, :, y, x], own)
                continue
            assert (shown[picture, :, y, x] == 0).all()
            pixels = drawn[picture, place - learner.shown].reshape(tall, wide, channels).transpose(2, 0, 1)
            exact = own.double().numpy()
            expected = pixels * np.sqrt(exact.var(ddof=1) + 1e-6) + exact.mean()
            np.testing.assert_allclose(restored[picture, :, y, x], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (small_vit(attention=small_attention(Linformer)), "linformer's projections are made for all of them"),
        (small_vit(block=Block(shift=4)), "use shift=0"),
        (small_multiscale(), "use model=vit"),
        (small_vit(across="batch"), "use across=tokens"),
        (small_vit(head=FirstToken()), "head=first-token reads: use class-token or mean"),
        (small_vit(head=FirstToken(), registers=2), "head=first-token reads: use class-token or mean"),
    ],
    ids=["linformer", "shift", "multi-scale", "across-batch", "first-token", "first-token-registers"],
)
def test_models_that_need_every_patch_are_refused_with_what_to_change(model: Any, reason: str) -> None:
    text = refusal(Mae().build, build(model))
    assert text.startswith("objective mae encodes only the patches it is shown, and ")
    assert reason in text


@pytest.mark.parametrize("head", [kind for kind in HEADS if kind is not FirstToken], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("tokens", [ConvPatches(8), SeveralScales((4, 8))], ids=lambda tokens: tokens.kind)
def test_one_cell_cannot_be_both_shown_and_hidden(head: Any, tokens: Any) -> None:
    text = refusal(Mae().build, build(small_vit(tokens=tokens, head=head()), Shape(3, 8, 8)))
    assert "needs 2 or more: use smaller ones" in text
    assert "first-token" not in text


def test_scales_that_do_not_lie_in_each_other_are_refused() -> None:
    network = build(small_vit(tokens=SeveralScales((4, 6))), Shape(1, 12, 24))
    text = refusal(Mae().build, network)
    assert "a grid of 3×6 does not lie evenly in one of 2×4: choose patches that divide each other" in text


def test_patches_that_are_not_of_whole_pixels_are_refused() -> None:
    tokens = ResizedPatches(patch=4, size=(12, 12))
    text = refusal(Mae().build, build(small_vit(tokens=tokens), Shape(1, 8, 8)))
    assert "tokens lie in 3×3 patches on pictures of 8×8" in text


def test_patches_of_a_single_number_are_refused() -> None:
    """A mean and nothing around it: there is no deviation to divide by."""
    assert "a single pixel" in refusal(Mae().build, build(small_vit(tokens=ConvPatches(1)), Shape(1, 4, 4)))


def test_locality_with_one_token_left_is_refused() -> None:
    """It looks at all tokens but its own: where one cell is shown and no token is extra, there is no other."""
    model = small_vit(attention=small_attention(Locality), head=Mean())
    text = refusal(Mae(hidden=0.75).build, build(model, Shape(3, 8, 8)))
    assert "locality" in text
    learner = learner_of(model, Shape(3, 8, 8), hidden=0.5)
    assert learner(some_pictures(2, Shape(3, 8, 8)), orders_of(learner, 2))[0].isfinite()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"hidden": 0.0}, "hidden is a share between 0 and 1, not 0.0"),
        ({"hidden": 1.0}, "hidden is a share between 0 and 1, not 1.0"),
        ({"hidden": -0.5}, "hidden is a share between 0 and 1, not -0.5"),
        ({"hidden": math.nan}, "hidden is a share"),
        ({"decoder_width": 0}, "a width that 4 divides"),
        ({"decoder_width": 30}, "a width that 4 divides"),
        ({"decoder_depth": 0}, "a depth of 1 or more"),
        ({"decoder_heads": 3}, "3 heads do not divide a width of 128"),
        ({"decoder_heads": 0}, "0 heads do not divide a width of 128"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], reason: str) -> None:
    assert reason in refusal(lambda: Mae(**settings).build(build(small_vit())))


@pytest.mark.parametrize(("shape", "tokens"), SHAPES)
def test_a_few_steps_on_one_batch_lower_the_loss(shape: Shape, tokens: Any) -> None:
    learner = learner_of(small_vit(tokens=tokens), shape).train()
    pictures, order = some_pictures(8, shape), orders_of(learner, 8)
    optimiser = torch.optim.AdamW(learner.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = learner(pictures, order)[0]
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    unused = {name for name, weight in learner.named_parameters() if weight.grad is None}
    assert unused == {"network.head.logits.weight", "network.head.logits.bias"}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> vitlab.Run:
    """120 steps on 64 digits, which takes a second."""
    words = (
        "epochs=30",
        "measure=2",
        "learning_rate=5e-3",
        "width=32",
        "decoder_width=64",
        "decoder_heads=4",
        "hidden=0.5",
    )
    return trained(small(*WORDS, *words), tmp_path_factory.mktemp("mae"))


def digits_of(run: vitlab.Run) -> Tensor:
    """What the run learned from, normalised."""
    data = load_data(run.experiment, None)
    return Normalise(data.card, torch.device("cpu"))(data.train.pictures / 255)


def test_it_learns_to_draw_what_is_hidden(run) -> None:
    losses = [line["loss"] for line in run.metrics()]
    assert len(losses) == 15
    assert losses[-1] < 0.75 * losses[0]
    even = np.mean(normalised(run.experiment.objective.build(run.model()), digits_of(run)) ** 2)
    assert np.mean(losses[-3:]) < 0.95 * even, "less than each cell's mean would be charged"


def test_a_finished_run_is_an_ordinary_run(run, tmp_path) -> None:
    check_ordinary(run, tmp_path)


def test_the_decoder_is_kept_beside_the_network(run) -> None:
    """Both together draw the hidden cells as well as they did at the end of training."""
    learner = run.experiment.objective.build(run.model())
    learner.decoder.load_state_dict(load_file(run.kept))
    pictures = digits_of(run)
    with torch.no_grad():
        loss = learner(pictures, orders_of(learner, len(pictures)))[0].item()
    assert loss == pytest.approx(run.metrics()[-1]["loss"], rel=0.15)


def test_the_decoder_that_is_kept_is_the_running_mean_where_the_network_is(tmp_path) -> None:
    loop = loop_of(small(*WORDS, "ema=0.9"), tmp_path, tested=50)
    loop.train()
    average = {name: tensor for name, tensor in loop.session.tensors().items() if name.startswith("average.")}
    weights, kept = load_file(loop.run.weights), load_file(loop.run.kept)
    name = "blocks.0.mlp.enter.weight"
    assert torch.equal(weights[name], average[f"average.network.{name}"])
    assert all(torch.equal(kept[name], average[f"average.decoder.{name}"]) for name in kept)


@pytest.mark.parametrize("extra", [(), ("block.dropout=0.1", "ema=0.9", "rotate=10", "optimiser=muon")])
def test_stopped_in_the_middle_of_an_epoch_it_ends_in_the_same_bits(tmp_path, extra) -> None:
    _, whole = check_resumed(small(*WORDS, *extra), tmp_path)
    assert {"model.decoder.blank", "model.network.extra"} <= whole.keys()
