"""Report R4's open study: how many heads? Its ViT on CIFAR-10, mended and improved, with 2 to 16.

vitlab reproduce r4-heads · 2 heads: 65.64 %, mean of 3 seeds on one NVIDIA H200 (results/reports/r4-heads.json).

Everything that is not the number of heads is as in r4-patch.
"""

from vitlab.recipes import r4_patch
from vitlab.reproduce.plan import Claim, Reproduction, Variant

recipe = r4_patch.recipe

reproduction = Reproduction(
    report="R4",
    title="How many heads?",
    reading="The width of 128 is shared out among the heads, so more heads are narrower ones and cost no "
    "more weights, though R4 expects them to.",
    variants=tuple(Variant(f"{heads} heads", (f"attention.heads={heads}",)) for heads in (2, 4, 8, 16)),
    claims=(Claim("8 heads are better than 4.", "8 heads", ("4 heads",)),),
    seeds=3,
    place=4,
    small=r4_patch.SMALL,
)
