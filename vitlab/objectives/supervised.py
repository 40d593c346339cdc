"""Supervised learning: cross-entropy with label smoothing, mixup and cutmix, of parts of pictures first."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.chance import Chance
from vitlab.errors import BadInput
from vitlab.model import Network
from vitlab.objectives.cells import Windows, able_to_see_parts
from vitlab.objectives.learner import Change, Learner

Model = Callable[[Tensor], Tensor]  # pictures → logits


@dataclass(frozen=True)
class Supervised:
    """loss = −Σ y log softmax(f(x)), with smoothed (Szegedy et al., 2016) and mixed targets y."""

    kind: ClassVar[str] = "supervised"
    label_smoothing: float = 0.0  # share of the target spread over all classes
    mixup: float = 0.0  # Beta parameter of x ← λx + (1−λ)x′ (Zhang et al., 2018); 0: none
    cutmix: float = 0.0  # Beta parameter of pasting a rectangle of x′ into x (Yun et al., 2019); 0: none
    mixed: float = 1.0  # share of batches that are mixed, where mixup or cutmix is on
    mixed_until: float = 1.0  # share of training after which no batch is mixed any more
    window: float = 1.0  # show only a square part at first: its side as a share of the picture's; 1: the whole
    window_until: float = 0.5  # share of training after which whole pictures are shown

    def __post_init__(self) -> None:
        if self.mixup < 0 or self.cutmix < 0:
            raise BadInput(f"mixup and cutmix must be 0 or more, not {self.mixup} and {self.cutmix}")
        if not 0 <= self.label_smoothing < 1:
            raise BadInput(f"label_smoothing is a share from 0 up to 1, not {self.label_smoothing}")
        if not (0 <= self.mixed <= 1 and 0 <= self.mixed_until <= 1):
            raise BadInput(f"mixed and mixed_until are shares, not {self.mixed} and {self.mixed_until}")
        if not (0 <= self.window <= 1 and 0 <= self.window_until <= 1):
            raise BadInput(f"window and window_until are shares, not {self.window} and {self.window_until}")

    def build(self, network: Network) -> "Classifier":
        if not self.window:
            raise BadInput("window must be above 0: it is the side of what is seen of each picture at first")
        return Classifier(self, network)

    @property
    def mixes(self) -> bool:
        return bool((self.mixup or self.cutmix) and self.mixed)

    def draw(self, height: int, width: int, chance: Chance, done: float = 0.0) -> Tensor:
        """What one batch is mixed by, `done` being the share of training behind it: six numbers, on the host.

        λ of mixup, the share of a picture that stays its own, and the top, bottom, left and right of what is pasted.
        """
        kinds = [name for name in ("mixup", "cutmix") if getattr(self, name)]
        if not kinds or chance.host.random() >= self.mixed or done >= self.mixed_until:
            return torch.tensor([1.0, 1.0, 0, 0, 0, 0])
        kind = kinds[chance.host.integers(len(kinds))]
        share = float(chance.host.beta(*[getattr(self, kind)] * 2))
        if kind == "mixup":
            return torch.tensor([share, share, 0, 0, 0, 0])
        # One rectangle of (1 − share) of the area, cut off at the edge.
        side, (centre_y, centre_x) = (1 - share) ** 0.5, chance.host.random(2)
        top, bottom = (round(min(max(centre_y + half, 0), 1) * height) for half in (-side / 2, side / 2))
        left, right = (round(min(max(centre_x + half, 0), 1) * width) for half in (-side / 2, side / 2))
        left_over = 1 - (bottom - top) * (right - left) / (height * width)
        return torch.tensor([1.0, left_over, top, bottom, left, right])

    def loss(self, model: Model, pictures: Tensor, labels: Tensor, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of a batch, and how many of its pictures were read right (by their larger label)."""
        if not self.mixes:
            logits = model(pictures).float()
            loss = F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)
            return loss, (logits.detach().argmax(dim=-1) == labels).sum()
        logits = model(mix(pictures, drawn)).float()
        # λ·loss(y) + (1−λ)·loss(y′); the partner of a picture is its mirror in the batch.
        share, partner = drawn[1], labels.flip(0)
        own, other = (F.cross_entropy(logits, y, label_smoothing=self.label_smoothing) for y in (labels, partner))
        major = torch.where(share >= 0.5, labels, partner)
        return share * own + (1 - share) * other, (logits.detach().argmax(dim=-1) == major).sum()


class Classifier(Learner):
    measures, labelled = ("accuracy",), True

    def __init__(self, settings: Supervised, network: Network):
        super().__init__(network)
        self.settings, self.windows = settings, None
        if settings.window < 1 and settings.window_until:
            why = "window shows some patches of each picture"
            self.windows = Windows(able_to_see_parts(network, why, apart=False), settings.window)
            self.stages = (0.0, settings.window_until) if settings.window_until < 1 else (0.0,)

    def batch(
        self, pictures: Tensor, labels: Tensor, change: Change, chance: Chance, done: float = 0.0
    ) -> tuple[Tensor, ...]:
        """Pictures, labels and what they are mixed by; of parts of pictures, the places (b, m) of their patches too."""
        seen, places = change(pictures), list[Tensor]()
        if self.windows is not None and done < self.settings.window_until:
            cells = self.windows.draw(len(pictures), chance.device)
            seen, places = self.windows.cut(seen, cells), [self.windows.places(cells)]
        height, width = seen.shape[-2:]
        drawn = self.settings.draw(height, width, chance, done)
        return seen, labels, drawn.to(pictures.device, non_blocking=True), *places

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        pictures, labels, drawn, *places = batch
        model = partial(self.network, places=places[0]) if places else self.network
        loss, correct = self.settings.loss(model, pictures, labels, drawn)
        return loss, correct.unsqueeze(0)


def mix(pictures: Tensor, drawn: Tensor) -> Tensor:
    """Blend each picture with its mirror in the batch, and paste the mirror's rectangle."""
    blend, _, top, bottom, left, right = drawn.unbind()
    y = torch.arange(pictures.shape[-2], device=pictures.device).unsqueeze(-1)
    x = torch.arange(pictures.shape[-1], device=pictures.device)
    inside = (y >= top) & (y < bottom) & (x >= left) & (x < right)
    mirror = pictures.flip(0)
    return torch.where(inside, mirror, torch.lerp(mirror, pictures, blend))
