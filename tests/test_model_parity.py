"""The same numbers as torch's layers, outputs and gradients, once the weights are copied across."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from kinds import CLASSES, build, shake, some_pictures
from torch import Tensor, nn

from vitlab.model import ViT
from vitlab.model.attention import Softmax, SoftmaxMixer
from vitlab.model.blocks import Block, BlockLayer
from vitlab.model.heads import Mean
from vitlab.model.layout import Grid, Layout

WIDTH, HEADS, TOKENS, BATCH = 24, 3, 9, 4

# float32 rounds at 6e-8; sums of some hundred terms of size one, taken in another order by another kernel, differ by
# a few 1e-6, and gradients sum over the batch's tokens besides. A wrong equation is off by 1e-2 or more.
PARITY = {"rtol": 1e-4, "atol": 1e-5}


def compare(ours: Tensor, theirs: Tensor, what: str = "output") -> None:
    torch.testing.assert_close(ours, theirs, **PARITY, msg=lambda text: f"{what}: {text}")


def run_backward(
    module: Callable[..., Tensor], given: Tensor, direction: Tensor, **options: object
) -> tuple[Tensor, Tensor]:
    """The output, and the gradient at the input of ⟨output, direction⟩; the weights' gradients are left in place."""
    given = given.clone().requires_grad_()
    output = module(given, **options)
    (output * direction).sum().backward()
    assert given.grad is not None
    return output.detach(), given.grad


def make_block(settings: Block) -> BlockLayer:
    torch.manual_seed(0)
    block = settings.build(WIDTH, Softmax(heads=HEADS), Layout(0, (Grid(3, 3),)), depth=0.0)
    shake(block)
    return block


def encoder_layer(
    block: BlockLayer, settings: Block, batch_first: bool = True
) -> tuple[nn.TransformerEncoderLayer, dict[str, nn.Parameter]]:
    """torch's layer with the block's weights, and its parameters under our names."""
    hidden = round(settings.mlp * WIDTH)
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, hidden, dropout=0.0, activation=settings.activation, layer_norm_eps=settings.epsilon,
        batch_first=batch_first, norm_first=settings.norm == "before",
    )  # fmt: skip
    pairs = {}
    for kind in ("weight", "bias"):
        pairs |= {
            f"attention.qkv.{kind}": getattr(theirs.self_attn, f"in_proj_{kind}"),
            f"attention.out.{kind}": getattr(theirs.self_attn.out_proj, kind),
            f"mlp.enter.{kind}": getattr(theirs.linear1, kind),
            f"mlp.leave.{kind}": getattr(theirs.linear2, kind),
            f"norm_attention.{kind}": getattr(theirs.norm1, kind),
            f"norm_mlp.{kind}": getattr(theirs.norm2, kind),
        }
    ours = dict(block.named_parameters())
    assert ours.keys() == pairs.keys()
    with torch.no_grad():
        for name, parameter in pairs.items():
            parameter.copy_(ours[name])
    return theirs, pairs


@pytest.mark.parametrize("activation", ["gelu", "relu"])
@pytest.mark.parametrize("norm", ["before", "after"])
def test_a_block_is_torchs_encoder_layer(norm: str, activation: str) -> None:
    settings = Block(norm=norm, activation=activation, mlp=2.0)
    block = make_block(settings)
    theirs, pairs = encoder_layer(block, settings)
    tokens, direction = torch.randn(2, BATCH, TOKENS, WIDTH).unbind()
    ours_out, ours_in = run_backward(block, tokens, direction)
    their_out, their_in = run_backward(theirs, tokens, direction)
    compare(ours_out, their_out)
    compare(ours_in, their_in, "gradient at the tokens")
    for name, parameter in block.named_parameters():
        compare(parameter.grad, pairs[name].grad, f"gradient of {name}")
    with torch.inference_mode():
        compare(block.eval()(tokens), theirs.eval()(tokens), "evaluation")


