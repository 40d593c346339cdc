"""Report R1: a shallow ViT on MNIST that stops at 90 %, and what each of its mistakes costs.

vitlab reproduce r1-shallow · as written: 90.52 %, mean of 5 seeds on one NVIDIA H200 (results/reports/r1-shallow.json).

Given: 3 blocks with norms before the branches, 4 heads, width 32, patches of 7 by unfold and Linear, ReLU, dropout 0.2
on attention weights and branches, no bias on queries, keys and values, pictures scaled to −1 … 1, Adam at 3e-4, batch
64, 20 epochs, torch's own first weights. Nothing had to be chosen.
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Testing, Training
from vitlab.model import ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import FirstToken
from vitlab.model.positions import NoPositions
from vitlab.model.tokens import LinearPatches
from vitlab.reproduce.plan import Reproduction, Variant, plain_training

recipe = Experiment(
    data=Data(source=Mnist(), validation=0.0, normalise="half"),
    model=ViT(
        width=32,
        depth=3,
        output="softmax",
        start="torch",
        tokens=LinearPatches(patch=7, twice=True),
        positions=NoPositions(),
        attention=Softmax(heads=4, bias=False, scale="width", dropout=0.2),
        block=Block(activation="relu", dropout=0.2, epsilon=1e-5),
        head=FirstToken(),
    ),
    training=plain_training(Training(epochs=20, batch=64, precision="tf32"), learning_rate=3e-4),
    testing=Testing(at_once=64, drop_last=True),
)

LOGITS = ("output=logits",)
POSITIONS = ("twice=no", "positions=learned")
SCALE = ("attention.scale=head-width",)
CLASS_TOKEN = ("head=class-token",)
EVERY_PICTURE = ("drop_last=no",)

reproduction = Reproduction(
    report="R1",
    title="Why does it stop at 90 %?",
    reading="Five slips in one short notebook. A softmax inside the model, and cross-entropy, which takes "
    "another one: the loss cannot fall below 1.46 for ten classes, and the gradient fades as the model "
    "becomes sure. A “position embedding” that is a second Linear of the patch's own pixels, so that nothing "
    "tells the model where a patch lies. Scores divided by the root of the whole width instead of a head's. "
    "The first patch, a corner that is nearly always black, read in place of a class token. And a test loader "
    "that drops the last batch: 9,984 pictures are counted, not 10,000. Each is mended alone, then all "
    "together.",
    variants=(
        Variant("as written", words="all five slips", reported=0.9065),
        Variant("logits", LOGITS, "no softmax before cross-entropy"),
        Variant("positions", POSITIONS, "a learned table in place of the pixels' second Linear"),
        Variant("head's scale", SCALE, "scores divided by √8, not √32"),
        Variant("class token", CLASS_TOKEN, "a class token is read, not the first patch"),
        Variant("mean", ("head=mean",), "the mean of all patches is read, not the first"),
        Variant("every test picture", EVERY_PICTURE, "the last test batch is counted too"),
        Variant(
            "all repairs", (*LOGITS, *POSITIONS, *SCALE, *CLASS_TOKEN, *EVERY_PICTURE), "all five, with a class token"
        ),
    ),
    small=("source=digits", "limit=4000", "epochs=2", "learning_rate=3e-3"),
)
