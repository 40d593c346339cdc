"""Report R0: patches of 7 and 14 side by side, joined as written and in two ways that work; MNIST, three epochs.

vitlab reproduce r0-multi-scale · as written: 10.23 %, mean of 5 seeds on one AMD EPYC, 2 cores
(results/reports/r0-multi-scale.json).

Everything that is not the multi-scale design is as in r0-attention.
"""

from vitlab.recipes import r0_attention
from vitlab.reproduce.plan import Claim, Reproduction, Variant
from vitlab.settings import override

recipe = override(r0_attention.recipe, ["model=multi-scale", "join=late-class-token"])

reproduction = Reproduction(
    report="R0",
    title="Two patch sizes at once",
    reading="Two stacks of blocks run side by side, one on patches of 7 and one on patches of 14, each with "
    "half the heads. As written, a class token is put in front of the tokens of both after the last block, "
    "normalised and read: it has met no patch, so the output is the same for every picture and the accuracy "
    "is that of always naming one class. The 98.71 % the report gives cannot come from this design. Two joins "
    "that see: the mean over all tokens, and one more block in which the class token attends to them.",
    variants=(
        Variant("as written", words="class token joined on last", reported=0.9871),
        Variant("mean", ("join=mean",), "mean over the tokens of both scales"),
        Variant("class attention", ("join=class-attention",), "one more block with a class token over both scales"),
        Variant("one scale", ("model=vit", "patch=7"), "the vanilla ViT of r0-attention", 0.9866),
    ),
    claims=(
        Claim("Two scales are better than one (joined by the mean).", "mean", ("one scale",)),
        Claim("Two scales are better than one (joined by class attention).", "class attention", ("one scale",)),
    ),
    place=1,
    small=r0_attention.reproduction.small,
)
