"""What `make` installs: every package at the version of constraints.txt, by hashes, and nothing else."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTS = sorted(path.stem for path in (ROOT / "requirements").glob("*.txt"))
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+)(?: ; (.+?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def packages(name: str) -> dict[str, str]:
    """The packages of a list and their versions; whatever is not such an entry is a failure."""
    head, _, text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").partition("\n")
    assert head.startswith("# ")
    assert not ENTRY.sub("", text)
    return {package: version for package, version, *_ in ENTRY.findall(text)}


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in (line.split("==") for line in lines)}


def test_the_lists_are_those_that_make_installs() -> None:
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"requirements/(\w+)\.txt", made))) == LISTS
    assert "--require-hashes" in made
    installing = [line for line in made.splitlines() if "pip install" in line and "audit" not in line]
    assert len(installing) == 1, "one way to install, which all others are made of"


@pytest.mark.parametrize("name", LISTS)
def test_every_version_is_that_of_the_constraints(name: str) -> None:
    found = packages(name)
    assert found
    known = {package: version for package, version in found.items() if package in pinned()}
    assert known.items() <= pinned().items()
    assert (found == known) == (name not in {"cuda", "triton"}), "NVIDIA's libraries follow from torch's version"


def test_each_list_holds_the_smaller_one() -> None:
    assert packages("cpu").items() <= packages("run").items() <= packages("page").items() <= packages("dev").items()
    assert packages("dev") == pinned()


def test_triton_is_installed_once_where_there_is_one() -> None:
    """By torch's build for GPUs or else by a list of its own, for Linux alone; a user without a GPU has none."""
    assert [name for name in LISTS if "triton" in packages(name)] == ["cuda", "triton"]
    text = (ROOT / "requirements" / "triton.txt").read_text(encoding="utf-8")
    assert [(name, where) for name, _, where, _ in ENTRY.findall(text)] == [("triton", 'platform_system == "Linux"')]
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "TRITON := $(FOR_GPUS) || $(LOCKED) requirements/triton.txt" in made
