"""Report R2's way on: stochastic depth, dropout, SPT and LSA on 1 %, 10 % and 100 % of CIFAR-10.

vitlab reproduce r2-small-cifar10 · 1 %, plain: 29.52 %, mean of 3 seeds on one NVIDIA H200
(results/reports/r2-small-cifar10.json).

Everything but the data is as in r2-small-mnist.
"""

from vitlab.recipes import r2_small_mnist
from vitlab.reproduce.plan import Reproduction
from vitlab.settings import override

recipe = override(r2_small_mnist.recipe, ["source=cifar10"])

reproduction = Reproduction(
    report="R2",
    title="What helps on small data? CIFAR-10",
    reading="The same ablations where a plain ViT has most to gain: 500, 5,000 and 50,000 pictures of "
    "CIFAR-10, without augmentation.",
    variants=r2_small_mnist.ablations(50_000),
    seeds=3,
    place=4,
    small=r2_small_mnist.SMALL,
)
