"""Supervised learning: cross-entropy with label smoothing, mixup and cutmix."""

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.errors import BadInput


@dataclass(frozen=True)
class Supervised:
    """loss = −Σ y log softmax(f(x)), with smoothed (Szegedy et al., 2016) and mixed targets y."""

    kind: ClassVar[str] = "supervised"
    label_smoothing: float = 0.0  # share of the target spread over all classes
    mixup: float = 0.0  # Beta parameter of x ← λx + (1−λ)x′ (Zhang et al., 2018); 0: none
    cutmix: float = 0.0  # Beta parameter of pasting a rectangle of x′ into x (Yun et al., 2019); 0: none
    mixed: float = 1.0  # share of batches that are mixed, where mixup or cutmix is on

    def __post_init__(self) -> None:
        if self.mixup < 0 or self.cutmix < 0:
            raise BadInput(f"mixup and cutmix must be 0 or more, not {self.mixup} and {self.cutmix}")
        if not (0 <= self.label_smoothing < 1 and 0 <= self.mixed <= 1):
            raise BadInput(f"label_smoothing and mixed are shares, not {self.label_smoothing} and {self.mixed}")

    def loss(self, model: nn.Module, pictures: Tensor, labels: Tensor, chance: Chance) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and how many of its pictures were read right (by their larger label)."""
        mixed, share = self.mix(pictures, chance)
        logits = model(mixed).float()
        # λ·loss(y) + (1−λ)·loss(y′); the partner of a picture is its mirror in the batch.
        loss = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
        major = labels
        if share < 1:
            partner = labels.flip(0)
            loss = share * loss + (1 - share) * F.cross_entropy(logits, partner, label_smoothing=self.label_smoothing)
            major = labels if share >= 0.5 else partner
        return loss, (logits.detach().argmax(dim=-1) == major).sum()

    def mix(self, pictures: Tensor, chance: Chance) -> tuple[Tensor, float]:
        """Mix each picture with its mirror in the batch; returns the share λ that stayed its own."""
        kinds = [name for name in ("mixup", "cutmix") if getattr(self, name)]
        if not kinds or chance.host.random() >= self.mixed:
            return pictures, 1.0
        kind = kinds[chance.host.integers(len(kinds))]
        share = float(chance.host.beta(*[getattr(self, kind)] * 2))
        if kind == "mixup":
            return share * pictures + (1 - share) * pictures.flip(0), share
        return cut_and_paste(pictures, share, chance)


def cut_and_paste(pictures: Tensor, share: float, chance: Chance) -> tuple[Tensor, float]:
    """Paste one rectangle of (1 − share) of the area, cut off at the edge; returns the share really left."""
    height, width = pictures.shape[-2:]
    side, (centre_y, centre_x) = (1 - share) ** 0.5, chance.host.random(2)
    top, bottom = (round(min(max(centre_y + half, 0), 1) * height) for half in (-side / 2, side / 2))
    left, right = (round(min(max(centre_x + half, 0), 1) * width) for half in (-side / 2, side / 2))
    mixed = pictures.clone()
    mixed[..., top:bottom, left:right] = pictures.flip(0)[..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)


Objective = Supervised
