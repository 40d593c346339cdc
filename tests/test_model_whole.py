"""Properties of whole models, for every kind of every part."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from kinds import (
    ATTENTIONS,
    CLASSES,
    EVERY_MODEL,
    HEADS,
    JOINS,
    POSITIONS,
    SHAPE,
    TOKENS,
    build,
    choices,
    each,
    is_blind,
    mixes_pictures,
    small_attention,
    small_multiscale,
    small_tokens,
    small_vit,
    some_pictures,
)
from torch import Tensor, nn

from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax, Uniform
from vitlab.model.blocks import Block, BlockLayer
from vitlab.model.heads import ClassToken, Distilled, FirstToken, Mean, SequencePool
from vitlab.model.multiscale import LateClassToken
from vitlab.model.positions import Rotary
from vitlab.model.tokens import LinearPatches

SEEING_JOINS = [join for join in JOINS if join is not LateClassToken]


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_every_model_gives_finite_logits_of_the_right_shape(model) -> None:
    logits = build(model)(some_pictures(3))
    assert logits.shape == (3, CLASSES)
    assert logits.isfinite().all()


@pytest.mark.parametrize("model", [case for case in EVERY_MODEL if not is_blind(case.values[0])])
def test_every_parameter_gets_a_gradient(model) -> None:
    network = build(model).train()
    logits = network(some_pictures(4))
    (logits * torch.randn(logits.shape, generator=torch.Generator().manual_seed(3))).sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        if (
            name.startswith("scales.1.")
            and name.endswith(("sharpness", "qkv.weight"))
            and model.attention.kind == "locality"
        ):
            continue  # patches of 8 make two tokens here: each looks at the other with weight 1, whatever the scores
        parts = parameter.grad.chunk(3) if name.endswith("qkv.weight") else [parameter.grad]
        assert all(part.abs().max() > 1e-9 for part in parts), name


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_no_two_blocks_start_equal_unless_they_are_to_be_copies(model) -> None:
    torch.manual_seed(0)
    network = model.build(SHAPE, CLASSES)
    blocks = [module for module in network.modules() if isinstance(module, BlockLayer)]
    assert len(blocks) >= 2
    copies = isinstance(model, ViT) and model.copies
    for first, second in combinations(blocks, 2):
        for one, other in zip(matrices(first), matrices(second), strict=True):
            same = one.shape == other.shape and torch.equal(one, other)
            assert same == (copies or not one.any()), "but for what starts at zero"


def matrices(block: BlockLayer) -> list[Tensor]:
    return [module.weight for module in block.modules() if isinstance(module, nn.Linear)]


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_picture_feels_its_neighbours_only_where_attention_goes_across_the_batch(model) -> None:
    torch.manual_seed(0)
    network = model.build(SHAPE, CLASSES).eval()
    own = some_pictures(1, seed=5)
    with torch.inference_mode():
        alone = network(own)
        for count, seed in ((1, 6), (4, 7), (9, 8)):
            crowd = some_pictures(count, seed=seed) * 10
            together = network(torch.cat([crowd, own, crowd]))[count : count + 1]
            if mixes_pictures(model):
                assert (together - alone).abs().max() > 1e-3
            else:
                torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_a_picture_matters_to_every_model_that_can_see(model) -> None:
    network = build(model).eval()
    change = (network(some_pictures(2, seed=1)) - network(some_pictures(2, seed=2))).abs().max()
    assert change == 0 if is_blind(model) else change > 1e-3


@each(TOKENS)
@pytest.mark.parametrize("shape", [Shape(1, 16, 8), Shape(3, 8, 24), Shape(5, 16, 16)], ids=str)
def test_rectangles_and_channels_fit_every_tokenizer(shape: Shape, kind) -> None:
    network = build(small_vit(tokens=small_tokens(kind)), shape)
    assert network(some_pictures(2, shape)).shape == (2, CLASSES)
    assert network.layout.tokens == 1 + sum(grid.tokens for grid in network.layout.grids)


@each(ATTENTIONS)
@each([kind for kind in POSITIONS if kind is not Rotary], name="position")  # rotary adds nothing that could come late
def test_late_class_token_cannot_see(position, kind) -> None:
    """Report R0 as written: the logits are the same for every picture, and no gradient reaches a patch."""
    model = small_multiscale(join=LateClassToken(), attention=small_attention(kind, heads=4), positions=position())
    network = build(model)
    pictures = some_pictures(6).requires_grad_()
    logits = network(pictures)
    assert torch.equal(logits, logits[:1].expand_as(logits))
    logits.sum().backward()
    assert (pictures.grad == 0).all()
    scales = list(network.scales.parameters())
    assert scales
    assert all(parameter.grad is None or (parameter.grad == 0).all() for parameter in scales)


@pytest.mark.parametrize("join", SEEING_JOINS, ids=lambda kind: kind.kind)
@each(ATTENTIONS)
def test_the_other_joins_see_every_patch_of_each_scale(kind, join) -> None:
    for seen in (0, 1):
        network = build(small_multiscale(join=join(), attention=small_attention(kind, heads=4)))
        with torch.no_grad():  # the other scale is blinded, so what is felt was seen by this one
            network.scales[1 - seen].tokens.embed.weight.zero_()
        pictures = some_pictures(1).requires_grad_()
        (network(pictures) * torch.randn(1, CLASSES)).sum().backward()
        felt = pictures.grad.abs().sum(dim=(0, 1))
        assert (felt > 0).all()


@each(HEADS)
@pytest.mark.parametrize("registers", [0, 3])
def test_a_head_reads_the_tokens_it_says(registers: int, kind) -> None:
    network = build(small_vit(head=kind(), registers=registers))
    layout = network.layout
    assert layout.extra == registers + kind.own_tokens
    tokens = torch.randn(2, layout.tokens, 16, requires_grad=True)
    network.head(tokens[:, network.head.read]).sum().backward()
    read = tokens.grad.abs().sum(dim=(0, 2)) > 0
    places = {
        ClassToken: range(1),
        FirstToken: range(layout.extra, layout.extra + 1),
        Mean: range(layout.extra, layout.tokens),
        SequencePool: range(layout.extra, layout.tokens),
        Distilled: range(2),
    }[kind]
    assert read.nonzero().flatten().tolist() == list(places)
    if kind not in (Distilled, SequencePool):  # whose tokens weigh differently
        assert torch.unique(tokens.grad[:, list(places)].round(decimals=6), dim=1).shape[1] == 1, "all weigh the same"


def test_dense_layers_start_by_xavier_each_of_queries_keys_and_values_apart() -> None:
    torch.manual_seed(0)
    network = ViT(width=64, depth=2).build(SHAPE, 10)
    for name, module in network.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        assert module.bias.abs().max() == 0
        if name == "head.logits":
            assert 0.017 < module.weight.std() < 0.021
            continue
        parts = module.weight.chunk(3) if name.endswith("qkv") else [module.weight]
        for part in parts:
            bound = (6 / sum(part.shape)) ** 0.5
            assert 0.98 * bound < part.abs().max() <= bound
    assert 0.01 < network.extra.std() < 0.03


def test_a_start_left_to_torch_is_that_of_its_own_layers() -> None:
    torch.manual_seed(3)
    network = ViT(width=64, depth=2, start="torch", registers=7, tokens=LinearPatches(4)).build(SHAPE, 10)
    torch.manual_seed(3)
    fresh = nn.Linear(48, 64)  # the first layer that is built
    assert torch.equal(network.tokens.embed.weight, fresh.weight)
    assert torch.equal(network.tokens.embed.bias, fresh.bias)
    dense = [module for module in network.modules() if isinstance(module, nn.Linear)]
    assert len(dense) == 1 + 2 * 4 + 1
    for layer in dense:  # uniform within 1/√in, the biases too
        bound = layer.in_features**-0.5
        assert 0.97 * bound < layer.weight.abs().max() <= bound
        assert 0.5 * bound < layer.bias.abs().max() <= bound
    for tokens in (network.extra, network.positions.table):  # N(0, 1): 512 numbers or more
        assert 0.85 < tokens.std() < 1.15
        assert abs(tokens.mean()) < 0.2


@pytest.mark.parametrize("project", [True, False])
@each(ATTENTIONS)
def test_blocks_that_start_at_zero_pass_their_tokens_on(kind, project: bool) -> None:
    network = small_vit(start="zero", attention=small_attention(kind, project=project)).build(SHAPE, CLASSES).eval()
    tokens = network.embed(some_pictures(2))
    assert torch.equal(network.blocks(tokens), tokens)
    last = ("leave.weight", "out.weight" if project else "value.weight")
    others = [p for name, p in network.named_parameters() if p.ndim == 2 and not name.endswith(last)]
    assert all(p.any() for p in others)


@pytest.mark.parametrize("start", [start for start in choices(ViT, "start") if start != "zero"])
def test_copies_start_equal_and_learn_apart(start: str) -> None:
    torch.manual_seed(0)
    network = small_vit(depth=3, start=start, copies=True).build(SHAPE, CLASSES)
    first, *others = network.blocks
    for block in others:
        assert all(torch.equal(block.state_dict()[name], tensor) for name, tensor in first.state_dict().items())
    torch.manual_seed(0)
    alone = small_vit(depth=3, start=start).build(SHAPE, CLASSES).blocks[0]
    assert all(torch.equal(alone.state_dict()[name], tensor) for name, tensor in first.state_dict().items())
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    F.cross_entropy(network(some_pictures(4)), torch.arange(4)).backward()
    optimiser.step()
    for one, other in combinations(network.blocks, 2):
        assert not torch.equal(one.mlp.leave.weight, other.mlp.leave.weight)


@pytest.mark.parametrize("model", [small_vit(), small_multiscale()], ids=["vit", "multi-scale"])
def test_the_output_is_torchs_softmax_or_its_logarithm_of_the_logits(model) -> None:
    pictures = some_pictures(6)
    networks = {output: build(replace(model, output=output)).eval() for output in choices(type(model), "output")}
    logits = networks["logits"](pictures)
    assert all(torch.equal(network.logits(pictures), logits) for network in networks.values())
    torch.testing.assert_close(networks["softmax"](pictures), F.softmax(logits, dim=1))
    torch.testing.assert_close(networks["log-softmax"](pictures), F.log_softmax(logits, dim=1))
    assert networks.keys() == {"logits", "softmax", "log-softmax"}


@each([Softmax, Uniform], name="attention")
def test_a_class_token_that_attends_across_the_batch_never_meets_a_patch(attention) -> None:
    """Report R4's axes: its place holds the class tokens of all pictures, which are one and the same."""
    model = small_vit(across="batch", attention=small_attention(attention))
    network = build(model).eval()
    for count in (1, 4):  # alone, and in company
        pictures = some_pictures(count).requires_grad_()
        logits = network(pictures)
        assert torch.equal(logits, network(some_pictures(count, seed=2) * 5))
        logits.sum().backward()
        assert (pictures.grad == 0).all()
    seeing = build(replace(model, across="tokens")).eval()
    assert (seeing(some_pictures(1)) - seeing(some_pictures(1, seed=2))).abs().max() > 1e-3


