"""The reports' own style, as the yardstick: a module per head, explicit softmax, pictures transformed one by one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from vitlab.bench.shapes import Work
from vitlab.data.dataset import Part

Transform = Callable[[Image.Image], Tensor]


class ReportHead(nn.Module):
    """One head with its own three Linears and its softmax written out."""

    def __init__(self, width: int, head_width: int):
        super().__init__()
        self.query = nn.Linear(width, head_width, bias=False)
        self.key = nn.Linear(width, head_width, bias=False)
        self.value = nn.Linear(width, head_width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.query(tokens) @ self.key(tokens).transpose(-2, -1) * tokens.shape[-1] ** -0.5
        return torch.softmax(scores, dim=-1) @ self.value(tokens)


class ReportBlock(nn.Module):
    def __init__(self, work: Work):
        super().__init__()
        self.before = work.norm == "before"
        self.heads = nn.ModuleList(ReportHead(work.width, work.width // work.heads) for _ in range(work.heads))
        self.project = nn.Linear(work.width, work.width)
        self.feed = nn.Sequential(nn.Linear(work.width, work.hidden), nn.GELU(), nn.Linear(work.hidden, work.width))
        self.first_norm, self.second_norm = nn.LayerNorm(work.width), nn.LayerNorm(work.width)

    def attend(self, tokens: Tensor) -> Tensor:
        return self.project(torch.cat([head(tokens) for head in self.heads], dim=-1))

    def forward(self, tokens: Tensor) -> Tensor:
        if self.before:
            tokens = tokens + self.attend(self.first_norm(tokens))
            return tokens + self.feed(self.second_norm(tokens))
        tokens = self.first_norm(tokens + self.attend(tokens))
        return self.second_norm(tokens + self.feed(tokens))


class ReportTransformer(nn.Module):
    """Unfold and Linear, blocks, and the logits of the first token or of the mean."""

    def __init__(self, work: Work):
        super().__init__()
        self.patch, self.mean = work.patch, work.reads == "mean"
        self.embed = nn.Linear(work.pixels, work.width)
        self.token = nn.Parameter(torch.randn(1, 1, work.width)) if work.class_token else None
        self.positions = nn.Parameter(torch.randn(1, work.tokens, work.width) * 0.02)
        self.blocks = nn.Sequential(*(ReportBlock(work) for _ in range(work.depth)))
        self.norm = nn.LayerNorm(work.width)
        self.logits = nn.Linear(work.width, work.classes)

    def forward(self, pictures: Tensor) -> Tensor:
        cut = pictures.unfold(2, self.patch, self.patch).unfold(3, self.patch, self.patch)
        tokens = self.embed(cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2))
        if self.token is not None:
            tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1)
        logits = self.logits(self.norm(self.blocks(tokens + self.positions)))
        return logits.mean(dim=1) if self.mean else logits[:, 0]


class Pictures(Dataset[tuple[Tensor, int]]):
    """A data set as torchvision's MNIST is one: a PIL picture made of the stored array, then the transform."""

    def __init__(self, part: Part, transform: Transform):
        self.arrays = part.pictures[:].permute(0, 2, 3, 1).squeeze(-1).numpy()
        self.labels = part.labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.arrays[place])), int(self.labels[place])


@dataclass(frozen=True)
class Loading:
    """How a DataLoader is told to load."""

    workers: int = 0
    persistent: bool = False  # workers stay from epoch to epoch
    pinned: bool = False  # in memory that a GPU can fetch from by itself

    def __str__(self) -> str:
        return f"{self.workers} {'lasting ' * self.persistent}workers{', pinned' * self.pinned}"


def loader(part: Part, transform: Transform, batch: int, loading: Loading) -> DataLoader[Any]:
    return DataLoader(
        Pictures(part, transform), batch, shuffle=True, drop_last=True, num_workers=loading.workers,
        persistent_workers=loading.persistent, pin_memory=loading.pinned,
    )  # fmt: skip


Learn = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # pictures, labels → loss, logits


def train_epoch(learn: Learn, batches: DataLoader[Any], device: torch.device) -> float:
    """One epoch as the reports write it, loss and accuracy read at every step; returns the accuracy."""
    right, seen, running = 0, 0, 0.0
    for batch in batches:
        pictures, labels = (tensor.to(device) for tensor in batch)
        loss, logits = learn(pictures, labels)
        right += int((logits.argmax(dim=1) == labels).sum())
        seen += len(labels)
        running += loss.item()
    return right / max(seen, 1)
