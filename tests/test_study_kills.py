"""Whatever is killed, every trial of a study is trained to its end exactly once."""

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
import torch
from kinds import refusal
from optuna.trial import TrialState
from safetensors.torch import load_file
from studies import TINY, Server, created, plan, postgres, work

from vitlab import lab
from vitlab.engine.run import Run
from vitlab.engine.storage import read_tensors
from vitlab.given import load_data
from vitlab.study import store
from vitlab.study.ledger import TRIES, Ledger
from vitlab.study.store import Kept, open_study, read_url
from vitlab.study.worker import Worker


@pytest.fixture(scope="module")
def server():
    with postgres() as started:
        yield started


def same_bits(one: Run, two: Run) -> bool:
    ours, theirs = load_file(one.weights), load_file(two.weights)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def wait_for(what, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def work_under_fire(processes, url: str, folder: Path, workers: int, kills: int) -> None:
    """Workers of which random ones are killed at random moments; each is replaced by another."""
    chance = random.Random(workers)

    def start():
        process = processes.Process(target=work, args=(url, folder / "runs"), kwargs={"log": folder / "log"})
        process.start()
        return process

    crew, killed = [start() for _ in range(workers)], 0
    wait_for((folder / "log").exists)
    while killed < kills:
        time.sleep(chance.uniform(0.1, 0.9))
        assert any(process.is_alive() for process in crew), "all was done before enough workers were killed"
        victim = chance.randrange(workers)
        crew[victim].kill()
        crew[victim].join()
        killed += crew[victim].exitcode == -signal.SIGKILL
        crew[victim] = start()
    for process in crew:
        process.join(150)
        assert process.exitcode == 0


def check_exactly_once(kept: Kept, folder: Path) -> None:
    slots = Ledger(kept).slots()
    assert {slot.state for slot in slots} == {"complete"}
    for slot in slots:
        ends = Counter(trial.state for trial in slot.attempts)
        assert ends[TrialState.COMPLETE] == 1
        assert set(ends) <= {TrialState.COMPLETE, TrialState.FAIL}
        run = Run(folder / "runs" / slot.settled.user_attrs["runs"][0]["folder"])
        assert run.finished
        assert [line["epoch"] for line in run.metrics()] == [1, 2]
    assert len(list((folder / "runs").iterdir())) == len(slots)
    told = Counter(line for line in (folder / "log").read_text().splitlines() if "validation accuracy" in line)
    assert max(told.values()) == 1
    before = len(kept.study.trials)
    Worker(kept, folder / "runs", torch.device("cpu")).work()  # a finished study has nothing to do
    assert len(kept.study.trials) == before


@pytest.mark.long
def test_forty_trials_on_postgresql_with_workers_killed_at_random_are_run_exactly_once(server, processes, tmp_path):
    made = plan("width=8,16 heads=1,2 patch=7,14", seeds=5, grace=2.5)
    kept = created(made, server.url)
    assert made.count == 40
    work_under_fire(processes, server.url, tmp_path, workers=4, kills=10)
    check_exactly_once(kept, tmp_path)
    assert any(slot.lost for slot in Ledger(kept).slots())
    for seed, point in enumerate(made.points()[::3]):
        run = lab.train_in(
            tmp_path / f"whole-{seed}", made.experiment(point, seed), load_data(made.base, None),
            torch.device("cpu"), quiet=True,
        )  # fmt: skip
        assert same_bits(run, Run(tmp_path / "runs" / made.folder(point, seed)))


@pytest.mark.parametrize(
    "form", ["sqlite:///{}/study.db", pytest.param("journal:{}/study.log", marks=pytest.mark.slow)]
)
def test_files_lose_nothing_either(processes, tmp_path, form):
    url = form.format(tmp_path)
    kept = created(plan("width=8,16 heads=1,2", seeds=6, grace=2.0), url)
    work_under_fire(processes, url, tmp_path, workers=3, kills=4)
    check_exactly_once(kept, tmp_path)


def test_a_trial_killed_midway_goes_on_from_its_checkpoint_to_the_same_bits(processes, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    made = plan("width=8,16", "epochs=15", grace=1.0)
    kept = created(made, url)
    run = Run(tmp_path / "runs" / made.folder({"width": "8"}, 0))
    process = processes.Process(target=work, args=(url, run.folder.parent))
    process.start()
    wait_for(lambda: len(run.metrics()) >= 2)
    process.kill()
    process.join()
    assert not run.finished
    step = read_tensors(run.checkpoint)[1]["step"]
    assert 0 < step < 45
    begun, lines = run.environment, run.metrics()
    Worker(kept, run.folder.parent, torch.device("cpu"), tell=lambda line: None).work()
    assert run.environment == begun
    kept_lines = [line for line in lines if line["step"] <= step]
    assert run.metrics()[: len(kept_lines)] == kept_lines  # with their times: they were not made again
    whole = lab.train_in(
        tmp_path / "whole", made.experiment({"width": "8"}, 0), load_data(made.base, None),
        torch.device("cpu"), quiet=True,
    )  # fmt: skip
    assert same_bits(run, whole)


def put_to_sleep(process: int, database: Path) -> None:
    """Stop a process at a moment when it does not lock the database, which others need meanwhile."""
    while True:
        os.kill(process, signal.SIGSTOP)
        with closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                os.kill(process, signal.SIGCONT)
                time.sleep(0.01)
            else:
                connection.execute("ROLLBACK")
                return


def test_a_worker_that_comes_back_from_the_dead_overwrites_nothing(processes, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    made = plan("width=8,16", "epochs=20", grace=1.0)
    ledger = Ledger(created(made, url))
    sleeper, other = (processes.Process(target=work, args=(url, tmp_path / "runs")) for _ in range(2))
    sleeper.start()
    run = Run(tmp_path / "runs" / made.folder({"width": "8"}, 0))
    wait_for(lambda: len(run.metrics()) >= 1)
    put_to_sleep(sleeper.pid, tmp_path / "study.db")
    other.start()
    wait_for(lambda: len(ledger.slots()[0].attempts) == 2 and ledger.slots()[0].attempts[1].state == TrialState.RUNNING)
    os.kill(sleeper.pid, signal.SIGCONT)
    for process in (sleeper, other):
        process.join(100)
        assert process.exitcode == 0
    first, second = ledger.slots()[0].attempts
    assert (first.state, first.user_attrs["fate"]) == (TrialState.FAIL, "lost")
    assert second.state == TrialState.COMPLETE
    assert second.user_attrs["runs"][0]["accuracy"] == run.metrics()[-1]["validation_accuracy"]
    assert len(run.metrics()) == 20


def test_two_attempts_at_one_task_leave_it_to_the_older(tmp_path):
    kept = created(plan("width=8,16"), f"sqlite:///{tmp_path}/study.db")
    ledger = Ledger(kept)
    ledger.enqueue(ledger.slots()[0])  # as two workers may, that notice a lost trial at once
    slot, trial = ledger.take(ledger.slots())
    assert (slot.number, trial.number) == (0, 0)
    slot, trial = ledger.take(ledger.slots())
    assert (slot.number, trial.number) == (1, 1)
    assert ledger.take(ledger.slots()) is None
    duplicate = ledger.slots()[0].attempts[1]
    assert (duplicate.state, duplicate.user_attrs["fate"]) == (TrialState.FAIL, "duplicate")
    assert ledger.close(trial._trial_id, "lost")
    assert not ledger.complete(trial._trial_id, [], [0.5])  # an ended trial stays as it ended


def test_a_trial_that_is_lost_too_often_is_given_up_with_its_reason(tmp_path):
    kept = created(plan("width=8,16"), f"journal:{tmp_path}/study.log")
    ledger = Ledger(kept)
    for _ in range(TRIES):
        ledger.reconcile()
        slot, trial = ledger.take(ledger.slots())
        assert slot.number == 0
        ledger.close(trial._trial_id, "lost")
    ledger.reconcile()
    assert ledger.take(ledger.slots())[0].number == 1
    assert "lost 5 times" in ledger.slots()[0].why


def test_a_journal_cut_short_in_a_line_goes_on(tmp_path):
    url = f"journal:{tmp_path}/study.log"
    created(plan("width=8,16"), url)
    with open(tmp_path / "study.log", "ab") as file:
        file.write(b'{"op_code": 5, "wor')
    ledger = Ledger(open_study("s", read_url(url)))
    assert ledger.take(ledger.slots())[0].number == 0
    assert Ledger(open_study("s", read_url(url))).slots()[0].state == "running"


def test_a_server_that_is_gone_is_waited_for_and_then_named(server: Server, processes, tmp_path, monkeypatch):
    made = plan("width=8,16 heads=1,2", "epochs=6", name="gone", grace=3.0)
    kept = created(made, server.url)
    process = processes.Process(target=work, args=(server.url, tmp_path / "runs", "gone"))
    process.start()
    wait_for(lambda: any((tmp_path / "runs").glob("*/result.json")))
    server.stop()
    try:
        monkeypatch.setattr(store, "PATIENCE", 0.5)
        assert "does not answer" in refusal(lambda: Ledger(kept).slots())
        assert "cannot use postgresql://" in refusal(lambda: open_study("gone", read_url(server.url)))
    finally:
        server.start()
    process.join(60)
    assert process.exitcode == 0
    assert {slot.state for slot in Ledger(kept).slots()} == {"complete"}


def test_stopped_by_hand_a_trial_is_free_at_once(processes, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    made = plan("width=8,16", "epochs=200", grace=1000.0)
    kept = created(made, url)
    process = processes.Process(target=work, args=(url, tmp_path / "runs"))
    process.start()
    run = Run(tmp_path / "runs" / made.folder({"width": "8"}, 0))
    wait_for(lambda: len(run.metrics()) >= 1)
    os.kill(process.pid, signal.SIGTERM)
    process.join(60)
    slot = Ledger(kept).slots()[0]
    assert (slot.state, slot.lost) == ("missing", 0)
    ledger = Ledger(kept)
    ledger.reconcile()
    assert ledger.take(ledger.slots())[0].number == 0


def test_asked_alone_to_stop_a_study_stops_its_workers_and_goes_on_afterwards(vitlab, begin, tmp_path):
    """A supervisor interrupts one process, where a terminal interrupts all of them."""
    vitlab("study", "create", "s", "--space", "width=8,16", *TINY, "epochs=5000")
    words = ("study", "work", "s", "--workers", "2", "--device", "cpu")
    runs = [Run(tmp_path / f"runs/s/width-{width}-seed0") for width in (8, 16)]
    started = begin(*words)
    started.wait_for(lambda: all(len(run.metrics()) >= 2 for run in runs))
    os.kill(started.process.pid, signal.SIGINT)
    done = started.end(30)
    assert done.returncode == 130
    assert done.stderr == "vitlab: stopped, nothing is lost; go on with the same command\n"
    slots = Ledger(open_study("s", read_url(f"sqlite:///{tmp_path}/runs/s/study.db"))).slots()
    assert [(slot.state, slot.lost) for slot in slots] == [("missing", 0)] * 2
    before = [run.metrics() for run in runs]
    again = begin(*words)
    again.wait_for(lambda: all(len(run.metrics()) > len(lines) for run, lines in zip(runs, before, strict=True)))
    again.send(signal.SIGINT)
    assert again.end(30).returncode == 130
    assert all(run.metrics()[: len(lines)] == lines for run, lines in zip(runs, before, strict=True))


def test_a_full_disk_stops_the_worker_and_not_the_trial(tmp_path):
    kept = created(plan("width=8,16"), f"sqlite:///{tmp_path}/study.db")
    (tmp_path / "runs").write_text("a file, where a folder should be")
    worker = Worker(kept, tmp_path / "runs", torch.device("cpu"), tell=lambda line: None)
    assert "cannot make" in refusal(worker.work)
    assert {slot.state for slot in Ledger(kept).slots()} == {"missing", "waiting"}


def test_settings_that_clash_or_diverge_are_written_down_and_the_rest_goes_on(tmp_path):
    words = ("optimiser=adamw", "clip=0", "warmup=0")
    kept = created(plan("learning_rate=1e-3,1e30 heads=2,3", *words), f"sqlite:///{tmp_path}/study.db")
    Worker(kept, tmp_path / "runs", torch.device("cpu"), tell=lambda line: None).work()
    slots = Ledger(kept).slots()
    assert [slot.state for slot in slots] == ["complete", "failed", "failed", "failed"]
    assert slots[1].why == "3 heads do not divide a width of 16"
    assert "no longer a number" in slots[2].why
