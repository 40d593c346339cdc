"""Every map against NumPy in float64: raw attention, rollout, relevance, lens, likeness, distance, entropy."""

import math

import apart
import numpy as np
import pytest
import torch
from kinds import (
    ATTENTIONS,
    CLASSES,
    EVERY_MODEL,
    HEADS,
    JOINS,
    SHAPE,
    build,
    small_attention,
    small_multiscale,
    small_vit,
    some_pictures,
)
from look_reference import Answer, Reference, pulls

from vitlab.engine import memory
from vitlab.errors import BadInput
from vitlab.look import Inside, inside
from vitlab.look.heat import heat, overlap
from vitlab.look.tokens import finest
from vitlab.model import Shape
from vitlab.model.attention import Linformer, Locality, Softmax, Uniform
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, Mean
from vitlab.model.layout import Grid, Layout
from vitlab.model.multiscale import LateClassToken
from vitlab.model.tokens import ConvPatches, SeveralScales

CLOSE = {"rtol": 2e-4, "atol": 2e-6}
LOOKED_AT = [
    *(pytest.param(small_vit(attention=small_attention(kind)), id=f"vit-{kind.kind}") for kind in ATTENTIONS),
    *(pytest.param(small_vit(head=kind(), registers=2), id=f"vit-{kind.kind}") for kind in HEADS),
    *(
        pytest.param(small_vit(attention=small_attention(kind), block=Block(norm="after")), id=f"after-{kind.kind}")
        for kind in ATTENTIONS
    ),
    *(
        pytest.param(
            small_multiscale(attention=small_attention(kind, heads=4), join=join()), id=f"{join.kind}-{kind.kind}"
        )
        for join in JOINS
        for kind in (Softmax, Linformer)
    ),
]  # fmt: skip


def reading(reference: Reference, answer: Answer) -> np.ndarray:
    """The share of each token of the read stream in what the head reads."""
    model, tokens = reference.settings, answer.streams[-1].tokens[-1]
    count, row = len(tokens), np.zeros(len(tokens))
    kind = model.head.kind if hasattr(model, "head") else model.join.kind
    registers = getattr(model, "registers", 0)
    if kind == "mean":
        row[registers:] = 1 / (count - registers)
    elif kind == "sequence-pool":
        row[registers:] = reference.asked(reference.norm(tokens, "norm")[registers:])
    elif kind == "distilled":
        row[:2] = 1 / 2
    else:
        row[registers if kind == "first-token" else 0] = 1
    return row


def looked(model, count: int = 1, **options) -> tuple[Reference, torch.Tensor, Inside]:
    network, pictures = build(model), some_pictures(count)
    return Reference(model, network), pictures, inside(network, pictures, **options)


@pytest.mark.parametrize("model", LOOKED_AT)
def test_rows_of_the_maps_are_those_of_the_equations(model) -> None:
    reference, pictures, seen = looked(model, 2)
    for place, picture in enumerate(pictures.double().numpy()):
        answer = reference.answer(picture)
        np.testing.assert_allclose(seen.logits[place], answer.logits, **CLOSE)
        np.testing.assert_allclose(seen.lens[place], answer.lens, **CLOSE)
        for number, (stream, expected) in enumerate(zip(seen.streams, answer.streams, strict=True)):
            read = number == len(seen.streams) - 1
            count = stream.layout.tokens
            row = reading(reference, answer) if read else np.full(count, 1 / count)
            maps = np.array([row @ weights for weights in expected.maps]).reshape(stream.attention.shape[1:])
            np.testing.assert_allclose(stream.attention[place], maps, **CLOSE)


@pytest.mark.parametrize("model", LOOKED_AT)
def test_rollout_is_the_product_of_the_mixing_matrices(model) -> None:
    reference, pictures, seen = looked(model)
    answer = reference.answer(pictures[0].double().numpy())
    mixes = [[(weights.mean(axis=0) + np.eye(weights.shape[1])) / 2 for weights in s.maps] for s in answer.streams]
    compare_flows(reading(reference, answer), seen, mixes, "rollout", own=False)


