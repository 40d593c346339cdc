"""Report R4's open study: which patch? Its ViT on CIFAR-10, mended and improved, with 2, 4 and 8 pixels.

vitlab reproduce r4-patch · patch 2: 70.56 %, mean of 3 seeds on one NVIDIA H200 (results/reports/r4-patch.json).

Everything that is not the patch is as in r4-training with all three improvements, but for a batch of 256, a learning
rate of 6e-4 and 10 epochs: a study of sizes, at a quarter of the time.
"""

from vitlab.recipes import r4_batch, r4_training
from vitlab.reproduce.plan import Claim, Reproduction, Variant
from vitlab.settings import override

recipe = override(
    r4_training.recipe,
    [
        *(*r4_training.AUGMENTATION, *r4_training.WARMUP, *r4_training.SCHEDULE),
        *("batch=256", "learning_rate=6e-4", "epochs=10"),
    ],
)

SMALL = (*r4_batch.SMALL, "flip=no", "crop=0")

reproduction = Reproduction(
    report="R4",
    title="Which patch?",
    reading="R4 expects a patch of 4 to balance detail and cost, and leaves the study open.",
    variants=tuple(
        Variant(f"patch {patch}", (f"patch={patch}",), small=(f"patch={small}",))
        for patch, small in ((2, 4), (4, 7), (8, 14))
    ),
    claims=(Claim("A patch of 4 is better than 8.", "patch 4", ("patch 8",)),),
    seeds=3,
    place=2,
    small=SMALL,
)
