"""What vitlab loads late, loaded once: in the server that the processes of the torture are forked from."""

import importlib
from contextlib import redirect_stdout, suppress
from io import StringIO

from PIL import Image

from vitlab.cli import main

with redirect_stdout(StringIO()), suppress(SystemExit):
    main(["--help"])  # every verb's parser, and every recipe
Image.preinit()
for name in (
    "alembic.command", "einops._torch_specific", "numpy.ctypeslib", "numpy.ma", "optuna.storages._rdb.models",
    "onnxscript.function_libs.torch_lib.ops", "rich._emoji_codes", "sqlalchemy.dialects.sqlite", "sympy.tensor.tensor",
    "torch._export.serde.serialize", "torch._functorch.aot_autograd", "torch.export._trace",
    "torch.onnx._internal.exporter._core", "torch.onnx._internal.exporter._torchlib.ops", "vitlab.study.results",
    "torch.profiler._cupti_monitor",
):  # fmt: skip
    importlib.import_module(name)
