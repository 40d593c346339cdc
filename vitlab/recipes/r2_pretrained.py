"""Report R2: pretrained or from scratch, small or base, pictures resized or model adapted, on 500 labels of MNIST.

vitlab reproduce r2-pretrained · MNIST, small, from scratch: 62.24 %, mean of 3 seeds on two CPU cores
(results/reports/r2-pretrained.json).

R2 takes timm's vit_small_patch16_224 and vit_base_patch16_224, pretrained on ImageNet. In their place stand models of
16 tokens, 4 blocks and 4 heads that are pretrained here: small has 48 features, base 96, twice as many, as theirs have.
Chosen here, the same for every variant: learned positions, class token, norms before the branches; first, anew for
each seed, 4 epochs of 10,000 labelled pictures of Fashion-MNIST, of CIFAR-10, or of half of CIFAR-10's classes; then
15 epochs of 500 pictures, all weights, AdamW at 1e-3, one epoch of warm-up and a cosine, batch 50.
"""

from vitlab.data import Mnist
from vitlab.data.prepared import Data
from vitlab.experiment import Experiment, Training
from vitlab.model import ViT
from vitlab.model.tokens import ConvPatches
from vitlab.reproduce.plan import Claim, Reproduction, Variant

recipe = Experiment(
    data=Data(source=Mnist(), validation=0.0, limit=500),
    model=ViT(width=48, depth=4, tokens=ConvPatches(patch=7)),
    training=Training(epochs=15, batch=50),
)

FIRST = ("limit=10000", "epochs=4", "batch=100")
CLOTHES, COLOURS = (*FIRST, "source=fashion-mnist"), (*FIRST, "source=cifar10", "patch=8")
BASE = ("width=96",)
RESIZED = ("tokens=resized-patches", "patch=8", "size=32,32")
KNOWN = (*FIRST, "source=cifar10", "patch=8", "classes=airplane,automobile,bird,cat,deer")
NEW = ("source=cifar10", "patch=8", "classes=dog,frog,horse,ship,truck")
MNIST, HALVES = "MNIST", "half of CIFAR-10's classes"
TINY = ("source=digits", "limit=200", "epochs=2", "batch=25")
LOW, HIGH = ("patch=7", "classes=0,1,2,3,4"), ("patch=7", "classes=5,6,7,8,9")


def on_mnist(name: str, words: str, settings: tuple[str, ...] = (), first: tuple[str, ...] = ()) -> Variant:
    large = RESIZED if first == COLOURS else ()  # in the small version digits of that size, too, are carried over
    return Variant(name, settings, words, group=MNIST, first=first, small=TINY, small_first=(*TINY, *large))


def on_halves(name: str, settings: tuple[str, ...] = (), first: tuple[str, ...] = ()) -> Variant:
    small, small_first = (*TINY, *HIGH), (*TINY, *LOW)
    return Variant(name, (*NEW, *settings), group=HALVES, first=first, small=small, small_first=small_first)


def claims(group: str) -> tuple[Claim, Claim]:
    worse, base = ("base, from scratch",), ("base, pretrained",)
    return (
        Claim(f"Pretrained is better than from scratch ({group}).", base[0], worse, group),
        Claim(f"Small, pretrained, is better than base ({group}).", "small, pretrained", base, group),
    )


reproduction = Reproduction(
    report="R2",
    title="Pretrained or from scratch?",
    reading="R2 fine-tunes ViTs of timm's that are pretrained on ImageNet, and finds pretrained better than from "
    "scratch, small better than base, and a model that is adapted to MNIST's pictures better than pictures that are "
    "resized to the model's. Here small models are pretrained first, on pictures of clothes (Fashion-MNIST), on "
    "CIFAR-10, or on half of its classes, and then learn from 500 labels.",
    variants=(
        on_mnist("small, from scratch", ""),
        on_mnist("small, pretrained", "on Fashion-MNIST", first=CLOTHES),
        on_mnist("base, from scratch", "", BASE),
        on_mnist("base, pretrained", "on Fashion-MNIST", BASE, (*CLOTHES, *BASE)),
        on_mnist("small, adapted", "from CIFAR-10's pictures to MNIST's", first=COLOURS),
        on_mnist("small, resized", "MNIST's pictures, to the size of CIFAR-10's", RESIZED, COLOURS),
        on_halves("small, from scratch"),
        on_halves("small, pretrained", first=KNOWN),
        on_halves("base, from scratch", BASE),
        on_halves("base, pretrained", BASE, (*KNOWN, *BASE)),
    ),
    claims=(
        *claims(MNIST),
        Claim(
            "To adapt the model is better than to resize the pictures.", "small, adapted", ("small, resized",), MNIST
        ),
        *claims(HALVES),
    ),
    seeds=3,
    place=5,
)
