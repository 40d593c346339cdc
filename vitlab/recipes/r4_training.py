"""Report R4's wishes: augmentation, warm-up and a schedule, one at a time, for its ViT on CIFAR-10, mended.

vitlab reproduce r4-training · mended: 69.75 %, mean of 3 seeds on one NVIDIA H200 (results/reports/r4-training.json).

The model is r4-batch's, mended and with sinusoidal positions, without dropout on attention weights, so that the fused
kernels serve; 15 epochs. Flips and crops with 4 pixels of padding; 2 epochs of warm-up; a cosine to 0.
"""

from vitlab.recipes import r4_batch
from vitlab.reproduce.plan import Reproduction, Variant
from vitlab.settings import override

recipe = override(r4_batch.recipe, [*r4_batch.TOKENS, *r4_batch.SINUSOIDAL, "attention.dropout=0", "epochs=15"])

AUGMENTATION = ("flip=yes", "crop=4")
WARMUP = ("warmup=2",)
SCHEDULE = ("decay=cosine",)
# The small version: few digits and a high rate, so that there is overfitting and noise to mend; a digit is no mirror's.
HARDER = ("block.dropout=0", "hidden_dropout=0", "limit=1000", "epochs=14", "batch=10", "learning_rate=2.5e-3")
GENTLE = ("flip=no", "crop=1")

reproduction = Reproduction(
    report="R4",
    title="The improvements R4 names",
    reading="R4 asks for data augmentation and for learning-rate warm-up or scheduling, and tries neither.",
    variants=(
        Variant("mended", words="r4-batch mended, sinusoidal"),
        Variant("augmentation", AUGMENTATION, "flips and shifted crops", small=GENTLE),
        Variant("warm-up", WARMUP, "two epochs from 0"),
        Variant("schedule", SCHEDULE, "cosine to 0"),
        Variant("warm-up, schedule", (*WARMUP, *SCHEDULE)),
        Variant("all three", (*AUGMENTATION, *WARMUP, *SCHEDULE), small=GENTLE),
    ),
    seeds=3,
    place=1,
    small=(*r4_batch.SMALL, *HARDER),
)
