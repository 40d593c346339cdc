"""Our Triton kernels without a GPU: outputs and gradients by Triton's interpreter are those of torch in float64."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import interpreted
import pytest
from interpreted import ATTENTION, BIASED, NORMED, PLAIN, WHOLE, Attention, Errors, Gelu

from vitlab.model import gpu

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed: macOS has none")

# float32 rounds by 6e-8, and sums of up to two thousand such numbers, some of which cancel, by ten times that; the
# formula for Φ is right within 7.5e-8. To the 8 bits of bfloat16 the interpreter cuts, by less than 2⁻⁷ each time.
ROUNDED, CUT = 2e-6, 2**-7


def python(*words: str, **environment: str) -> str:
    """What a process of its own prints, which has not yet imported Triton."""
    command = [sys.executable, "-W", "error", *words]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert not done.returncode, f"{done.returncode}: {done.stderr}"  # below 0: killed, having written where it may not
    return done.stdout


@pytest.fixture(scope="module")
def errors() -> dict[str, Errors]:
    """Relative errors of every case."""
    return json.loads(python(str(Path(interpreted.__file__)), TRITON_INTERPRET="1"))


def within(found: Errors, case: Attention | Gelu, cuts: int) -> None:
    """Every error is below what the case's numbers, cut so many times on their way, allow; one that is NaN is not."""
    allowed = ROUNDED if case.dtype == "float32" else cuts * CUT
    assert {name: error for name, error in found.items() if not error < allowed} == {}


@pytest.mark.parametrize("case", ATTENTION, ids=str)
def test_attention_is_torchs_in_double_precision(errors, case):
    """In 16 bits queries and keys are cut, weights or their slopes, and what is given."""
    within(errors[f"attention {case}"], case, cuts=4)


@pytest.mark.parametrize("case", PLAIN, ids=str)
def test_gelu_is_torchs_in_double_precision(errors, case):
    within(errors[f"plain {case}"], case, cuts=1)


@pytest.mark.parametrize("case", BIASED, ids=str)
def test_gelu_behind_a_bias_is_torchs_in_double_precision(errors, case):
    within(errors[f"biased {case}"], case, cuts=1)


@pytest.mark.parametrize("case", NORMED, ids=str)
def test_a_norm_with_gelu_is_torchs_in_double_precision(errors, case):
    """In 16 bits a gradient is cut where it is kept between two passes, and once more at the end."""
    within(errors[f"normed {case}"], case, cuts=2)


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_a_whole_model_by_our_kernels_is_torchs_in_double_precision(errors, case):
    """Logits, and the gradient of every weight; ten times the rounding of one part, as there are about ten in a row."""
    found = errors[f"whole {case}"]
    assert {name: error for name, error in found.items() if not error < 10 * ROUNDED} == {}


def test_vitlab_starts_without_triton():
    """It is half a gigabyte, and nothing but a kernel or the compiler needs it."""
    assert python("-c", "import sys, vitlab.cli; print('triton' in sys.modules)") == "False\n"


@pytest.mark.parametrize(
    ("compiler", "headers", "builds"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_kernels_are_left_out_where_triton_cannot_build_what_starts_them(
    monkeypatch, tmp_path, compiler, headers, builds
):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: "/usr/bin/gcc" if compiler and name == "gcc" else None)
    monkeypatch.setattr(gpu.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    if headers:
        (tmp_path / "Python.h").touch()
    assert gpu.builds() == builds
