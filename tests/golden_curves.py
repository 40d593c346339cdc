"""Loss curves of 20 steps, kept in tests/golden/curves.json: python tests/golden_curves.py writes them anew."""

import json
import tempfile
from pathlib import Path

from vitlab import train

STORED = Path(__file__).parent / "golden" / "curves.json"
# Every epoch is one step on the same 64 digits, so that each epoch's loss is a step's; 100 more are evaluated after it.
STEPS = ("epochs=20", "data.limit=64", "batch=64", "warmup=4", "width=32", "depth=2", "patch=7", "validation=0.01")
CURVES = {
    "softmax": ("optimiser=adamw",),
    "linformer": ("optimiser=adamw", "attention=linformer", "attention.k=8"),
    "uniform": ("optimiser=adamw", "attention=uniform"),
    "locality": ("optimiser=adamw", "attention=locality", "tokens=shifted-patches"),
    "muon": ("optimiser=muon", "positions=rotary", "head=mean", "tokens=conv-stem"),
    "regularised": (
        "mixup=0.8", "cutmix=1", "label_smoothing=0.1", "block.dropout=0.1", "hidden_dropout=0.1",
        "stochastic_depth=0.1", "ema=0.9",
    ),
    "augmented": ("flip=yes", "crop=2", "rotate=15", "augment.scale=0.2", "shear=5", "colour=0.3", "erase=0.3"),
    "post-norm": (
        "block.norm=after", "activation=swiglu", "norm_kind=rms", "qk_norm=yes", "layer_scale=0.5", "registers=2",
    ),
}  # fmt: skip


def curve(name: str) -> list[float]:
    with tempfile.TemporaryDirectory() as runs:
        run = train("digits", "tokens=conv-patches", *STEPS, *CURVES[name], runs=runs, device="cpu", quiet=True)
        return [line["loss"] for line in run.metrics()]


if __name__ == "__main__":
    STORED.write_text(json.dumps({name: curve(name) for name in CURVES}, indent=1) + "\n")
