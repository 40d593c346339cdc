"""Our fastest on CIFAR-10: half a minute of one GPU.

vitlab train cifar10-fast · 94.12 % on the 10,000 test pictures, mean of 20 seeds, 25.0 s each on one NVIDIA H200
(results/records/cifar10-fast.json). 86 % of its arithmetic is attention and MLPs. Lean blocks over 64 tokens, behind a
stem of small convolutions.
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
from vitlab.model.tokens import HalvingStem
from vitlab.objectives.supervised import Supervised

recipe = Experiment(
    data=Data(source=Cifar10(), validation=0.0),
    augment=Augment(flip=True, crop=2),
    model=ViT(
        width=256,
        depth=8,
        tokens=HalvingStem(patch=4, channels=48, again=1),
        attention=Softmax(bias=False, qk_norm=True, lean=True),
        block=Block(norm_kind="rms", shift=8, lean=True),
        head=Mean(),
        start="zero",
    ),
    objective=Supervised(label_smoothing=0.1, cutmix=1.0, mixed=0.5),
    training=Training(
        epochs=23,
        batch=500,
        clip=0.0,
        ema=0.995,
        compile=True,
        graph=True,
        measure=23,
        optimiser=Muon(learning_rate=3e-3, matrix_rate=0.04, filters=True),
        schedule=Schedule(warmup=1),
    ),
)
