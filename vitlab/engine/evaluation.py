"""Evaluation: every picture once, and what follows from the logits."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from vitlab.data.dataset import Part
from vitlab.data.prepared import unit
from vitlab.engine.modes import float32_products, in_evaluation
from vitlab.errors import BadInput
from vitlab.experiment import Testing
from vitlab.model import Network

UNEVEN = 3  # times as many pictures of the largest class as of the smallest


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Logits (n, classes) and labels (n,), in the order of the part, on the CPU."""

    logits: Tensor
    labels: Tensor

    @cached_property
    def guesses(self) -> Tensor:
        return self.logits.argmax(dim=-1)

    @cached_property
    def probabilities(self) -> Tensor:
        return self.logits.softmax(dim=-1)

    @cached_property
    def losses(self) -> Tensor:
        """Cross-entropy of each picture (n,)."""
        return F.cross_entropy(self.logits, self.labels, reduction="none")

    @property
    def unanswered(self) -> int:
        """How many pictures got an answer that is no number, or is so wrong that its loss is none."""
        return self.count - int((self.logits.isfinite().all(dim=-1) & self.losses.isfinite()).sum())

    @property
    def count(self) -> int:
        return len(self.labels)

    @property
    def correct(self) -> int:
        return int((self.guesses == self.labels).sum())

    @property
    def accuracy(self) -> float:
        return self.correct / self.count if self.count else math.nan

    @property
    def loss(self) -> float:
        return float(self.losses.double().mean())

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.correct, self.count)

    def first_of_each_class(self, most: int) -> list[int]:
        """The place of the first picture of each of the first classes that there are."""
        return [int((self.labels == label).nonzero()[0]) for label in self.labels.unique()[:most]]

    def confusion(self) -> Tensor:
        """Counts (classes, classes): rows truth, columns guess."""
        classes = self.logits.shape[-1]
        return torch.bincount(self.labels * classes + self.guesses, minlength=classes**2).view(classes, classes)

    @property
    def tested(self) -> Tensor:
        """Test pictures of each class (classes,)."""
        return self.confusion().sum(dim=1)

    @property
    def recall(self) -> Tensor:
        """The share of each class's pictures that are told right (classes,); NaN where it has none."""
        return self.confusion().diagonal().double() / self.tested

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have pictures, however many (Brodersen et al., 2010)."""
        return float(self.recall.nanmean())

    @property
    def uneven(self) -> bool:
        """Whether one class has many times the pictures of another, so that accuracy is mostly about the large ones."""
        there = self.tested[self.tested > 0]
        return len(there) > 0 and int(there.max()) >= UNEVEN * int(there.min())

    def calibration(self, bins: int = 10) -> list[tuple[float, float, int]]:
        """(mean confidence, accuracy, count) of each tenth of the confidence scale that holds pictures."""
        confidence = self.probabilities.amax(dim=-1).double()
        place = (confidence * bins).long().clamp(max=bins - 1)
        right = (self.guesses == self.labels).double()
        groups = [place == i for i in range(bins)]
        return [(float(confidence[g].mean()), float(right[g].mean()), int(g.sum())) for g in groups if g.any()]


def checked(given: Evaluation) -> Evaluation:
    """What was read from a file, if it is logits of pictures and their labels; a ValueError says what is wrong."""
    logits, labels = given.logits, given.labels
    if logits.ndim != 2 or not logits.shape[1] or not logits.is_floating_point():
        raise ValueError(f"logits {tuple(logits.shape)} of {logits.dtype}")
    if labels.dtype != torch.int64 or labels.shape != logits.shape[:1]:
        raise ValueError(f"labels {tuple(labels.shape)} of {labels.dtype} for logits {tuple(logits.shape)}")
    if len(labels) and not 0 <= labels.min() <= labels.max() < logits.shape[1]:
        raise ValueError(f"labels from {labels.min()} to {labels.max()} for {logits.shape[1]} classes")
    return given


def in_numbers(found: Evaluation, folder: Path) -> Evaluation:
    """The evaluation, if there is a figure in it: a model that has diverged gives none."""
    if found.unanswered:
        raise BadInput(
            f"what {folder} answers on {found.unanswered} of {found.count} pictures are no numbers, so there is no "
            "figure: it has diverged; try a lower learning_rate, a longer warmup or a smaller clip"
        )
    return found


def wilson(correct: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """95 % interval of a share: (p + z²/2n ± z√(p(1−p)/n + z²/4n²)) / (1 + z²/n) (Wilson, 1927)."""
    if not count:
        return 0.0, 1.0
    share = correct / count
    middle = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max((middle - spread) / scale, 0.0), min((middle + spread) / scale, 1.0)


def counted(pictures: int, testing: Testing) -> int:
    """How many pictures of a part are read."""
    count = pictures // testing.at_once * testing.at_once if testing.drop_last else pictures
    if pictures and not count:
        raise BadInput(f"drop_last leaves none of {pictures} test pictures: make at_once smaller, or turn it off")
    return count


def batches(part: Part, testing: Testing) -> Iterator[tuple[Tensor, Tensor]]:
    """The pictures and labels of a part as they are read, the last and partial batch unless it is to be dropped."""
    read = part.pick(slice(counted(len(part), testing)))
    return zip(read.pictures.split(testing.at_once), read.labels.split(testing.at_once), strict=True)


@torch.inference_mode()
def evaluate_part(
    model: Network,
    part: Part,
    normalise: Callable[[Tensor], Tensor],
    bfloat16: bool,
    testing: Testing | None = None,
) -> Evaluation:
    """Logits of every picture of a part that is read."""
    device = part.pictures.device
    logits, read = [], []
    with in_evaluation(model), float32_products():  # a figure is not rounded by what a caller has chosen
        for pictures, labels in batches(part, testing or Testing()):
            with torch.autocast(device.type, torch.bfloat16, enabled=bfloat16):
                logits.append(model.logits(normalise(unit(pictures))).float())
            read.append(labels)
    return Evaluation(torch.cat(logits).cpu(), torch.cat(read).cpu())
