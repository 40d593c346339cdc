"""Report R4's open study: how many blocks? Its ViT on CIFAR-10, mended and improved, with 2 to 8.

vitlab reproduce r4-depth · 2 blocks: 59.83 %, mean of 3 seeds on one NVIDIA H200 (results/reports/r4-depth.json).

Everything that is not the number of blocks is as in r4-patch.
"""

from vitlab.recipes import r4_patch
from vitlab.reproduce.plan import Claim, Reproduction, Variant

recipe = r4_patch.recipe

reproduction = Reproduction(
    report="R4",
    title="How many blocks?",
    reading="R4 expects 6 blocks to suffice and more to risk overfitting.",
    variants=tuple(Variant(f"{depth} blocks", (f"depth={depth}",)) for depth in (2, 4, 6, 8)),
    claims=(Claim("6 blocks suffice: 8 are no better.", "6 blocks", ("8 blocks",)),),
    seeds=3,
    place=3,
    small=r4_patch.SMALL,
)
