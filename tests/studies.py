"""Small studies, their workers as processes, and a PostgreSQL server of one's own: what the tests of studies share."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from vitlab import Experiment, override, recipes
from vitlab.study.ledger import Ledger
from vitlab.study.plan import Plan, new_plan
from vitlab.study.store import Kept, create_study, open_study, read_url
from vitlab.study.worker import Worker

TINY = (
    "epochs=2", "limit=60", "batch=20", "width=16", "depth=1", "tokens=conv-patches", "patch=14", "heads=2",
    "checkpoint=0", "validation=0.02",
)  # fmt: skip
"""Overrides that make `digits` train in a fifth of a second, with a checkpoint after every step."""


def tiny(*words: str) -> Experiment:
    return override(recipes.recipe("digits"), [*TINY, *words])


def plan(space: str, *words: str, name: str = "s", trials: int | None = None, prune: str = "auto", **more) -> Plan:
    return new_plan(name, tiny(*words), space, trials, prune, **more)


def created(made: Plan, url: str) -> Kept:
    kept = create_study(made, read_url(url))
    Ledger(kept).reconcile()
    return kept


def work(url: str, runs: Path, name: str = "s", log: Path | None = None) -> None:
    """A worker of its own process; what it finishes is a line in the log."""
    torch.set_num_threads(1)

    def tell(line: str) -> None:
        if log is not None:
            with open(log, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    Worker(open_study(name, read_url(url)), runs, torch.device("cpu"), tell=tell).work()


class Server:
    """A PostgreSQL server in a folder, reached by a socket there; run by an ordinary user, as it insists."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.url = f"postgresql://vitlab@/postgres?host={folder}"
        found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), shutil.which("initdb")]
        if found == [None]:
            pytest.skip("PostgreSQL is not installed")
        self.bin = Path(found[0] or found[-1]).resolve().parent

    def call(self, program: str, *words: str) -> None:
        user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []
        command = [*user, str(self.bin / program), "-D", str(self.folder / "data"), *words]
        with open(self.folder / "log", "ab") as log:
            subprocess.run(command, check=True, cwd=self.folder, stdout=log, stderr=log, timeout=60)

    def start(self) -> None:
        self.call("pg_ctl", "-w", "-o", f"-k {self.folder} -h '' -F", "start")

    def stop(self) -> None:
        self.call("pg_ctl", "-w", "-m", "immediate", "stop")


@contextmanager
def postgres() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path must be short
    server = Server(folder)
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        server.call("initdb", "-A", "trust", "-U", "vitlab", "--no-sync", "--no-locale", "-E", "UTF8")
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)
