"""The three shapes of the reports: the work that every contender is given alike."""

from dataclasses import dataclass
from typing import Literal

from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import ClassToken, FirstToken
from vitlab.model.tokens import ConvPatches

ShapeName = Literal["R1", "R0", "R4"]


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
    class_token: bool
    classes: int = 10
    batch: int = 64

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

    def settings(self, activation: Literal["gelu", "relu"] = "gelu") -> ViT:
        """The shape as vitlab's own settings."""
        return ViT(
            width=self.width,
            depth=self.depth,
            tokens=ConvPatches(self.patch),
            attention=Softmax(heads=self.heads),
            block=Block(norm=self.norm, mlp=self.hidden / self.width, activation=activation),
            head=ClassToken() if self.class_token else FirstToken(),
        )

    def __str__(self) -> str:
        token = "class token" if self.class_token else "no class token"
        return (
            f"{self.picture} pictures, patch {self.patch}, {self.tokens} tokens ({token}), width {self.width}, "
            f"depth {self.depth}, {self.heads} heads, MLP {self.hidden}, norm {self.norm}, batch {self.batch}"
        )


# R0 states neither width nor depth: 64 and 4 are vitlab's choice.
SHAPES: dict[ShapeName, Work] = {
    "R1": Work("R1", Shape(1, 28, 28), 7, width=32, depth=3, heads=4, hidden=128, norm="before", class_token=False),
    "R0": Work("R0", Shape(1, 28, 28), 7, width=64, depth=4, heads=4, hidden=256, norm="after", class_token=True),
    "R4": Work("R4", Shape(3, 32, 32), 4, width=128, depth=6, heads=8, hidden=512, norm="after", class_token=True),
}
