"""make torture"""

import sys

import apart

from torture.runner import main

apart.PRELOADED += (  # what is loaded late, by exports and studies: a second or two of each process otherwise
    "torch.onnx._internal.exporter._core", "torch._functorch.aot_autograd", "torch._export.serde.serialize",
    "alembic.command",
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
