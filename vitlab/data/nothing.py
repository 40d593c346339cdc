"""No pictures: of a model that came with weights alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from vitlab.data.dataset import DataSet
from vitlab.errors import BadInput


@dataclass(frozen=True)
class NoPictures:
    """None: the model came without pictures, and is shown yours."""

    kind: ClassVar[str] = "none"

    def load(self, folder: Path) -> DataSet:
        raise BadInput(
            "there are no pictures to read: this model came without; name some of yours, or give it a data set by "
            "'vitlab transfer RUN data.source=…'"
        )
