"""Masked autoencoder: hide most of a picture, encode what is left, and draw the rest."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.chance import Chance, uniform
from vitlab.errors import BadInput
from vitlab.model import Network, VisionTransformer
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block, Stack
from vitlab.model.layout import Grid, Layout
from vitlab.model.positions import sinusoids_on
from vitlab.model.vit import initialise
from vitlab.objectives.cells import Cells, able_to_see_parts
from vitlab.objectives.learner import Change, Learner

FLAT = 1e-6  # added to a patch's variance, so that one of a single colour can be divided by it


@dataclass(frozen=True)
class Mae:
    """loss = mean over hidden patches of (drawn(shown patches) − (x − μ) / σ)², μ, σ the patch's (He et al., 2022)."""

    kind: ClassVar[str] = "mae"
    hidden: float = 0.75  # share of the patches that the encoder does not see
    decoder_width: int = 128  # features of a token in the decoder
    decoder_depth: int = 2  # blocks of the decoder
    decoder_heads: int = 4  # heads of the decoder's attention

    def check(self) -> None:
        if not 0 < self.hidden < 1:
            raise BadInput(f"hidden is a share between 0 and 1, not {self.hidden}")
        if self.decoder_width < 4 or self.decoder_width % 4 or self.decoder_depth < 1:
            raise BadInput(
                "the decoder needs a width that 4 divides and a depth of 1 or more, "
                f"not {self.decoder_width} and {self.decoder_depth}"
            )

    def build(self, network: Network) -> "Autoencoder":
        self.check()
        return Autoencoder(self, network)


class Autoencoder(Learner):
    network: VisionTransformer

    def __init__(self, settings: Mae, network: Network):
        super().__init__(able_to_see_parts(network, "objective mae encodes only the patches it is shown", apart=True))
        shape = self.network.shape
        self.cells = Cells(self.network.layout, shape.height, shape.width)
        if len(self.cells) < 2:
            raise BadInput("objective mae shows some patches and hides others, so it needs 2 or more: use smaller ones")
        self.shown = len(self.cells) - min(max(round(settings.hidden * len(self.cells)), 1), len(self.cells) - 1)
        self.cells.check(self.network, self.shown)
        pixels = shape.channels * self.cells.size[0] * self.cells.size[1]
        if pixels < 2:
            raise BadInput(
                "objective mae draws a patch around its mean, and one of a single pixel is its mean: use larger"
            )
        self.decoder = Decoder(settings, self.network.width, self.cells.grid, pixels)

    def kept(self) -> dict[str, Tensor]:
        return self.decoder.state_dict()

    def batch(
        self, pictures: Tensor, labels: Tensor, change: Change, chance: Chance, done: float = 0.0
    ) -> tuple[Tensor, ...]:
        """The pictures, and an order (b, cells) of each one's cells: the first are shown, the others hidden."""
        noise = uniform(chance.device, len(pictures), len(self.cells))
        return change(pictures), noise.argsort(dim=1)

    def forward(self, *batch: Tensor) -> tuple[Tensor, Tensor]:
        pictures, order = batch
        wanted = self.cells.cut(pictures).float()
        mean, deviation = statistics(wanted)
        hidden = order[:, self.shown :, None].expand(-1, -1, wanted.shape[-1])
        loss = F.mse_loss(self.drawn(pictures, order).float(), ((wanted - mean) / deviation).gather(1, hidden))
        return loss, loss.new_zeros(0)

    def drawn(self, pictures: Tensor, order: Tensor) -> Tensor:
        """What the decoder draws in the hidden cells, from the others: (b, hidden, pixels)."""
        return self.decoder(self.encode(pictures, order[:, : self.shown]), order)

    def encode(self, pictures: Tensor, shown: Tensor) -> Tensor:
        """The features of these cells (b, m), each the mean of its patches', of a picture with no others."""
        network = self.network
        tokens, turning = network.enter(self.cells.show(pictures, shown), self.cells.patches(shown))
        tokens = network.norm(network.blocks(tokens, turning))[:, network.layout.extra :]
        return tokens.unflatten(1, (shown.shape[1], -1)).mean(dim=2)

    def restore(self, pictures: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
        """The pictures as they are shown, and with the hidden cells as drawn, in each cell's own mean and deviation."""
        pixels = self.cells.cut(pictures)
        mean, deviation = statistics(pixels)
        places = order[:, self.shown :, None].expand(-1, -1, pixels.shape[-1])
        guessed = torch.zeros_like(pixels).scatter(1, places, self.drawn(pictures, order).to(pixels.dtype))
        hidden = torch.zeros_like(pixels).scatter(1, places, 1.0)
        restored = torch.where(hidden > 0, guessed * deviation + mean, pixels)
        return self.cells.show(pictures, order[:, : self.shown]), self.cells.join(restored)


class Decoder(nn.Module):
    """Shown cells and blanks for the hidden ones, each with its position, through a few blocks to pixels."""

    places: Tensor

    def __init__(self, settings: Mae, width: int, grid: Grid, pixels: int):
        super().__init__()
        own, layout = settings.decoder_width, Layout(0, (grid,))
        self.enter = nn.Linear(width, own)
        self.blank = nn.Parameter(torch.empty(own))
        self.register_buffer("places", sinusoids_on(layout, own), persistent=False)
        attention = Softmax(heads=settings.decoder_heads)
        self.blocks = Stack(Block(), settings.decoder_depth, own, attention, layout)
        self.norm = Block().normalise(own)
        self.leave = nn.Linear(own, pixels)
        initialise(self)
        nn.init.trunc_normal_(self.blank, std=0.02)

    def forward(self, encoded: Tensor, order: Tensor) -> Tensor:
        """Features of the shown cells (b, m, d), in `order` (b, cells) → pixels of the others (b, cells − m, p)."""
        tokens = self.enter(encoded)
        count, shown = order.shape[1], tokens.shape[1]
        blanks = self.blank.to(tokens.dtype).expand(len(tokens), count - shown, -1)
        # Attention does not mind the order, so the cells stay in that they were drawn in.
        tokens = torch.cat([tokens, blanks], dim=1) + self.places[order].to(tokens.dtype)
        return self.leave(self.norm(self.blocks(tokens, None, slice(shown, count))))


def statistics(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each cell's pixels (b, cells, p)."""
    return pixels.mean(dim=-1, keepdim=True), (pixels.var(dim=-1, keepdim=True) + FLAT).sqrt()
