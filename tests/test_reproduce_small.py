"""The small version shows what the full one shows: every repair that is clear there goes the same way here."""

import json
from pathlib import Path

import pytest
import torch

from vitlab.recipes import reproductions
from vitlab.reproduce.figures import table
from vitlab.reproduce.runs import Reproducer

RECORDS = Path(__file__).resolve().parent.parent / "results" / "reports"
# And R1's, which the README shows; the others are studies of sizes.
REPAIRED = ["r0-multi-scale", "r3-bag", "r4-batch", "r4-training"]


def differences(folder: Path, name: str) -> dict[tuple[str, str], tuple[float, int]]:
    """Variant → its difference to the first of its group, and −1 or 1 where that is clear."""
    rows = table(reproductions()[name], json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))
    return {(row.group, row.name): (row.difference.value, row.difference.sign) for row in rows if row.difference}


def clear(name: str) -> dict[tuple[str, str], float]:
    """Variant → its difference, where the full version shows one."""
    return {variant: value for variant, (value, sign) in differences(RECORDS, name).items() if sign}


def against(folder: Path, name: str) -> list[str]:
    """What goes another way in the records of a folder than in the full ones."""
    here = differences(folder, name)
    return [
        f"{name}, {variant[1]}: {100 * here[variant][0]:+.2f} points here, {100 * value:+.2f} there"
        for variant, value in clear(name).items()
        if here[variant][0] * value <= 0
    ]


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_clear_repair_of_the_command_in_the_readme_goes_the_same_way(program, tmp_path):
    program("reproduce", "r1", "--small")
    assert clear("r1-shallow")
    folder = tmp_path / "runs/reports-small"
    assert len(differences(folder, "r1-shallow")) == len(reproductions()["r1-shallow"].variants) - 1
    assert not against(folder, "r1-shallow")


@pytest.mark.slow
@pytest.mark.parametrize("name", REPAIRED)
def test_every_clear_repair_goes_the_same_way(name, tmp_path):
    """Trains what is compared; each setting of a variant that is not is also one of a variant that is."""
    compared = clear(name)
    assert compared, "the full version shows no clear difference, so there is nothing to compare"
    reproducer = Reproducer(tmp_path / "runs", tmp_path, small=True, device="cpu", tell=lambda line: None)
    reproducer.entries = {name: {}}
    first, *others = reproducer.jobs(name)
    compared_jobs = [job for job in others if (job.variant.group, job.variant.name) in compared]
    trained = {setting for job in (first, *compared_jobs) for setting in job.settings}
    assert trained == {setting for job in (first, *others) for setting in job.settings}
    assert reproducer.train([first, *compared_jobs], torch.device("cpu"))
    assert not against(tmp_path, name)
