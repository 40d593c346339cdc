"""The torture in short, and the torture itself: a loss is seen, counted, and ends in exit status 1."""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from torture.runner import areas, main

SEED = 13  # by which crash begins with a training that has all kinds of state, killed by SIGKILL
PLANTED = """
import time
from torture import Outcome

def trials(seed, folder):
    assert folder.is_dir()
    for place in range(3):
        time.sleep(0.05)
        yield Outcome("a thing that holds", 10)
        yield Outcome("a thing that breaks", 2, ("case 7 of seed %d" % seed,) if place == BROKEN else ())
    if BROKEN == 3:
        raise ValueError("the area is at fault")
"""
CHILD = """
import signal, time
from pathlib import Path
from apart import Started
from torture import Outcome

def trials(seed, folder):
    child = Started(folder, folder, time.sleep, 1000)
    Path({0!r}).write_text(str(child.process.pid))
    try:
        while True:
            yield Outcome("waiting", 1)
    finally:
        child.send(signal.SIGKILL)
        child.process.join()
"""


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """An area with a loss at one of its steps, or with none."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, broken: int | None) -> dict[str, str]:
        (tmp_path / f"{name}.py").write_text(f"BROKEN = {broken}\n{PLANTED}")
        return {name: name}

    return write


def test_a_planted_loss_is_seen_and_what_holds_is_counted(plant, tmp_path, capsys):
    known, out = plant("planted_loss", 1) | plant("planted_whole", None), tmp_path / "made" / "record.json"
    assert main(["--minutes", "0.2", "--seed", "5", "--out", str(out)], known) == 1
    printed = capsys.readouterr().out
    assert "lost: planted_loss: a thing that breaks: case 7 of seed 5" in printed
    assert "again: make torture ONLY=planted_loss SEED=5" in printed
    assert "ONLY=planted_whole" not in printed
    record = json.loads(out.read_text())
    assert {(row["area"], row["what"]): (row["tried"], row["lost"]) for row in record["rows"]} == {
        ("planted_loss", "a thing that holds"): (30, []),
        ("planted_loss", "a thing that breaks"): (6, ["case 7 of seed 5"]),
        ("planted_whole", "a thing that holds"): (30, []),
        ("planted_whole", "a thing that breaks"): (6, []),
    }
    assert record["command"] == "make torture MINUTES=0.2 SEED=5"
    assert [area["name"] for area in record["areas"]] == ["planted_loss", "planted_whole"]
    assert record["versions"]["python"] == sys.version.partition(" ")[0]


def test_an_area_that_fails_itself_is_a_loss(plant, capfd):
    known = plant("planted_fault", 3) | plant("planted_sound", None)
    assert main(["--minutes", "0.2", "--only", "planted_sound"], known) == 0
    assert main(["--minutes", "0.2", "--only", "planted_fault"], known) == 1
    assert "the area itself: it ended with status 1" in capfd.readouterr().out
    assert main(["--only", "planted_falt"], known) == 2


def test_what_an_area_has_started_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "planted_child.py").write_text(CHILD.format(str(tmp_path / "child")))
    assert main(["--minutes", "0.01"], {"planted_child": "planted_child"}) == 0
    assert not Path("/proc", (tmp_path / "child").read_text()).exists()


@pytest.mark.parametrize("name", areas())
def test_nothing_is_lost_in_the_first_steps_of_an_area(name, tmp_path):
    """At least one step, and as many as begin within two seconds."""
    until, steps = time.monotonic() + 2, import_module(areas()[name]).trials(SEED, tmp_path)
    tried = 0
    while not tried or time.monotonic() < until:
        outcome = next(steps)
        assert outcome.lost == ()
        tried += outcome.tried
    steps.close()


def test_every_module_with_trials_is_an_area():
    files = Path(__file__).parent.joinpath("torture").glob("*.py")
    assert set(areas()) == {path.stem for path in files if "\ndef trials(" in path.read_text()}
