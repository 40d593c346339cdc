"""timm's VisionTransformer as a reference, with weights copied from ours."""

import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vitlab.model import Shape, VisionTransformer, ViT
from vitlab.model.heads import ClassToken

try:
    import torchvision  # noqa: F401
except RuntimeError:  # a wheel without compiled operators for this torch: timm calls none, it only wants their names
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    for name in [module for module in sys.modules if module.split(".")[0] == "torchvision"]:
        del sys.modules[name]

from timm.models.vision_transformer import VisionTransformer as Timm


def timm_twin(settings: ViT, shape: Shape, classes: int, ours: VisionTransformer) -> tuple[nn.Module, dict[str, Any]]:
    """timm's model with our weights, and the gradient-taking twin of each of our parameters by its name."""
    block, attention = settings.block, settings.attention
    norm = partial(nn.RMSNorm if block.norm_kind == "rms" else nn.LayerNorm, eps=block.epsilon)
    class_token = isinstance(settings.head, ClassToken)
    twin = Timm(
        img_size=(shape.height, shape.width),
        patch_size=settings.tokens.patch,
        in_chans=shape.channels,
        num_classes=classes,
        global_pool="token" if class_token else "avg",
        class_token=class_token,
        reg_tokens=settings.registers,
        fc_norm=False,
        final_norm=settings.final_norm,
        embed_dim=settings.width,
        depth=settings.depth,
        num_heads=attention.heads,
        mlp_ratio=block.mlp,
        qkv_bias=attention.bias,
        qk_norm=attention.qk_norm,
        init_values=block.layer_scale or None,
        norm_layer=norm,
        act_layer={"gelu": nn.GELU, "relu": nn.ReLU}[block.activation],
    )
    theirs = dict(twin.named_parameters())
    pairs = {}
    for name, parameter in ours.named_parameters():
        if name != "extra":
            pairs[name] = theirs.pop(rename(name))
            copy(parameter, pairs[name])
    prefix = [theirs.pop(name) for name in ("cls_token", "reg_token") if name in theirs]
    if prefix:
        place = 0
        for tokens in prefix:
            copy(ours.extra[place : place + tokens.shape[1]], tokens)
            place += tokens.shape[1]
        pairs["extra"] = prefix
    assert not theirs, f"timm has weights of its own: {sorted(theirs)}"
    return twin, pairs


def rename(name: str) -> str:
    """Our name of a parameter → timm's."""
    for ours, theirs in (
        ("tokens.embed.", "patch_embed.proj."),
        ("positions.table", "pos_embed"),
        ("attention.qkv", "attn.qkv"),
        ("attention.out", "attn.proj"),
        ("attention.normalise_queries", "attn.q_norm"),
        ("attention.normalise_keys", "attn.k_norm"),
        ("mlp.enter", "mlp.fc1"),
        ("mlp.leave", "mlp.fc2"),
        ("norm_attention", "norm1"),
        ("norm_mlp", "norm2"),
        ("end_attention.scale", "ls1.gamma"),
        ("end_mlp.scale", "ls2.gamma"),
        ("head.logits", "head"),
    ):
        name = name.replace(ours, theirs)
    return name


@torch.no_grad()
def copy(ours: Tensor, theirs: Tensor) -> None:
    theirs.copy_(ours.view_as(theirs))


def gradient(twin: Any) -> Tensor:
    """The gradient of one parameter of timm's, or of the prefix tokens in our order."""
    if isinstance(twin, list):
        return torch.cat([tokens.grad[0] for tokens in twin])
    return twin.grad