@pytest.mark.parametrize("norm", ["after", "before"])
def test_attention_across_the_batch_is_torchs_encoder_given_the_batch_for_its_sequence(norm: str) -> None:
    """Report R4: batch_first=False reads (batch, tokens, width) as (sequence, batch, width)."""
    settings = Block(norm=norm, activation="gelu", mlp=2.0, epsilon=1e-5)
    model = ViT(
        width=WIDTH, depth=2, across="batch", final_norm=False, attention=Softmax(heads=HEADS), block=settings,
        head=Mean(),
    )  # fmt: skip
    network = build(model)
    layer, _ = encoder_layer(network.blocks[0], settings, batch_first=False)
    theirs = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
    for block, own in zip(network.blocks, theirs.layers, strict=True):
        own.load_state_dict(encoder_layer(block, settings, batch_first=False)[0].state_dict())
    pictures = some_pictures(BATCH)
    direction = torch.randn(BATCH, CLASSES, generator=torch.Generator().manual_seed(4))

    def by_torch(pictures: Tensor) -> Tensor:
        tokens = theirs(network.embed(pictures))
        return F.linear(tokens.mean(dim=1), network.head.logits.weight, network.head.logits.bias)

    ours_out, ours_in = run_backward(network, pictures, direction)
    their_out, their_in = run_backward(by_torch, pictures, direction)
    compare(ours_out, their_out)
    compare(ours_in, their_in, "gradient at the pictures")
    with torch.inference_mode():
        compare(network.eval()(pictures), by_torch(pictures), "evaluation")


@pytest.mark.parametrize("bias", [True, False])
def test_softmax_attention_and_its_map_are_torchs(bias: bool) -> None:
    torch.manual_seed(1)
    mixer = Softmax(heads=HEADS, bias=bias).build(WIDTH, Layout(0, (Grid(3, 3),)))
    shake(mixer)
    assert isinstance(mixer, SoftmaxMixer)
    theirs = nn.MultiheadAttention(WIDTH, HEADS, bias=bias, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(mixer.qkv.weight)
        theirs.out_proj.weight.copy_(mixer.out.weight)
        if bias:
            theirs.in_proj_bias.copy_(mixer.qkv.bias)
            theirs.out_proj.bias.copy_(mixer.out.bias)
        else:
            mixer.out.bias.zero_()
    tokens, direction = torch.randn(2, BATCH, TOKENS, WIDTH).unbind()
    ours_out, ours_in = run_backward(mixer, tokens, direction)
    given = tokens.clone().requires_grad_()
    output, weights = theirs(given, given, given, average_attn_weights=False)
    (output * direction).sum().backward()
    compare(ours_out, output.detach())
    compare(ours_in, given.grad, "gradient at the tokens")
    compare(mixer.qkv.weight.grad, theirs.in_proj_weight.grad, "gradient of qkv")
    compare(mixer.map(tokens), weights, "map")


def test_softmax_attention_is_the_functional_form_for_a_scale_of_the_whole_width() -> None:
    torch.manual_seed(2)
    mixer = Softmax(heads=HEADS, scale="width", project=False).build(WIDTH, Layout(0, (Grid(3, 3),)))
    shake(mixer)
    tokens = torch.randn(BATCH, TOKENS, WIDTH)
    weight, bias = mixer.qkv.weight.detach().clone(), mixer.qkv.bias.detach().clone()
    # torch divides by √e: queries shrunk by √(e / d) make that √d.
    weight[:WIDTH] *= HEADS**-0.5
    bias[:WIDTH] *= HEADS**-0.5
    places_first = tokens.transpose(0, 1)
    output, weights = F.multi_head_attention_forward(
        places_first, places_first, places_first, WIDTH, HEADS, weight, bias, None, None, False, 0.0,
        torch.eye(WIDTH), None, average_attn_weights=False,
    )  # fmt: skip
    compare(mixer(tokens), output.transpose(0, 1))
    compare(mixer.map(tokens), weights, "map")
