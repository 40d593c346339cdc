"""CIFAR-10 without labels: six minutes of one GPU.

vitlab train cifar10-dino · a linear probe on its features reads 90.55 % of the 10,000 test pictures, one seed, 332 s on
one NVIDIA H200 (results/records/cifar10-dino.json); k-NN 89.46 %, of the raw pixels 36.21 %. Contrastive: each picture
is to be told from the others of its batch (MoCo v3).
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
from vitlab.objectives import Dino

recipe = Experiment(
    data=Data(source=Cifar10(), validation=0.02),
    augment=Augment(flip=True, colour=0.4, hue=0.1, grey=0.2),
    model=ViT(
        width=256,
        depth=8,
        tokens=HalvingStem(patch=4, channels=48),
        positions=Rotary(table=True),
        attention=Softmax(heads=4, bias=False, qk_norm=True, lean=True),
        block=Block(norm_kind="rms", shift=8, lean=True),
        head=Mean(),
        start="zero",
    ),
    objective=Dino(
        prototypes=0, head_width=1024, bottleneck=128, small_views=2, large=0.25, temperature=0.1, momentum=0.99
    ),
    training=Training(
        epochs=110,
        batch=500,
        clip=0.0,
        compile=True,
        graph=True,
        measure=10,
        checkpoint=1000,
        optimiser=Muon(learning_rate=5e-4, matrix_rate=0.01, weight_decay=0.05, filters=True),
        schedule=Schedule(warmup=2),
    ),
)
