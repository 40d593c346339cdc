"""The CIFAR-10 model that ships: two minutes of one GPU.

vitlab train cifar10-light · 96.58 % of the 10,000 test pictures, one seed, 132 s on one NVIDIA H200
(results/records/cifar10-light.json). 87 % of its arithmetic is attention and MLPs. Its weights take less than 15 MB in
half precision.
"""

from vitlab.data import Cifar10
from vitlab.data.augment import Augment
from vitlab.data.prepared import Data
from vitlab.engine.optimisers import Muon, Schedule
from vitlab.experiment import Experiment, Testing, Training
from vitlab.model import ViT
from vitlab.model.attention import Softmax
from vitlab.model.blocks import Block
from vitlab.model.heads import Mean
from vitlab.model.positions import Rotary
from vitlab.model.tokens import HalvingStem
from vitlab.objectives.supervised import Supervised

recipe = Experiment(
    data=Data(source=Cifar10(), validation=0.0),
    augment=Augment(flip=True, crop=4, trivial=True),
    model=ViT(
        width=256,
        depth=9,
        tokens=HalvingStem(patch=4, channels=48, again=1),
        positions=Rotary(table=True),
        attention=Softmax(heads=4, bias=False, qk_norm=True, lean=True),
        block=Block(norm_kind="rms", shift=8, lean=True, stochastic_depth=0.1),
        head=Mean(),
        start="zero",
    ),
    objective=Supervised(label_smoothing=0.1, cutmix=1.0, mixed=0.5),
    training=Training(
        epochs=160,
        batch=1000,
        clip=0.0,
        ema=0.998,
        compile=True,
        graph=True,
        measure=10,
        checkpoint=120,
        optimiser=Muon(learning_rate=4e-3, matrix_rate=0.056, weight_decay=0.03, filters=True),
        schedule=Schedule(warmup=2),
    ),
    testing=Testing(mirror=True),
)
