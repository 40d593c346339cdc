"""Report R2: which patch? The same ViT on MNIST with patches of 2, 4, 7, 14 and 28 pixels.

vitlab reproduce r2-patch · patch 2: 97.00 %, mean of 10 seeds on one NVIDIA H200 (results/reports/r2-patch.json).

Everything that is not the patch is as in r2-width.
"""

from vitlab.recipes import r2_width
from vitlab.reproduce.plan import Claim, Reproduction, Variant

recipe = r2_width.recipe

reproduction = Reproduction(
    report="R2",
    title="Which patch?",
    reading="A patch of 2 gives 196 tokens, a patch of 28 the whole picture as one token. R2 finds 14 best, "
    "and that 2 has trouble learning.",
    variants=tuple(Variant(f"patch {patch}", (f"patch={patch}",)) for patch in (2, 4, 7, 14, 28)),
    claims=(
        Claim("A patch of 14 is best.", "patch 14", ("patch 2", "patch 4", "patch 7", "patch 28")),
        Claim("A patch of 2 has trouble learning: 28 is better.", "patch 28", ("patch 2",)),
    ),
    curve="validation_accuracy",
    seeds=10,
    place=1,
    small=(*r2_width.SMALL, "depth=2"),
)
