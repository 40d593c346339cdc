"""What the loop trains: a network, with what an objective adds to it. A learner gives a loss; nothing loops here."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from vitlab.chance import Chance
from vitlab.model import Network

Change = Callable[[Tensor], Tensor]  # pictures in 0 … 1 → the same, augmented by new draws and normalised


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def all_of_them(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows (v, b, …) of a process's pictures → those of the whole batch, and where its own are among them."""
    return rows, torch.arange(rows.shape[1], device=rows.device)


class Learner(nn.Module):
    measures: ClassVar[tuple[str, ...]] = ()  # what `forward` measures beside the loss
    labelled: ClassVar[bool] = False  # whether it learns from labels; if not, they only serve to judge what it learned

    def __init__(self, network: Network):
        super().__init__()
        self.network = network
        self.stages: tuple[float, ...] = (0.0,)  # shares of training at which batches take on another shape
        self.mean_over_team: Callable[[Tensor], Tensor] = as_it_is  # of means over a process's pictures
        self.gather_over_team: Callable[[Tensor], tuple[Tensor, Tensor]] = all_of_them

    def batch(
        self, pictures: Tensor, labels: Tensor, change: Change, chance: Chance, done: float = 0.0
    ) -> tuple[Tensor, ...]:
        """What `forward` takes, with all that is drawn for it; `done` is the share of training behind it."""
        raise NotImplementedError

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and the sums of `measures` over the pictures."""
        raise NotImplementedError

    def follow(self, done: float) -> None:
        """After a step: move what follows the weights."""

    def check(self, means: Mapping[str, float]) -> None:
        """Refuse to go on where the measures show that nothing is learned any more."""

    def kept(self) -> dict[str, Tensor]:
        """What is worth keeping beside the network, to look at."""
        return {}

    @property
    def evaluated(self) -> Network:
        """The network to judge and to keep."""
        return self.network
