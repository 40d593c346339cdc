"""CIFAR-10 without a GPU: ten minutes on two CPU cores.

vitlab train cifar10-small · 89.41 % on the 10,000 test pictures, mean of 3 seeds, 588 s each on two cores of an AMD
EPYC (results/records/cifar10-small.json). A CPU without bfloat16 instructions is faster with precision=float32. A small
ViT of 16 tokens, behind a stem of small convolutions.
"""

from vitlab.data import Cifar10
from vitlab.data.augment import Augment
from vitlab.data.prepared import Data
from vitlab.engine.optimisers import Muon, Schedule
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import Mean
from vitlab.model.positions import Rotary
from vitlab.model.tokens import HalvingStem
from vitlab.objectives.supervised import Supervised

recipe = Experiment(
    data=Data(source=Cifar10(), validation=0.0),
    augment=Augment(flip=True, crop=4),
    model=ViT(
        width=128,
        depth=4,
        tokens=HalvingStem(patch=8, channels=16),
        positions=Rotary(table=True),
        attention=Softmax(heads=2, bias=False, qk_norm=True, lean=True),
        block=Block(norm_kind="rms", shift=8, lean=True),
        head=Mean(),
        start="zero",
    ),
    objective=Supervised(label_smoothing=0.1, cutmix=1.0, mixed=0.25),
    training=Training(
        epochs=24,
        batch=150,
        clip=0.0,
        ema=0.99,
        precision="bfloat16",
        compile=True,
        measure=24,
        optimiser=Muon(learning_rate=2e-3, matrix_rate=0.02, weight_decay=0.05, filters=True),
        schedule=Schedule(warmup=0.2),
    ),
)
