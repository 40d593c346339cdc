"""Write the embedded sample of MNIST from the verified full set: python scripts/make_sample.py [DATA FOLDER]."""

import sys
from pathlib import Path

import numpy as np

from vitlab.data import Mnist, data_folder, take
from vitlab.data.digits import SAMPLE, SAMPLE_COUNTS, SAMPLE_DIGEST
from vitlab.data.published import digest


def main() -> None:
    """Take each class in proportion, with seed 0, and write the pictures in MNIST's own order."""
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    mnist = Mnist().load(data_folder(given))
    train, test = take(mnist.train, SAMPLE_COUNTS[0]), take(mnist.test, SAMPLE_COUNTS[1])
    np.savez_compressed(
        SAMPLE,
        train_pictures=train.pictures.numpy(),
        train_labels=train.labels.numpy().astype(np.uint8),
        test_pictures=test.pictures.numpy(),
        test_labels=test.labels.numpy().astype(np.uint8),
    )
    found = digest(train, test)
    print(f"{SAMPLE}: {SAMPLE.stat().st_size:,} bytes, SHA-256 of the content {found}")
    if found != SAMPLE_DIGEST:
        sys.exit(f"vitlab/data/digits.py expects {SAMPLE_DIGEST}")


if __name__ == "__main__":
    main()
