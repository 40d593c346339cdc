"""Who is compared: each library as its documents use it, on the same shape."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from vitlab.bench.reports import ReportTransformer
from vitlab.bench.settings import DECAY, RATE
from vitlab.bench.shapes import Work
from vitlab.engine.optimisers import AdamW
from vitlab.foreign import foreign

LIBRARY = "vitlab"
REPORTS = "the reports' style"


@dataclass(frozen=True)
class Contender:
    """A way to build the shape and its optimiser; `note` says where the library cannot do the very same."""

    name: str
    build: Callable[[Work], nn.Module]
    optimise: Callable[[nn.Module], torch.optim.Optimizer]
    note: Callable[[Work], str]
    package: str = "torch"  # what must be installed
    tuned: bool = True  # also run at its best setting

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None


class TorchEncoder(nn.Module):
    """nn.TransformerEncoder (batch_first) between a patch convolution and a Linear."""

    def __init__(self, work: Work):
        super().__init__()
        self.mean = work.reads == "mean"
        self.patches = nn.Conv2d(work.picture.channels, work.width, work.patch, stride=work.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, work.width)) if work.class_token else None
        self.positions = nn.Parameter(torch.randn(1, work.tokens, work.width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            work.width, work.heads, work.hidden, dropout=0.0, activation="gelu", batch_first=True,
            norm_first=work.norm == "before",
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, work.depth, nn.LayerNorm(work.width), enable_nested_tensor=False)
        self.logits = nn.Linear(work.width, work.classes)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.patches(pictures).flatten(2).transpose(1, 2)
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1)
        tokens = self.encoder(tokens + self.positions)
        return self.logits(tokens.mean(dim=1) if self.mean else tokens[:, 0])


class LogitsOf(nn.Module):
    """A transformers model, whose output object holds the logits."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, pictures: Tensor) -> Tensor:
        return self.model(pixel_values=pictures).logits


def build_vitlab(work: Work) -> nn.Module:
    return work.settings().build(work.picture, work.classes)


def build_timm(work: Work) -> nn.Module:
    return foreign("timm.models.vision_transformer").VisionTransformer(
        img_size=work.picture.height,
        patch_size=work.patch,
        in_chans=work.picture.channels,
        num_classes=work.classes,
        embed_dim=work.width,
        depth=work.depth,
        num_heads=work.heads,
        mlp_ratio=work.hidden / work.width,
        class_token=work.class_token,
        global_pool="token" if work.class_token else "avg",
    )


def build_lucidrains(work: Work) -> nn.Module:
    return foreign("vit_pytorch").ViT(
        image_size=work.picture.height,
        patch_size=work.patch,
        channels=work.picture.channels,
        num_classes=work.classes,
        dim=work.width,
        depth=work.depth,
        heads=work.heads,
        dim_head=work.width // work.heads,
        mlp_dim=work.hidden,
        pool="cls" if work.class_token else "mean",
    )


def build_transformers(work: Work) -> nn.Module:
    library = foreign("transformers")
    config = library.ViTConfig(
        image_size=work.picture.height,
        patch_size=work.patch,
        num_channels=work.picture.channels,
        hidden_size=work.width,
        num_hidden_layers=work.depth,
        num_attention_heads=work.heads,
        intermediate_size=work.hidden,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=work.classes,
        attn_implementation="sdpa",
    )
    return LogitsOf(library.ViTForImageClassification(config))


def plain_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)


def fused_adamw(model: nn.Module) -> torch.optim.Optimizer:
    """What transformers' Trainer takes by default, and every library at its best."""
    return torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY, fused=True)


def timm_adamw(model: nn.Module) -> torch.optim.Optimizer:
    return foreign("timm.optim").create_optimizer_v2(model, opt="adamw", lr=RATE, weight_decay=DECAY)


def plain_adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=3e-4)


CONTENDERS = (
    Contender(LIBRARY, build_vitlab, lambda model: AdamW(RATE, DECAY).build(model)[0], lambda work: ""),
    Contender(
        "vit-pytorch", build_lucidrains, plain_adamw, package="vit-pytorch",
        note=lambda work: "no bias on q, k, v; two more norms at the patches; explicit softmax" + pre_norm(work),
    ),
    Contender(
        "timm", build_timm, timm_adamw, package="timm",
        note=lambda work: "fused attention" + "; reads the mean" * (work.reads == "first token") + pre_norm(work),
    ),
    Contender(
        "transformers", build_transformers, fused_adamw, package="transformers",
        note=lambda work: "sdpa" + ("" if work.class_token else "; insists on a class token") + pre_norm(work),
    ),
    Contender("nn.TransformerEncoder", TorchEncoder, plain_adamw, lambda work: "batch_first"),
    Contender(
        REPORTS, ReportTransformer, plain_adam, tuned=False,
        note=lambda work: "a list of single heads, explicit softmax, no bias on q, k, v; Adam",
    ),
)  # fmt: skip


def pre_norm(work: Work) -> str:
    return "; norm before, as the library has no norm after the sum" if work.norm == "after" else ""
