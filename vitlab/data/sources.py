"""The one list of kinds of data sets; each is loaded with `load(data folder)`."""

from vitlab.data.arrays import Arrays
from vitlab.data.digits import Sample
from vitlab.data.folder import Folder
from vitlab.data.named import Cifar10, Cifar100, FashionMnist, Mnist
from vitlab.data.nothing import NoPictures

Source = Sample | Mnist | FashionMnist | Cifar10 | Cifar100 | Folder | Arrays | NoPictures

__all__ = ["Arrays", "Cifar10", "Cifar100", "FashionMnist", "Folder", "Mnist", "NoPictures", "Sample", "Source"]
