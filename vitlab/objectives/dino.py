"""Self-distillation: a student learns to say of a part of a picture what a slower copy of it says of the whole."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.data.geometry import cuts
from vitlab.errors import BadInput
from vitlab.model import Network, VisionTransformer
from vitlab.objectives.cells import Windows, able_to_see_parts
from vitlab.objectives.learner import Change, Learner

COLLAPSED = 0.05  # spread of the features below which all pictures look alike to the teacher
EVEN, ONE = 0.995, 0.05  # shares of log(prototypes): a teacher that cannot tell them apart, or that names one for all


@dataclass(frozen=True)
class Dino:
    """loss = −Σ softmax((t(x′) − c) / τ′) log softmax(s(x) / τ), over views x ≠ x′ (Caron et al., 2021).

    The teacher t is the student's running mean and c the running mean of what it says. Two views are large; a small
    one is a picture of fewer patches, which lie where a window of a large one does. Without prototypes the student is
    to find its picture among all of the batch, loss = −log softmax(s(x)·t(x′₁ … x′ᵦ) / τ) (after MoCo v3, Chen et al.,
    2021, without its predictor and its batch norms). τ′ and the weight decay stay as they are set.
    """

    kind: ClassVar[str] = "dino"
    prototypes: int = 1024  # number of prototypes; 0: contrastive loss over the batch, after MoCo v3
    head_width: int = 512  # hidden features of the projection head
    bottleneck: int = 32  # output features of the projection head; with prototypes, more makes small runs collapse
    small_views: int = 4  # small crops, which only the student sees
    small_side: float = 0.5  # side of a small crop, as a share of the picture's
    large: float = 0.4  # least area of a large crop, and most of a small one, as a share of the picture's
    small: float = 0.1  # least area of a small crop
    temperature: float = 0.1  # τ, of the student
    teacher_temperature: float = 0.04  # τ′: below τ, so that the teacher is the surer of the two
    momentum: float = 0.99  # the teacher's EMA momentum at first; it rises to 1
    centre_momentum: float = 0.9  # EMA momentum of the centre c
    frozen: float = 0.05  # share of training in which the prototypes are frozen

    def __post_init__(self) -> None:
        for name in ("momentum", "centre_momentum", "frozen"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"{name} is a share from 0 up to 1, not {getattr(self, name)}")

    def check(self) -> None:
        """What must hold together, once all of it is set."""
        for name in ("prototypes", "head_width", "bottleneck"):
            if getattr(self, name) < 2 and (name != "prototypes" or self.prototypes):
                raise BadInput(f"{name} must be 2 or more, not {getattr(self, name)}")
        if self.small_views < 0:
            raise BadInput(f"small_views must be 0 or more, not {self.small_views}")
        if not 0 < self.small <= self.large <= 1:
            raise BadInput(
                f"small and large are shares of a picture, the first no larger, not {self.small} and {self.large}"
            )
        if self.temperature <= 0 or self.teacher_temperature <= 0:
            raise BadInput(f"temperatures must be above 0, not {self.temperature} and {self.teacher_temperature}")
        if not 0 < self.small_side <= 1:
            raise BadInput(f"small_side is a share above 0 and up to 1, not {self.small_side}")

    def build(self, network: Network) -> "Distillation":
        self.check()
        return Distillation(self, network)


class Distillation(Learner):
    measures = ("teacher_entropy", "variety", "spread")
    network: VisionTransformer
    centre: Tensor

    def __init__(self, settings: Dino, network: Network):
        why = "objective dino shows the student a window of some patches"
        super().__init__(able_to_see_parts(network, why, apart=False))
        self.settings = settings
        self.windows = Windows(self.network, settings.small_side)
        self.head = ProjectionHead(settings, self.network.head.logits.in_features)
        self.teacher = copy.deepcopy(self.network).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.head).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(settings.prototypes))

    def train(self, mode: bool = True) -> "Distillation":
        """The teacher never drops anything."""
        super().train(mode)
        self.teacher.eval()
        return self

    @property
    def evaluated(self) -> Network:
        return self.teacher

    def batch(
        self, pictures: Tensor, labels: Tensor, change: Change, chance: Chance, done: float = 0.0
    ) -> tuple[Tensor, ...]:
        """Large views (2b, …), small views (v·b, …) with the cells (v·b, m) they lie in, and if prototypes move."""
        settings, generator = self.settings, chance.device
        large = [cuts(change(pictures), settings.large, 1.0, generator) for _ in range(2)]
        small, cells = [], []
        for _ in range(settings.small_views):
            cells.append(self.windows.draw(len(pictures), generator))
            small.append(cuts(change(pictures), settings.small, settings.large, generator, self.windows.size))
        moves = torch.tensor(float(done >= settings.frozen)).to(pictures.device, non_blocking=True)
        empty = (pictures[:0], pictures.new_zeros((0, 1), dtype=torch.int64))
        return torch.cat(large), *((torch.cat(small), torch.cat(cells)) if small else empty), moves

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        large, small, cells, moves = batch
        count = len(large) // 2
        seen = [self.network.features(large)]
        if len(small):
            seen.append(self.network.features(small, self.windows.places(cells)))
        student = self.head(torch.cat(seen), moves).float().unflatten(0, (-1, count))
        with torch.no_grad():
            features = self.teacher.features(large)
            teacher = self.teacher_head(features, moves).float().unflatten(0, (2, count))
        loss, targets = self.loss_and_targets(student, teacher)
        with torch.no_grad():
            most = math.log(targets.shape[-1])
            found = torch.stack(
                [entropy(targets).mean() / most, entropy(targets.mean(dim=(0, 1))) / most, spread(features)]
            )
        return loss, found * count

    def loss_and_targets(self, student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and what the teacher says of its views, as shares of prototypes or of the batch's pictures."""
        settings = self.settings
        if not settings.prototypes:
            return tell_apart(student, *self.gather_over_team(teacher), settings.temperature)
        loss, targets = distil(student, teacher, self.centre, settings.temperature, settings.teacher_temperature)
        with torch.no_grad():
            self.centre.lerp_(self.mean_over_team(teacher.mean(dim=(0, 1))), 1 - settings.centre_momentum)
        return loss, targets

    def follow(self, done: float) -> None:
        """t ← m·t + (1 − m)·s, m growing to 1 along a cosine."""
        momentum = 1 - (1 - self.settings.momentum) * (1 + math.cos(math.pi * done)) / 2
        with torch.no_grad():
            for teacher, student in ((self.teacher, self.network), (self.teacher_head, self.head)):
                torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)

    def check(self, means: Mapping[str, float]) -> None:
        """Refuse to go on with a teacher that says the same of every picture."""
        entropy, variety, spread = (means[name] for name in self.measures)
        if spread < COLLAPSED:
            raise Collapsed(
                f"the features of all pictures are the same (spread {spread:.3f}): it has collapsed; "
                "try a lower learning_rate, a longer warmup or a higher momentum"
            )
        if not self.settings.prototypes:  # then the teacher's shares are nobody's aim
            return
        if variety < ONE:
            raise Collapsed(
                f"the teacher names the same prototype for every picture (variety {variety:.3f}): it has collapsed; "
                "try a higher teacher_temperature or a lower centre_momentum"
            )
        if entropy > EVEN:
            raise Collapsed(
                f"the teacher likens every picture to all prototypes alike (entropy {entropy:.3f} of the most): "
                "it has collapsed; try a lower teacher_temperature or a lower learning_rate"
            )


