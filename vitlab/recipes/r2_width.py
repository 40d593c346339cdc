"""Report R2: which width? A pre-norm ViT on MNIST with 16, 32, 64 and 128 features.

vitlab reproduce r2-width · width 16: 95.88 %, mean of 10 seeds on one NVIDIA H200 (results/reports/r2-width.json).

Given: norms before the branches, GELU, class token, sinusoidal positions. Chosen here, the same for R2's three
studies: patches of 7, 4 blocks, 4 heads, width 32 where it is not studied, MLP of 4 widths, Adam at 1e-3, batch 128,
10 epochs, no schedule, no dropout; a tenth of the training pictures is held out for the curves.
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.positions import Sinusoidal1d
from vitlab.model.tokens import ConvPatches
from vitlab.reproduce.plan import Claim, Reproduction, Variant, plain_training

recipe = Experiment(
    data=Data(source=Mnist(), validation=0.1),
    model=ViT(width=32, depth=4, tokens=ConvPatches(patch=7), positions=Sinusoidal1d()),
    training=plain_training(Training(epochs=10, batch=128, precision="tf32"), learning_rate=1e-3),
)

SMALL = ("source=digits", "limit=1000", "epochs=3", "batch=32")

reproduction = Reproduction(
    report="R2",
    title="Which width?",
    reading="R2 compares widths by single runs and their curves, and finds 32 best and 128 worse than the others.",
    variants=tuple(Variant(f"width {width}", (f"width={width}",)) for width in (16, 32, 64, 128)),
    claims=(
        Claim("A width of 32 is best.", "width 32", ("width 16", "width 64", "width 128")),
        Claim("A width of 128 is worse than 64.", "width 64", ("width 128",)),
    ),
    curve="validation_accuracy",
    seeds=10,
    small=SMALL,
)
