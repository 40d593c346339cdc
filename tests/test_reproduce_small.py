"""The small version shows what the full one shows: every repair that is clear there goes the same way here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitlab.recipes import reproductions
from vitlab.reproduce.figures import table

RECORDS = Path(__file__).resolve().parent.parent / "results" / "reports"
REPAIRED = ["r0-multi-scale", "r1-shallow", "r3-bag", "r4-batch", "r4-training"]  # the others are studies of sizes


def differences(folder: Path, name: str) -> dict[tuple[str, str], tuple[float, int]]:
    """Variant → its difference to the first of its group, and −1 or 1 where that is clear."""
    rows = table(reproductions()[name], json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    return {(row.group, row.name): (row.difference.value, row.difference.sign) for row in rows if row.difference}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_repair_that_is_clear_goes_the_same_way(tmp_path):
    words = ["reproduce", *REPAIRED, "--small", "--workers", "2", "--records", str(tmp_path), "--runs", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "vitlab", *words],
        check=False, capture_output=True, text=True, timeout=380, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    against = []
    for name in REPAIRED:
        here, there = differences(tmp_path, name), differences(RECORDS, name)
        assert len(here) == len(reproductions()[name].variants) - 1
        clear = {variant: value for variant, (value, sign) in there.items() if sign}
        assert clear, f"{name}: the full version shows no clear difference, so there is nothing to compare"
        against += [
            f"{name}, {variant[1]}: {100 * here[variant][0]:+.2f} points here, {100 * value:+.2f} there"
            for variant, value in clear.items()
            if here[variant][0] * value <= 0
        ]
    assert not against
