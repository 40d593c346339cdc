"""The shapes: the work that every contender is given alike."""

from dataclasses import dataclass
from typing import Literal

from vitlab.data.augment import Augment
from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, FirstToken, Head, Mean
from vitlab.model.tokens import ConvPatches

ShapeName = Literal["R1", "R0", "R4", "tiny", "small"]
Reads = Literal["class token", "first token", "mean"]
PADDING = 4
HEADS: dict[Reads, type[Head]] = {"class token": ClassToken, "first token": FirstToken, "mean": Mean}


@dataclass(frozen=True)
class Work:
    """One model's sizes; GELU, learned positions, a norm before the head and no dropout for everyone."""

    name: ShapeName
    picture: Shape
    patch: int
    width: int
    depth: int
    heads: int
    hidden: int
    norm: Literal["before", "after"]
    reads: Reads
    classes: int = 10
    batch: int = 64
    pictures: int = 6400  # in an epoch

    @property
    def class_token(self) -> bool:
        return self.reads == "class token"

    @property
    def patches(self) -> int:
        return (self.picture.height // self.patch) * (self.picture.width // self.patch)

    @property
    def tokens(self) -> int:
        return self.patches + self.class_token

    @property
    def pixels(self) -> int:
        """Numbers in a flattened patch."""
        return self.picture.channels * self.patch**2

    @property
    def augment(self) -> Augment:
        """What an epoch does to its pictures: colour ones are cropped and flipped, as all their users do."""
        return Augment(crop=PADDING, flip=True) if self.picture.channels == 3 else Augment()

    def settings(self) -> ViT:
        """The shape as vitlab's own settings."""
        return ViT(
            width=self.width,
            depth=self.depth,
            tokens=ConvPatches(self.patch),
            attention=Softmax(heads=self.heads),
            block=Block(norm=self.norm, mlp=self.hidden / self.width),
            head=HEADS[self.reads](),
        )

    def __str__(self) -> str:
        token = "class token" if self.class_token else "no class token"
        return (
            f"{self.picture} pictures, patch {self.patch}, {self.tokens} tokens ({token}), width {self.width}, "
            f"depth {self.depth}, {self.heads} heads, MLP {self.hidden}, norm {self.norm}, batch {self.batch}"
        )


DIGIT, COLOUR = Shape(1, 28, 28), Shape(3, 32, 32)
# R0 states neither width nor depth: 64 and 4 are vitlab's choice. R4's step takes long, so its epoch is short.
SHAPES: dict[ShapeName, Work] = {
    "R1": Work("R1", DIGIT, 7, width=32, depth=3, heads=4, hidden=128, norm="before", reads="first token"),
    "R0": Work("R0", DIGIT, 7, width=64, depth=4, heads=4, hidden=256, norm="after", reads="class token"),
    "R4": Work(
        "R4", COLOUR, 4, width=128, depth=6, heads=8, hidden=512, norm="after", reads="class token", pictures=1280
    ),
    "tiny": Work(
        "tiny", COLOUR, 4, width=128, depth=6, heads=8, hidden=512, norm="before", reads="mean",
        batch=1024, pictures=50_000,
    ),
    "small": Work(
        "small", COLOUR, 4, width=384, depth=12, heads=6, hidden=1536, norm="before", reads="mean",
        batch=1024, pictures=50_000,
    ),
}  # fmt: skip
FOR_DEVICE: dict[str, tuple[ShapeName, ...]] = {"cpu": ("R1", "R0", "R4"), "cuda": ("tiny", "small")}
