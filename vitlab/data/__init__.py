"""Data: a data set → checked uint8 tensors."""

from vitlab.data.catalogue import Listing, available, check, data_folder, describe, get
from vitlab.data.dataset import DataSet, Part, hold_out, statistics, take
from vitlab.data.pictures import read_picture, read_shown
from vitlab.data.sources import Arrays, Cifar10, Cifar100, FashionMnist, Folder, Mnist, NoPictures, Sample, Source

__all__ = [
    "Arrays",
    "Cifar10",
    "Cifar100",
    "DataSet",
    "FashionMnist",
    "Folder",
    "Listing",
    "Mnist",
    "NoPictures",
    "Part",
    "Sample",
    "Source",
    "available",
    "check",
    "data_folder",
    "describe",
    "get",
    "hold_out",
    "read_picture",
    "read_shown",
    "statistics",
    "take",
]
