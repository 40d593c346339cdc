"""Report R3: one head, no norms, no positions, no output projection; 40,000 pictures of MNIST, 1000 epochs.

vitlab reproduce r3-bag · as written: 96.11 %, mean of 3 seeds on one NVIDIA H200 (results/reports/r3-bag.json).

Given: one-head attention without output projection, no norms, no positions, class token from N(0, 1), MLP of one width,
40,000 training pictures, 1000 epochs. Chosen here, the same for every variant: patches of 14, width 32, 2 blocks, ReLU,
torch's own first weights, Adam at 1e-3, batch 1000. On held-out pictures patches of 14 came nearest to R3's figure: of
7 they stop near 90 %, of 4 near 70 % (docs/log.md).
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Testing, Training
from vitlab.model import ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.positions import NoPositions
from vitlab.model.tokens import LinearPatches
from vitlab.reproduce.plan import Reproduction, Variant, plain_training

recipe = Experiment(
    data=Data(source=Mnist(), validation=1 / 3),
    model=ViT(
        width=32,
        depth=2,
        final_norm=False,
        start="torch",
        tokens=LinearPatches(patch=14),
        positions=NoPositions(),
        attention=Softmax(heads=1, project=False),
        block=Block(norm="none", activation="relu", mlp=1.0, epsilon=1e-5),
    ),
    training=plain_training(Training(epochs=1000, batch=1000, precision="tf32", measure=10), learning_rate=1e-3),
    testing=Testing(at_once=5000),
)

POSITIONS = ("positions=learned",)
NORMS = ("block.norm=before", "final_norm=yes")
HEADS = ("attention.heads=4",)
PROJECTION = ("project=yes",)

reproduction = Reproduction(
    report="R3",
    title="A bag of patches",
    reading="R3's model is the barest that still attends: without positions it sees which patches there are, "
    "not where they lie. Each part it leaves out is added alone, then one after the other.",
    variants=(
        Variant("as written", words="no positions, norms, heads or projection", reported=0.9461),
        Variant("positions", POSITIONS, "a learned table"),
        Variant("norms", NORMS, "before each branch and before the head"),
        Variant("heads", HEADS, "four heads of 8 in place of one of 32"),
        Variant("projection", PROJECTION, "a Linear after attention"),
        Variant("positions, norms", (*POSITIONS, *NORMS)),
        Variant("positions, norms, heads", (*POSITIONS, *NORMS, *HEADS)),
        Variant("all four", (*POSITIONS, *NORMS, *HEADS, *PROJECTION)),
    ),
    curve="validation_accuracy",
    seeds=3,
    small=("source=digits", "limit=2000", "epochs=60", "batch=500", "measure=20", "learning_rate=2e-3"),
)
