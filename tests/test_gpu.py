"""What only a GPU shows: fused kernels in bfloat16, compilation, and training there. Run by hand: pytest -m gpu."""

from typing import get_args

import pytest
import torch
from conftest import QUICK

import vitlab
from vitlab.model.attention import Attention
from vitlab.model.layout import Grid, Layout

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),  # torch 2.11's own, when it compiles
]


@pytest.mark.parametrize("kind", get_args(Attention), ids=lambda kind: kind.kind)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-3), (torch.bfloat16, 4e-2)])
def test_the_map_is_what_the_fused_kernel_did(kind, dtype, tolerance):
    """Tolerance: relative error of tf32-free float32 sums, and of bfloat16's 8 bits over 65 tokens."""
    torch.manual_seed(0)
    mixer = kind().build(128, Layout(1, (Grid(8, 8),))).to("cuda", dtype)
    tokens = torch.randn(4, 65, 128, device="cuda", dtype=dtype)
    expected = mixer(tokens)
    found = mixer.join(mixer.map(tokens) @ mixer.values(tokens))
    assert (found - expected).norm() / expected.norm() < tolerance


@pytest.mark.parametrize(
    "extra", [(), ("compile=yes",), ("optimiser=muon", "ema=0.99", "cutmix=1", "mixup=0.8", "erase=0.2")]
)
def test_it_learns_there(tmp_path, extra):
    words = ("epochs=4", "batch=100", "patch=7", "width=64", "learning_rate=2e-3", "warmup=0.5", "rotate=0", *extra)
    run = vitlab.train("digits", *words, runs=tmp_path, device="cuda", quiet=True)
    assert run.result["test_accuracy"] > 0.8
    there, here = vitlab.evaluate(run, device="cuda"), vitlab.evaluate(run, device="cpu")
    assert abs(there.accuracy - here.accuracy) < 0.01
    assert run.environment["device"] == torch.cuda.get_device_name()


def test_a_diverging_run_is_noticed_although_the_gpu_is_asked_only_now_and_then(tmp_path):
    with pytest.raises(vitlab.BadInput, match="no longer a number at step"):
        vitlab.train(
            "digits",
            *QUICK,
            "optimiser=adamw",
            "learning_rate=1e30",
            "clip=0",
            runs=tmp_path,
            device="cuda",
            quiet=True,
        )
