"""Parts of pictures, shown or hidden: the cells of the coarsest grid, the patches in each, and windows of cells."""

import torch
from einops import rearrange
from torch import Tensor, nn

from vitlab.chance import uniform
from vitlab.errors import BadInput
from vitlab.model import Network, VisionTransformer
from vitlab.model.attention import LinformerMixer, LocalityMixer
from vitlab.model.blocks import Shift
from vitlab.model.layout import Grid, Layout


def able_to_see_parts(network: Network, why: str, *, apart: bool) -> VisionTransformer:
    """The network, if it can be given some patches of a picture alone, side by side or `apart`; else why not."""
    if not isinstance(network, VisionTransformer):
        raise BadInput(f"{why}, and a multi-scale model has several sequences of them: use model=vit")
    if network.across == "batch":
        raise BadInput(f"{why}, and across=batch mixes pictures place by place: use across=tokens")
    for part in network.modules():
        if isinstance(part, LinformerMixer):
            raise BadInput(f"{why}, and linformer's projections are made for all of them: choose another attention")
        if apart and isinstance(part, Shift):
            raise BadInput(f"{why}, and shift takes features from neighbours that may be hidden: use shift=0")
    extra, read = network.layout.extra, network.head.read
    if network.layout.patches > 1 and (read.start, read.stop) == (extra, extra + 1):
        raise BadInput(f"{why}, and the first may be hidden, which head=first-token reads: use class-token or mean")
    return network


class Cells(nn.Module):
    """A picture's cells: the patches in each, as places in the sequence, and its pixels."""

    members: Tensor

    def __init__(self, layout: Layout, height: int, width: int):
        super().__init__()
        self.grid = min(layout.grids, key=lambda grid: grid.tokens)
        if height % self.grid.rows or width % self.grid.columns:
            raise BadInput(
                f"patches are hidden in whole pixels, and tokens lie in {self.grid.rows}×{self.grid.columns} patches "
                f"on pictures of {height}×{width}: choose another size to resize to, or another patch"
            )
        self.size = (height // self.grid.rows, width // self.grid.columns)
        places = torch.arange(layout.extra + layout.patches) - layout.extra
        inside = [
            self.by_cell(places, fine) for places, fine in zip(layout.on_grids(places), layout.grids, strict=True)
        ]
        self.register_buffer("members", torch.cat(inside, dim=1), persistent=False)  # (cells, patches of a cell)

    def check(self, network: VisionTransformer, shown: int) -> None:
        """Refuse to show so few cells that a token may have no other to look at."""
        tokens = network.layout.extra + shown * self.members.shape[1]
        if tokens < 2 and any(isinstance(part, LocalityMixer) for part in network.modules()):
            raise BadInput(
                "attention locality masks a token's own place, and one patch alone would be shown: show more"
            )

    def __len__(self) -> int:
        return self.grid.tokens

    def by_cell(self, places: Tensor, fine: Grid) -> Tensor:
        """Places on a finer grid (rows, columns) → (cells, those in each)."""
        if fine.rows % self.grid.rows or fine.columns % self.grid.columns:
            raise BadInput(
                f"patches are hidden in whole cells, and a grid of {fine.rows}×{fine.columns} does not lie evenly in "
                f"one of {self.grid.rows}×{self.grid.columns}: choose patches that divide each other"
            )
        return rearrange(places, "(r y) (c x) -> (r c) (y x)", r=self.grid.rows, c=self.grid.columns)

    def patches(self, cells: Tensor) -> Tensor:
        """The patches in these cells (b, m), as places (b, m · patches of a cell)."""
        return self.members[cells].flatten(1)

    def show(self, pictures: Tensor, cells: Tensor) -> Tensor:
        """The pictures with all but these cells (b, m) at 0, so that no tokenizer can read of the others."""
        shown = pictures.new_zeros(len(cells), len(self)).scatter(1, cells, 1.0)
        tall, wide = self.size
        mask = shown.unflatten(1, (1, self.grid.rows, self.grid.columns))
        return pictures * mask.repeat_interleave(tall, dim=2).repeat_interleave(wide, dim=3)

    def cut(self, pictures: Tensor) -> Tensor:
        """(b, c, y, x) → (b, cells, pixels of a cell and their channels)."""
        tall, wide = self.size
        return rearrange(pictures, "b c (r p) (s q) -> b (r s) (p q c)", p=tall, q=wide)

    def join(self, pixels: Tensor, rows: int | None = None) -> Tensor:
        """The inverse of `cut`; `rows` is the height in cells, if only a window of cells is given."""
        tall, wide = self.size
        return rearrange(pixels, "b (r s) (p q c) -> b c (r p) (s q)", r=rows or self.grid.rows, p=tall, q=wide)


class Windows(nn.Module):
    """Pictures of fewer patches: these lie where a window of whole cells of a picture does, anywhere in it."""

    room: Tensor
    inside: Tensor

    def __init__(self, network: VisionTransformer, side: float):
        """For this network; `side` is that of a window, in sides of the picture."""
        super().__init__()
        layout, shape = network.layout, network.shape
        self.cells = Cells(layout, shape.height, shape.width)
        grid = self.cells.grid
        self.rows, self.columns = max(round(side * grid.rows), 1), max(round(side * grid.columns), 1)
        self.size = self.rows * self.cells.size[0], self.columns * self.cells.size[1]  # in pixels
        self.cells.check(network, self.rows * self.columns)
        # Kept on the device: to send them there anew would make each step wait for the one before.
        room = torch.tensor([[grid.rows - self.rows + 1], [grid.columns - self.columns + 1]])
        first = torch.arange(self.rows)[:, None] * grid.columns + torch.arange(self.columns)
        self.register_buffer("room", room, persistent=False)  # places for its first row and column
        self.register_buffer("inside", first.flatten(), persistent=False)  # cells of the window in the first corner
        grids = [Grid(self.rows * g.rows // grid.rows, self.columns * g.columns // grid.columns) for g in layout.grids]
        for part in list(network.modules()):
            if isinstance(part, Shift):  # which is made for whole pictures
                part.allow(Layout(layout.extra, tuple(grids)))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """The cells (count, m) of `count` windows, each at a place of its own."""
        top, left = (uniform(generator, 2, count, batch=1) * self.room).long()
        return (top * self.cells.grid.columns + left)[:, None] + self.inside

    def cut(self, pictures: Tensor, cells: Tensor) -> Tensor:
        """What lies in these cells of the pictures: (b, c, y, x) → (b, c, *size)."""
        pixels = self.cells.cut(pictures)
        return self.cells.join(pixels.gather(1, cells.unsqueeze(-1).expand(-1, -1, pixels.shape[-1])), self.rows)

    def places(self, cells: Tensor) -> Tensor:
        """The patches in these cells, in the order in which a tokenizer gives them."""
        return self.cells.patches(cells).sort(dim=1).values
