"""The embedded sample of MNIST, so that the first run needs no download."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from vitlab.data.dataset import DataSet, Part
from vitlab.data.published import digest
from vitlab.errors import BadInput

SAMPLE = Path(__file__).parent / "sample" / "digits.npz"
SAMPLE_COUNTS = (10_000, 2_000)
SAMPLE_DIGEST = "b5cde51c87e68be9b87ab05e8843ba45686341c4d701224f4811d49d51c54fd4"


@dataclass(frozen=True)
class Sample:
    """Handwritten digits from MNIST, embedded: 10,000 for training and 2,000 for testing, 28×28 grey."""

    kind: ClassVar[str] = "digits"

    def load(self, folder: Path) -> DataSet:
        """Read the sample from the package; the data folder is not looked at."""
        with np.load(SAMPLE, allow_pickle=False) as arrays:
            train, test = (
                Part(torch.from_numpy(arrays[f"{part}_pictures"]), torch.from_numpy(arrays[f"{part}_labels"]).long())
                for part in ("train", "test")
            )
        if digest(train, test) != SAMPLE_DIGEST:
            raise BadInput(f"{SAMPLE} is damaged: install vitlab again")
        return DataSet(self.kind, tuple("0123456789"), train, test)