class Collapsed(BadInput):
    """Every picture looks the same: there is nothing more to learn."""


class ProjectionHead(nn.Module):
    """An MLP to a unit vector, and its cosine with each prototype; the vector, where there are none."""

    def __init__(self, settings: Dino, width: int):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, settings.head_width), nn.GELU(),
            nn.Linear(settings.head_width, settings.head_width), nn.GELU(),
            nn.Linear(settings.head_width, settings.bottleneck),
        )  # fmt: skip
        few = settings.prototypes
        self.prototypes = nn.Parameter(torch.randn(few, settings.bottleneck)) if few else None
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, features: Tensor, moves: Tensor) -> Tensor:
        """(b, d) → (b, prototypes); where `moves` is 0, no gradient reaches the prototypes."""
        vectors = F.normalize(self.layers(features), dim=-1)
        if self.prototypes is None:
            return vectors
        prototypes = torch.lerp(self.prototypes.detach(), self.prototypes, moves)
        return F.linear(vectors, F.normalize(prototypes, dim=-1))


def distil(
    student: Tensor, teacher: Tensor, centre: Tensor, temperature: float, teacher_temperature: float
) -> tuple[Tensor, Tensor]:
    """The loss of student outputs (v, b, k) given the teacher's of the first two views, and what these ask for."""
    targets = ((teacher - centre) / teacher_temperature).softmax(dim=-1)
    logs = (student / temperature).log_softmax(dim=-1)
    others = logs.sum(dim=0) - logs[: len(teacher)]  # of every view but the teacher's own
    pairs = len(teacher) * (len(student) - 1)
    return -(targets * others).sum(dim=-1).mean(dim=-1).sum() / pairs, targets


def tell_apart(student: Tensor, teacher: Tensor, own: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The loss of student vectors (v, b, k) of pictures that are `own` (b,) among the teacher's (2, c, k), and shares.

    These (2, b, c) are the teacher's own: how alike it finds each large view and the others of the batch.
    """
    # Autocast makes the products in bfloat16, in which a CPU would go on: whatever follows is made in float32.
    logs = (torch.einsum("vbk, tck -> tvbc", student, teacher).float() / temperature).log_softmax(dim=-1)
    found = logs[..., torch.arange(len(own), device=own.device), own]  # (t, v, b)
    pairs = found.shape[0] * (found.shape[1] - 1)
    own_view = found.diagonal().sum(dim=-1)  # of each teacher's view by the student's of the same
    loss = -(found.sum(dim=(0, 1)) - own_view).mean() / pairs
    with torch.no_grad():
        shares = ((teacher[:, own] @ teacher.flip(0).mT).float() / temperature).softmax(dim=-1)
    return loss, shares


def entropy(shares: Tensor) -> Tensor:
    return torch.special.entr(shares).sum(dim=-1)


def spread(features: Tensor) -> Tensor:
    """The deviation of unit vectors from their mean, 1 where they point everywhere and 0 where all are the same."""
    units = F.normalize(features.float(), dim=-1)
    return (1 - units.mean(dim=0).square().sum()).clamp(min=0).sqrt()