@pytest.mark.parametrize("model", LOOKED_AT)
def test_relevance_is_what_differences_of_the_map_say(model) -> None:
    """R ← R + mean over heads of (∇A ⊙ A)⁺ · R, ∇A by nudging every entry of every map in float64."""
    reference, pictures, seen = looked(model)
    picture = pictures[0].double().numpy()
    answer = reference.answer(picture)
    assert int(seen.target[0]) == int(answer.logits.argmax())
    mixes = []
    for stream, slopes in zip(answer.streams, pulls(reference, picture, int(seen.target[0])), strict=True):
        carried = [np.maximum(a * pull, 0).mean(axis=0) for a, pull in zip(stream.maps, slopes, strict=True)]
        mixes.append([np.eye(len(one)) + one for one in carried])
    compare_flows(reading(reference, answer), seen, mixes, "relevance", own=True)


def compare_flows(start: np.ndarray, seen: Inside, mixes: list[list[np.ndarray]], name: str, own: bool) -> None:
    """The rows by which what enters each stream reaches the head: products of `mixes`, first block to last."""
    final = seen.streams[-1]

    def product(number: int) -> np.ndarray:
        total = np.eye(seen.streams[number].layout.tokens)
        for mix in mixes[number]:
            total = mix @ total
        return total

    joined = start @ product(len(mixes) - 1)
    np.testing.assert_allclose(getattr(final, name)[0], joined - start * own, **CLOSE)
    first = final.layout.extra
    for number, stream in enumerate(seen.streams[:-1]):
        part = slice(first, first + stream.layout.tokens)
        flow = joined[part] @ product(number)
        np.testing.assert_allclose(getattr(stream, name)[0], flow - start[part] * own, **CLOSE)
        first += stream.layout.tokens


@pytest.mark.parametrize("model", LOOKED_AT)
def test_measures_are_those_of_plain_loops(model) -> None:
    reference, pictures, seen = looked(model)
    answer = reference.answer(pictures[0].double().numpy())
    for stream, expected in zip(seen.streams, answer.streams, strict=True):
        extra = stream.layout.extra
        centres = [
            ((row + 0.5) * SHAPE.height / grid.rows, (column + 0.5) * SHAPE.width / grid.columns)
            for grid in stream.layout.grids
            for row in range(grid.rows)
            for column in range(grid.columns)
        ]
        for layer, weights in enumerate(expected.maps):
            for head, one in enumerate(np.abs(weights)):
                far, wide = [], []
                for i, row in enumerate(one):
                    wide.append(-sum(p * math.log2(p) for p in row / row.sum() if p > 0))
                    if i >= extra:
                        among = [math.dist(centres[i - extra], centre) for centre in centres]
                        far.append(sum(w * d for w, d in zip(row[extra:], among, strict=True)) / row[extra:].sum())
                assert float(stream.distance[0, layer, head]) == pytest.approx(np.mean(far), rel=1e-4)
                assert float(stream.entropy[0, layer, head]) == pytest.approx(np.mean(wide), rel=1e-4)
        for step, tokens in enumerate(expected.tokens):
            unit = tokens[extra:] / np.linalg.norm(tokens[extra:], axis=1, keepdims=True)
            pairs = [unit[i] @ unit[j] for i in range(len(unit)) for j in range(len(unit)) if i != j]
            assert float(stream.alikeness[0, step]) == pytest.approx(np.mean(pairs), rel=1e-3, abs=1e-5)


def test_likeness_is_the_cosine_with_the_token_that_looks() -> None:
    reference, pictures, seen = looked(small_vit(registers=1))
    answer = reference.answer(pictures[0].double().numpy())
    for step, tokens in enumerate(answer.streams[0].tokens):
        cosines = [t @ tokens[0] / np.linalg.norm(t) / np.linalg.norm(tokens[0]) for t in tokens]
        np.testing.assert_allclose(seen.streams[0].similarity[0, step], cosines, **CLOSE)


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_the_gap_to_the_models_own_tokens_is_rounding(model) -> None:
    network = build(model)
    if getattr(model, "across", "tokens") == "batch":
        with pytest.raises(BadInput, match="across the batch"):
            inside(network, some_pictures(2))
        return
    assert inside(network, some_pictures(2)).gap < 2e-6


def test_a_map_that_is_not_what_the_model_did_shows_in_the_gap(monkeypatch) -> None:
    network = build(small_vit())
    true = type(network.blocks[1].attention).map
    monkeypatch.setattr(
        network.blocks[1].attention, "map", lambda *given: true(network.blocks[1].attention, *given).roll(1, dims=-1)
    )
    assert inside(network, some_pictures(2)).gap > 1e-3


