"""Nothing is asked of any network but by the verbs that are there to ask: every use of a socket is noted."""

import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import QUICK

from vitlab.cli import main

ROOT = Path(__file__).parent.parent
OWN = ("localhost", "127.0.0.1", "::1", None)
ASKING = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg")
SEVEN = str(ROOT / "docs/seven.png")
VERBS = [
    ["train", "digits", *QUICK, "--name", "run", "--quiet"], ["evaluate", "runs/run"], ["predict", "runs/run", SEVEN],
    ["report", "runs/run"], ["settings"], ["data", "list"], ["reproduce", "--list"],
]  # fmt: skip
LONGER = [
    ["predict", "mnist", SEVEN], ["calibrate", "runs/run"], ["look", "runs/run", SEVEN, "--tested", "4"],
    ["export", "runs/run"], ["finetune", "runs/run", "epochs=1", "--name", "more", "--quiet"],
    ["report", "runs/run", "runs/more"], ["pretrain", "mae", "digits", *QUICK, "--name", "mae", "--quiet"],
]  # fmt: skip


def noted(*commands: list[str]) -> None:
    """Run verbs in this process, and print every other machine that it turned to and every program that it started."""
    tried = []

    def note(event: str, given: tuple[Any, ...]) -> None:
        if event in ASKING:
            address = given[0] if event.startswith("socket.get") else given[-1]
            host = address[0] if isinstance(address, tuple) else address
            if host in OWN or str(host).startswith("/"):
                return
            tried.append(f"{event} {host}")
        elif event == "subprocess.Popen":
            tried.append(f"{event} {given[0]}")
        else:
            return
        raise OSError("no network here")

    sys.addaudithook(note)  # below every library that is written in Python
    for words in commands:
        try:
            main(words)
        except SystemExit as end:
            print(f"status {end.code} of {words}")
    print(f"turned to {len(tried)}: {', '.join(dict.fromkeys(tried))}")


@pytest.mark.parametrize("verbs", [VERBS, pytest.param([*VERBS, *LONGER], marks=pytest.mark.slow)], ids=["few", "many"])
def test_no_verb_turns_to_the_network_by_itself(begin, verbs: list[list[str]]) -> None:
    done = begin(*verbs, call=noted).end()
    assert "turned to 0: " in done.stdout, done.stdout[-500:] + done.stderr[-500:]
    assert "status" not in done.stdout, done.stdout


def test_what_is_asked_for_is_noted_and_refused_in_one_line(begin, tmp_path: Path) -> None:
    """The same guard sees a verb that is there to fetch, so that it would have seen the others."""
    done = begin(["data", "get", "mnist", "--data", str(tmp_path / "data")], call=noted).end()
    assert "turned to 0" not in done.stdout
    assert "turned to" in done.stdout
    assert "status 2" in done.stdout