@each([Softmax, Uniform], name="attention")
def test_across_the_batch_each_place_sees_its_own_place_in_the_other_pictures_and_no_other(attention) -> None:
    network = build(small_vit(across="batch", attention=small_attention(attention), head=FirstToken())).eval()
    pictures = some_pictures(3).requires_grad_()
    (network(pictures)[0] * torch.randn(CLASSES, generator=torch.Generator().manual_seed(5))).sum().backward()
    felt = pictures.grad.abs().sum(dim=1) > 0
    assert felt[:, :4, :4].all(), "the first patch of every picture"
    assert not felt[:, 4:].any()
    assert not felt[:, :, 4:].any()


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_the_first_weights_follow_from_the_seed(model) -> None:
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        states.append(model.build(SHAPE, CLASSES).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any(not torch.equal(states[0][name], states[2][name]) for name in states[0])


@pytest.mark.parametrize("model", EVERY_MODEL)
def test_the_state_is_whole_finite_tensors_and_loads_again(model) -> None:
    network = build(model)
    state = network.state_dict()
    assert all(tensor.isfinite().all() for tensor in state.values())
    torch.manual_seed(99)
    again = model.build(SHAPE, CLASSES)
    again.load_state_dict(state)
    pictures = some_pictures(2)
    assert torch.equal(again.eval()(pictures), network.eval()(pictures))


def test_registers_are_tokens_of_their_own() -> None:
    network = build(small_vit(registers=2))
    assert network.extra.shape == (3, 16)
    tokens = network.embed(some_pictures(2))
    assert tokens.shape[1] == 3 + 8
    assert not torch.equal(network.extra[1], network.extra[2])


@pytest.mark.parametrize("depth", [0, 1, 5])
def test_depth_counts_the_blocks(depth: int) -> None:
    network = build(small_vit(depth=depth))
    assert sum(isinstance(module, BlockLayer) for module in network.modules()) == depth
    assert network(some_pictures(1)).isfinite().all()


def test_heads_of_a_multi_scale_model_are_shared_out_among_the_scales() -> None:
    network = build(small_multiscale(attention=Softmax(heads=4)))
    maps = network.maps(some_pictures(1))
    assert [stream.layers[0].shape[1] for stream in maps] == [2, 2]


@pytest.mark.parametrize("model", [small_vit(), small_multiscale()], ids=["vit", "multi-scale"])
def test_a_norm_of_none_leaves_no_norm_in_the_blocks(model) -> None:
    network = build(replace(model, block=Block(norm="none")))
    norms = (nn.LayerNorm, nn.RMSNorm)
    blocks = [module for module in network.modules() if isinstance(module, BlockLayer)]
    assert not any(isinstance(module, norms) for block in blocks for module in block.modules())