def test_what_each_kind_promises() -> None:
    count = 9
    uniform = looked(small_vit(attention=Uniform()))[2].streams[0]
    assert torch.equal(uniform.attention, torch.full_like(uniform.attention, 1 / count))
    local = build(small_vit(attention=small_attention(Locality)))
    for layer in local.maps(some_pictures(2))[0].layers:
        assert torch.equal(layer.diagonal(dim1=-2, dim2=-1), torch.zeros(2, 2, count))
    squeezed = looked(small_vit(attention=small_attention(Linformer)))[2].streams[0]
    assert squeezed.attention.min() < 0, "carried back through the values' projection, weights may be negative"
    plain = looked(small_vit(attention=small_attention(Softmax)))[2].streams[0]
    torch.testing.assert_close(plain.attention.sum(-1), torch.ones(1, 2, 2))


def test_chunks_and_batches_give_the_same_maps() -> None:
    for model in (small_vit(), small_multiscale()):
        network, pictures = build(model), some_pictures(5)
        whole, cut = inside(network, pictures), inside(network, pictures, memory=1)
        alone = inside(network, pictures[3:4])
        for stream, other, single in zip(whole.streams, cut.streams, alone.streams, strict=True):
            for name in ("attention", "rollout", "relevance", "similarity", "alikeness", "distance", "entropy"):
                torch.testing.assert_close(getattr(stream, name), getattr(other, name), rtol=1e-4, atol=1e-6)
                torch.testing.assert_close(getattr(stream, name)[3:4], getattr(single, name), rtol=1e-4, atol=1e-6)


def test_looking_leaves_the_model_as_it_was() -> None:
    network = build(small_vit()).train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    inside(network, some_pictures(2))
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_a_frozen_model_and_inference_mode_are_looked_at_all_the_same() -> None:
    model = small_vit(attention=Uniform())
    network, pictures = build(model), some_pictures(2)
    expected = inside(network, pictures).streams[0].relevance
    network.requires_grad_(False)
    with torch.no_grad():
        torch.testing.assert_close(inside(network, pictures).streams[0].relevance, expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_models_of_other_types_are_looked_at(dtype: torch.dtype) -> None:
    network, pictures = build(small_vit()), some_pictures(2)
    expected = inside(network, pictures)
    found = inside(network.to(dtype), pictures)
    rough = {"rtol": 1e-4, "atol": 1e-6} if dtype == torch.float64 else {"rtol": 0.2, "atol": 0.03}
    for name in ("attention", "rollout", "similarity", "entropy"):
        assert getattr(found.streams[0], name).dtype == torch.float32
        torch.testing.assert_close(getattr(found.streams[0], name), getattr(expected.streams[0], name), **rough)


def test_inference_mode_and_inputs_with_gradients_do_not_matter() -> None:
    network, pictures = build(small_vit()), some_pictures(2)
    expected = inside(network, pictures).streams[0].relevance
    with torch.inference_mode():
        torch.testing.assert_close(inside(network, pictures.clone()).streams[0].relevance, expected)
    wanting = pictures.clone().requires_grad_()
    torch.testing.assert_close(inside(network, wanting).streams[0].relevance, expected)
    assert wanting.grad is None


def test_every_layer_keeps_its_mode() -> None:
    network = build(small_vit()).train()
    network.blocks[0].eval()
    before = {name: module.training for name, module in network.named_modules()}
    inside(network, some_pictures(1))
    assert {name: module.training for name, module in network.named_modules()} == before


def test_relevance_speaks_for_the_class_that_is_asked() -> None:
    network, pictures = build(small_vit()), some_pictures(3)
    maps = [inside(network, pictures, target=label).streams[0].relevance for label in range(CLASSES)]
    assert all(not torch.allclose(maps[0], other, rtol=0.05) for other in maps[1:])
    each = inside(network, pictures, target=torch.tensor([2, 0, 4])).streams[0].relevance
    torch.testing.assert_close(each, torch.stack([maps[2][0], maps[0][1], maps[4][2]]))
    with pytest.raises(BadInput, match="class 5 is not one of this model's 5"):
        inside(network, pictures, target=5)


def test_any_token_can_look() -> None:
    network, pictures = build(small_vit(registers=1)), some_pictures(2)
    full = torch.stack(network.eval().maps(pictures)[0].layers, dim=1)
    for token, place in (("class", 0), ("register 1", 1), ("1,1", 2), ("2, 3", 2 + 4 + 2), ("Class", 0)):
        seen = inside(network, pictures, token=token).streams[0]
        torch.testing.assert_close(seen.attention, full[:, :, :, place])
        mixed = torch.eye(10)
        for layer in range(2):
            mixed = (full[:, layer].mean(1) + torch.eye(10)) / 2 @ mixed
        torch.testing.assert_close(seen.rollout, mixed[:, place])
    known = "'class' or 'register 1' or a patch by its row,column"
    for wrong, words in (("3,1", "2 rows and 4 columns"), ("0,1", "from 1,1"), ("clas", known), ("", known)):
        with pytest.raises(BadInput, match=words):
            inside(network, pictures, token=wrong)


def test_a_patch_is_the_same_place_at_every_scale() -> None:
    network, pictures = build(small_multiscale()), some_pictures(1)
    maps = [torch.stack(stream.layers, dim=1) for stream in network.eval().maps(pictures)]
    seen = inside(network, pictures, token="2,3")  # of 2×4 patches; in 1×2, that lies in the second
    torch.testing.assert_close(seen.streams[0].attention, maps[0][:, :, :, 4 + 2])
    torch.testing.assert_close(seen.streams[1].attention, maps[1][:, :, :, 1])
    with pytest.raises(BadInput, match="no token 'class': name a patch by its row,column"):
        inside(network, pictures, token="class")


def test_a_late_class_token_has_seen_nothing() -> None:
    seen = looked(small_multiscale(join=LateClassToken()))[2]
    assert all((stream.relevance == 0).all() and (stream.rollout == 0).all() for stream in seen.streams[:-1])
    assert all(stream.attention.shape[1] == 2 for stream in seen.streams[:-1]), "though its scales attend"


def test_heat_adds_up_what_lies_on_the_same_place() -> None:
    _, _, seen = looked(small_multiscale())
    fine, coarse = seen.streams[0].rollout.view(1, 2, 4), seen.streams[1].rollout.view(1, 1, 2)
    expected = fine + coarse.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2) / 4
    torch.testing.assert_close(heat(seen, "rollout"), expected)
    both = looked(small_vit(tokens=SeveralScales((4, 8)), head=Mean()))[2]
    assert heat(both, "attention").shape == (1, 2, 4)
    torch.testing.assert_close(heat(both, "attention").sum(), both.streams[0].attention[:, -1].mean(1).sum())


