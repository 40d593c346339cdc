"""Report R2: how many blocks? The same ViT on MNIST with 2, 4, 6 and 8 blocks.

vitlab reproduce r2-blocks · 2 blocks: 96.62 %, mean of 10 seeds on one NVIDIA H200 (results/reports/r2-blocks.json).

Everything that is not the number of blocks is as in r2-width.
"""

from vitlab.recipes import r2_width
from vitlab.reproduce.plan import Claim, Reproduction, Variant

recipe = r2_width.recipe

reproduction = Reproduction(
    report="R2",
    title="How many blocks?",
    reading="R2 finds 6 blocks best and 8 unstable.",
    variants=tuple(Variant(f"{depth} blocks", (f"depth={depth}",)) for depth in (2, 4, 6, 8)),
    claims=(
        Claim("6 blocks are best.", "6 blocks", ("2 blocks", "4 blocks", "8 blocks")),
        Claim("8 blocks are worse than 6.", "6 blocks", ("8 blocks",)),
    ),
    curve="validation_accuracy",
    seeds=10,
    place=2,
    small=r2_width.SMALL,
)
