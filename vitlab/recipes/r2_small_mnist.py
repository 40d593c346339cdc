"""Report R2's way on: stochastic depth, dropout, SPT and LSA on 1 %, 10 % and 100 % of MNIST.

vitlab reproduce r2-small-mnist · 1 %, plain: 62.87 %, mean of 3 seeds on one NVIDIA H200
(results/reports/r2-small-mnist.json).

R2 names these and tries none. Chosen here, the same for every variant: patches of 4, width 64, 4 blocks, 4 heads, norms
before the branches, learned positions, class token; AdamW at 1e-3, decay 0.05, one epoch of warm-up and a cosine, batch
128; 120 epochs of 1 %, 40 of 10 %, 8 of 100 %. Dropout and stochastic depth at 0.1.
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.tokens import LinearPatches
from vitlab.reproduce.plan import Reproduction, Variant

recipe = Experiment(
    data=Data(source=Mnist(), validation=0.0),
    model=ViT(width=64, depth=4, tokens=LinearPatches(patch=4)),
    training=Training(epochs=8, batch=128, graph=True),
)

TECHNIQUES = {
    "plain": ((), ""),
    "dropout": (("block.dropout=0.1", "hidden_dropout=0.1"), "a tenth of each branch and of the MLP's hidden features"),
    "stochastic depth": (("stochastic_depth=0.1",), "branches skipped, up to a tenth in the last block"),
    "SPT": (("tokens=shifted-patches",), "patches of the picture and four shifted copies"),
    "LSA": (("attention=locality",), "own token masked, learned temperature"),
    "SPT + LSA": (("tokens=shifted-patches", "attention=locality"), "both, as their paper has them"),
}


def ablations(pictures: int) -> tuple[Variant, ...]:
    """Every technique on each share of a data set of so many pictures."""
    shares = {
        "1 %": (f"limit={pictures // 100}", "epochs=120", "measure=10"),
        "10 %": (f"limit={pictures // 10}", "epochs=40", "measure=4"),
        "100 %": (),
    }
    small = {"1 %": "limit=300", "10 %": "limit=600", "100 %": "limit=1200"}
    return tuple(
        Variant(name, (*share, *settings), words, group=group, small=(small[group], "epochs=4"))
        for group, share in shares.items()
        for name, (settings, words) in TECHNIQUES.items()
    )


SMALL = ("source=digits", "patch=7", "width=32", "depth=2", "batch=32")

reproduction = Reproduction(
    report="R2",
    title="What helps on small data? MNIST",
    reading="Shifted patch tokens (SPT) show each patch with its surroundings; locality attention (LSA) "
    "forbids a token to look at itself and learns how sharply to look. Dropout and stochastic depth make a "
    "network harder to learn by heart. Each is added alone to one plain ViT, on 600, 6,000 and 60,000 "
    "pictures.",
    variants=ablations(60_000),
    seeds=3,
    place=3,
    small=SMALL,
)