@pytest.mark.parametrize(("given", "wanted"), [(3, 7), (7, 3), (4, 4), (1, 5), (6, 4)])
def test_overlap_shares_out_whole_pieces(given: int, wanted: int) -> None:
    shares = overlap(given, wanted)
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(given))
    fine = torch.arange(given * wanted)
    counted = torch.zeros(given, wanted)
    for piece in fine.tolist():
        counted[piece // wanted, piece // given] += 1 / wanted
    torch.testing.assert_close(shares, counted)


def test_a_model_without_blocks_shows_its_tokens() -> None:
    seen = looked(small_vit(depth=0))[2]
    assert seen.streams[0].attention.shape == (1, 0, 0, 9)
    assert seen.lens.shape == (1, 1, CLASSES)
    assert (heat(seen, "relevance") == 0).all()


def test_long_sequences_stay_within_memory(tmp_path) -> None:
    done = apart.Started(tmp_path, tmp_path, look_at_long_sequences).end()
    assert done.returncode == 0, done.stderr


def look_at_long_sequences() -> None:
    """2,117 tokens: the maps of one block of one picture are 36 MB, and a few copies are all that is ever held.

    Blocks above 32 MiB go back to the system when they are freed, so that the peak is what was in use: in a process of
    its own, since a step compiled by another test tells the allocator to keep what is freed.
    """
    here, one_block = torch.device("cpu"), 4 * 2 * 2117**2
    inside(build(small_vit()), some_pictures(1))  # what torch loads at its first use is not counted
    for depth in (1, 6):
        model = small_vit(depth=depth, tokens=ConvPatches(1), attention=Softmax(heads=2), head=ClassToken())
        network, pictures = build(model, Shape(1, 46, 46)), torch.randn(2, 1, 46, 46)
        memory.begin(here)
        before = memory.peak(here)
        seen = inside(network, pictures)
        assert seen.streams[0].attention.shape == (2, depth, 2, 2117)
        held = (memory.peak(here) - before) / one_block
        assert held < 12, "as much for six blocks as for one, for two pictures as for one; all would be 36 and more"
        assert seen.gap < 2e-6


def test_the_finest_grid_is_the_one_with_most_patches() -> None:
    assert finest([Layout(0, (Grid(2, 2), Grid(4, 4))), Layout(1, (Grid(3, 3),))]) == Grid(4, 4)
