"""Studies as a user runs them: spaces, the verbs from end to end, what is said, and what is refused."""

import errno
import fcntl
import html
import itertools
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import refused
from kinds import refusal
from optuna.trial import TrialState, create_trial
from sqlalchemy.exc import OperationalError
from studies import TINY, created, plan, tiny

from vitlab import interrupt, open_run, override
from vitlab.engine.loop import Stopped
from vitlab.model import Shape
from vitlab.study import crew, gain
from vitlab.study.ledger import DRAWS, Ledger
from vitlab.study.page import render
from vitlab.study.plan import plan_of
from vitlab.study.results import read_results
from vitlab.study.space import Choices, Range, read_space
from vitlab.study.store import FileLock, answered, open_study, read_url
from vitlab.study.worker import Worker


def test_a_space_is_values_or_ranges():
    found = read_space("width=16,32 depth=2..8 learning_rate=1e-4..1e-2 translate=0.1..0.5 norm=before,after", tiny())
    assert read_space("mixup=0..1 label_smoothing=0,0.1", tiny())[1] == Choices("label_smoothing", ("0", "0.1"))
    own = tiny("data.source=folder:x")
    assert read_space("data.source.size=16,32", own) == (Choices("data.source.size", ("16", "32")),)
    assert "same held-out pictures" in refusal(lambda: read_space("data.source.test=0.1,0.3", own))
    assert found == (
        Choices("width", ("16", "32")),
        Range("depth", 2, 8, whole=True),
        Range("learning_rate", 1e-4, 1e-2, whole=False),
        Range("translate", 0.1, 0.5, whole=False),
        Choices("norm", ("before", "after")),
    )
    assert [each.log for each in found if isinstance(each, Range)] == [False, True, False]
    assert read_space(" ".join(map(str, found)), tiny()) == found
    assert str(read_space("batch=1000001..2000001", tiny())[0]) == "batch=1000001..2000001"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("", "the space is empty"),
        ("   ", "the space is empty"),
        ("widht=16,32", "did you mean 'width'"),
        ("width", "write name=value,value"),
        ("width=", "write name=value,value"),
        ("width=16", "gives width one value"),
        ("width=16,016", "which are the same"),
        ("width=16,wide", "width must be a whole number"),
        ("width=16,32 model.width=8,16", "twice"),
        ("seed=1,2", "--seeds"),
        ("validation=0.1,0.2", "same held-out pictures"),
        ("objective=mae,supervised", "learn from labels"),
        ("data.source=digits,mnist", "same held-out pictures"),
        ("data.classes=0,1", "same held-out pictures"),
        ("width=32..16", "is empty"),
        ("width=16..", "must be a whole number"),
        ("attention=softmax..uniform", "is no number"),
        ("learning_rate=1e-4..nan", "must be a number"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(space, said):
    assert said in refusal(lambda: read_space(space, tiny()))


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "too many files are open"),
        (OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full")), "disk is full"),
        (OperationalError("INSERT", {}, sqlite3.OperationalError("disk I/O error")), "disk I/O error"),
    ],
)
def test_trouble_of_this_machine_is_said_at_once(trouble, said):
    asked = []

    def ask() -> None:
        asked.append(1)
        raise trouble

    assert said in refusal(lambda: answered(ask))
    assert len(asked) == 1


def test_a_journal_that_cannot_be_opened_leaves_no_lock(tmp_path):
    lock = FileLock(tmp_path / "study.log")
    with pytest.raises(FileNotFoundError):
        lock.acquire()
    with open(tmp_path / "study.log.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_plan_survives_its_storage():
    for made in (plan("width=8,16 depth=1,2", seeds=3), plan("depth=1..4", trials=7, prune="hyperband", grace=3.0)):
        assert plan_of(made.name, json.loads(json.dumps(made.to_json()))) == made
    assert (plan("depth=1..4").trials, plan("depth=1..4").prune, plan("depth=1,4").trials) == (20, "median", None)


def test_every_run_has_a_folder_of_its_own():
    made = plan("width=8,16 depth=1,2", seeds=2)
    names = [made.folder(task.point, task.seeds[0]) for task in made.tasks()]
    assert names[0] == "width-8-depth-1-seed0"
    assert len({*names}) == made.count == 8
    odd = [made.folder({"source": text}, 0) for text in ("a/b", "a:b", "x" * 300)]
    assert len({*odd}) == 3
    assert all("/" not in name and len(name) < 150 for name in odd)


@pytest.mark.parametrize(
    ("rates", "count", "why"),
    [
        ({1: 100.0, 8: 540.0}, 8, "8 workers: 8 at once do 5.4 times the steps of one, by a short measurement"),
        ({1: 100.0, 8: 104.0}, 1, "1 worker: 8 at once do 1 times the steps of one, by a short measurement"),
        ({1: 100.0, 8: 0.0}, 1, "1 worker: 8 at once have no room on the cuda"),
    ],
)
def test_on_a_gpu_several_work_where_they_do_more_together(rates, count, why, monkeypatch):
    monkeypatch.setattr(crew, "choose_workers", lambda shared: 8)
    monkeypatch.setattr(gain, "rate", lambda *words: rates[words[-1]])
    cuda, shape = torch.device("cuda"), Shape(1, 28, 28)
    assert crew.choose(plan("width=8,16"), shape, 10, cuda, shared=True) == (count, why)
    unshared = f"{why}, without NVIDIA's MPS, by which they would run side by side"
    assert crew.choose(plan("width=8,16"), shape, 10, cuda, shared=False) == (count, unshared)


def test_how_much_several_processes_do_is_measured_while_all_of_them_work():
    device, shape = torch.device("cpu"), Shape(1, 28, 28)
    assert gain.rate(tiny(), shape, 10, device, 2) > 1
    too_large = override(tiny(), ["width=1000000", "heads=1"])  # a matrix of 12 TB
    assert gain.rate(too_large, shape, 10, device, 1) == 0


@pytest.mark.usefixtures("one_core")
def test_a_grid_from_end_to_end(vitlab, tmp_path):
    words = ("--space", "width=8,16 patch=7,14", *TINY, "--seeds", "2", "--objectives", "accuracy,time")
    done = vitlab("study", "create", "shape", *words)
    assert "8 trials at sqlite:///runs/shape/study.db" in done.stdout
    assert "8 waiting" in vitlab("study", "status", "shape").stdout
    assert "there is a study shape already" in refused(vitlab("study", "create", "shape", *words, status=2))
    assert "no trial of shape is complete yet" in refused(vitlab("study", "best", "shape", status=2))
    assert "no trial of shape is complete yet" in refused(vitlab("study", "report", "shape", status=2))
    worked = vitlab("study", "work", "shape", "--workers", "2", "--device", "cpu")
    assert "Take width " in worked.stdout  # what workers say goes to where their server began
    assert "8 complete" in vitlab("study", "status", "shape").stdout
    runs = {path.parent.name: open_run(path.parent) for path in tmp_path.glob("runs/shape/*/result.json")}
    assert {*runs} == {f"width-{w}-patch-{p}-seed{s}" for w, p, s in itertools.product((8, 16), (7, 14), (0, 1))}
    assert {run.environment["threads"] for run in runs.values()} == {1}, "of the cores that this process may use"
    means = {
        (w, p): np.mean([runs[f"width-{w}-patch-{p}-seed{s}"].metrics()[-1]["validation_accuracy"] for s in (0, 1)])
        for w, p in itertools.product((8, 16), (7, 14))
    }
    shown = vitlab("study", "show", "shape").stdout
    ranked = sorted(means.values(), reverse=True)
    assert [line.split()[2] for line in shown.splitlines() if "±" in line] == [f"{100 * m:.1f}" for m in ranked]
    said = vitlab("study", "best", "shape").stdout
    chosen = next(name for name in runs if f"its run: runs/shape/{name}" in said)
    tested = np.mean([runs[chosen[:-1] + seed].result["test_accuracy"] for seed in "01"])
    assert f"test accuracy of the chosen, read after the choice: {100 * tested:.2f} ±" in said
    assert "By all objectives" in said
    assert "open runs/shape/study.html" in vitlab("study", "report", "shape").stdout
    page = (tmp_path / "runs/shape/study.html").read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    for words_of in (
        "splits into what each setting",
        "Two at a time",
        "at equal time",
        "width and patch together",
        "seeds alone",
    ):
        assert words_of in page
    for mean in means.values():
        assert f"{100 * mean:.1f}" in page
    before = {name: run.weights.stat().st_mtime_ns for name, run in runs.items()}
    assert "validation accuracy" in vitlab("study", "work", "shape", "--workers", "1").stdout  # nothing left to do
    assert before == {name: run.weights.stat().st_mtime_ns for name, run in runs.items()}


def test_a_search_tries_as_many_points_as_were_asked_for(tmp_path):
    made = plan(
        "width=8..24 learning_rate=1e-3..1e-1 norm=before,after", "heads=1", trials=9, seeds=2,
        objectives=("accuracy", "parameters"),
    )  # fmt: skip
    kept = created(made, f"journal:{tmp_path}/study.log")
    Worker(kept, tmp_path / "my runs", torch.device("cpu"), tell=lambda line: None).work()
    found = read_results(kept)
    assert found.counts == {"complete": 9}
    assert len(kept.study.trials) == 9
    for trial in kept.study.trials:
        assert 8 <= trial.params["width"] <= 24
        assert 1e-3 <= trial.params["learning_rate"] <= 1e-1
        accuracies, weights = zip(
            *((run["accuracy"], run["parameters"]) for run in trial.user_attrs["runs"]), strict=True
        )
        assert len(accuracies) == 2
        assert trial.values == pytest.approx([np.mean(accuracies), weights[0]])
    page = render(kept, tmp_path / "my runs", [])
    command = re.search("vitlab train .*experiment.json.* --name .*?(?=<)", page)
    assert command is not None
    _, _, configuration, *named = shlex.split(html.unescape(command[0]))
    assert Path(configuration).is_file()
    assert named == ["--name", "my runs-chosen"]
    assert "PED-ANOVA" in page
    assert "search by TPE" in page


def test_a_search_spends_no_trial_on_what_builds_no_model(tmp_path):
    """Of the widths from 8 to 24 four heads divide 8, 12, 16, 20 and 24; a space that has none of them is told."""
    made = plan("width=8..24", "heads=4", trials=6, prune="none")
    kept = created(made, f"journal:{tmp_path}/study.log")
    Worker(kept, tmp_path / "runs", torch.device("cpu"), tell=lambda line: None).work()
    assert read_results(kept).counts == {"complete": 6}
    assert {int(slot.point()["width"]) % 4 for slot in Ledger(kept).slots()} == {0}
    unfit = [trial.params["width"] for trial in kept.study.trials if trial.user_attrs.get("fate") == "unfit"]
    assert unfit
    assert all(width % 4 for width in unfit)
    none = created(plan("width=17..19", "heads=4", name="none", trials=1), f"journal:{tmp_path}/none.log")
    Worker(none, tmp_path / "runs", torch.device("cpu"), tell=lambda line: None).work()
    (failed,) = read_results(none).failed
    assert "4 heads do not divide a width of 1" in failed[1]
    assert len(none.study.trials) == DRAWS


def test_a_search_draws_the_same_points_again_and_after_a_stop(tmp_path):
    """What is drawn follows from the seed and from what is known, not from the process; another seed draws others."""

    def search(place, *words, stops=False):
        kept = created(plan("width=8..64 norm=before,after", *words, trials=20, prune="none"), f"sqlite:///{place}")
        points = []
        while (taken := Ledger(kept).take(Ledger(kept).slots())) is not None:
            _, trial = taken
            points.append(dict(trial.params))
            Ledger(kept).complete(trial._trial_id, [], [trial.params["width"] / 64])
            kept = open_study("s", kept.place) if stops else kept
        return points

    first = search(tmp_path / "a.db")
    widths = [point["width"] for point in first]
    assert len(set(widths[:10])) > 5  # drawn at random
    assert np.mean(widths[10:]) > np.mean(widths[:10]) + 8  # then where the widest was best
    assert first == search(tmp_path / "b.db", stops=True)
    assert first != search(tmp_path / "c.db", "seed=1")


def test_two_workers_of_a_search_do_not_draw_alike(tmp_path):
    kept = created(plan("learning_rate=1e-4..1e-1", trials=6, prune="none"), f"sqlite:///{tmp_path}/s.db")
    others = open_study("s", kept.place)
    drawn = [Ledger(each).take(Ledger(each).slots())[1].params["learning_rate"] for each in (kept, others) * 3]
    assert len(set(drawn)) == 6


def test_what_ctrl_c_was_made_into_is_no_fault_of_the_trial(tmp_path, monkeypatch):
    """Code in C++ that it meets midway may raise a RuntimeError of its own instead."""
    kept = created(plan("width=8,16"), f"journal:{tmp_path}/study.log")
    worker = Worker(kept, tmp_path / "runs", torch.device("cpu"), tell=lambda line: None)
    noted = threading.Event()
    monkeypatch.setattr(interrupt, "_noted", noted)

    def meet(*_: object) -> None:
        noted.set()
        raise RuntimeError("could not determine the shape of object type 'torch.storage.UntypedStorage'")

    with monkeypatch.context() as midway:
        midway.setattr(Worker, "train", meet)
        with pytest.raises(Stopped, match="nothing is lost"):
            worker.work()
    assert [slot.settled for slot in Ledger(kept).slots()] == [None, None]
    noted.clear()
    worker.work()
    assert read_results(kept).counts == {"complete": 2}


def test_a_trial_that_falls_behind_is_pruned_and_its_run_says_so(vitlab, tmp_path):
    made = plan("width=8..16", "epochs=4", "heads=1", trials=1)
    assert made.prune == "median"
    kept = created(made, f"sqlite:///{tmp_path}/study.db")
    for _ in range(5):  # others, that were far better at every epoch
        other = create_trial(
            state=TrialState.COMPLETE, value=0.99, intermediate_values=dict.fromkeys(range(1, 5), 0.99)
        )
        kept.storage.create_new_trial(kept.number, other)
    told: list[str] = []
    Worker(kept, tmp_path / "runs/s", torch.device("cpu"), tell=told.append).work()
    (slot,) = Ledger(kept).slots()
    assert (slot.state, slot.settled.state) == ("pruned", TrialState.PRUNED)
    run = open_run(tmp_path / "runs/s" / made.folder(slot.point(), 0))
    note = json.loads((run.folder / "pruned.json").read_text(encoding="utf-8"))
    assert (note["study"], note["epoch"]) == ("s", 2)
    assert note["why"] in told[0]
    assert note["validation_accuracy"] == run.metrics()[-1]["validation_accuracy"] == slot.settled.value
    assert not run.finished
    assert len(run.metrics()) == 2
    assert "test accuracy" in vitlab("resume", run.folder, "--device", "cpu").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "a/b", "--space", "width=8,16"), "'a/b' is no name for a study"),
        (("create", "..", "--space", "width=8,16"), "'..' is no name for a study"),
        (("create", "a"), "the space is empty"),
        (("create", "a", "--space", "widht=8,16"), "no setting called 'widht'"),
        (("create", "a", "--space", "width=8,16", "validation=0"), "add for example validation=0.1"),
        (("create", "a", "--space", "width=8,16", "objective=mae"), "learn from labels"),
        (("create", "a", "--space", "width=8,16", "epochs=0"), "at least one epoch"),
        (("create", "a", "--space", "width=8,16", "--recipe", "digts"), "digits"),
        (("create", "a", "--space", "width=8,16", "--seeds", "0"), "seeds must be 1 or more"),
        (("create", "a", "--space", "depth=1..4", "--trials", "0"), "trials must be 1 or more"),
        (("create", "a", "--space", "width=8,16", "--objectives", "speed"), "no objective called 'speed'"),
        (("create", "a", "--space", "width=8,16", "--objectives", "time"), "the objectives are accuracy, and time"),
        (("create", "a", "--space", "width=8,16", "--prune", "median"), "needs a search for accuracy alone"),
        (("create", "a", "--space", "width=8,16", "--seeds", "99999"), "too many"),
        (("create", "a", "--space", "width=8,16", "--grace", "0"), "grace must be more than 0"),
        (("create", "a", "--space", "width=8,16", "--storage", "mysql://x/y"), "is no storage's URL"),
        (("create", "a", "--space", "width=8,16", "--storage", "postgresql://x:port/y"), "is no storage's URL"),
        (("create", "a", "--space", "width=8,16", "--storage", "sqlite:////proc/no/study.db"), "cannot make"),
        (("work", "a"), "there is no study at sqlite:///runs/a/study.db"),
        (("status", "a", "--storage", "journal:none.log"), "there is no study at journal:none.log"),
        (("work", "a", "--storage", "postgresql://me:secret@127.0.0.1:1/x"), "cannot use postgresql://me:***@127.0.0.1:1/x"),
        (("best", "a/b"), "is no name for a study"),
        (("wrk", "a"), "did you mean 'work'?"),
        (("work", "a", "--wrkers", "3"), "--workers"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said_in_one_line(vitlab, tmp_path, words, said):
    line = refused(vitlab("study", *words, status=2))
    assert said in line
    assert "secret" not in line
    assert not (tmp_path / "runs").exists()


def test_files_that_are_no_studies_are_refused(vitlab, tmp_path):
    (tmp_path / "text.db").write_text("this is no database, and long enough to be looked at " * 20)
    line = refused(vitlab("study", "work", "a", "--storage", "sqlite:///text.db", status=2))
    assert "file is not a database" in line
    (tmp_path / "text.log").write_text("this is no journal\n" * 3)
    assert "text.log" in refused(vitlab("study", "status", "a", "--storage", "journal:text.log", status=2))
    vitlab("study", "create", "other", "--space", "width=8,16", *TINY, "--storage", "sqlite:///two.db")
    line = refused(vitlab("study", "work", "a", "--storage", "sqlite:///two.db", status=2))
    assert "there is no study a at sqlite:///two.db" in line


@pytest.mark.parametrize("harm", ["page", "journal", "runs", "curve"])
def test_a_damaged_storage_is_refused_at_once(vitlab, tmp_path, harm):
    url = "journal:s.log" if harm == "journal" else "sqlite:///s.db"
    vitlab("study", "create", "s", "--space", "width=8,16", *TINY, "--storage", url)
    if harm == "journal":
        path = tmp_path / "s.log"
        path.write_bytes(b"[]\n" + path.read_bytes())
    elif harm == "page":
        path = tmp_path / "s.db"
        path.write_bytes(b"\xff\xfe".join([path.read_bytes()[:5000], path.read_bytes()[5002:9000], bytes(9000)]))
    else:
        kept = open_study("s", read_url(f"sqlite:///{tmp_path}/s.db"))
        ledger = Ledger(kept)
        _, trial = ledger.take(ledger.slots())
        ran = {"seed": 0, "accuracy": 0.5, "seconds": 1.0, "parameters": 9, "folder": "x", "device": "x"}
        ran |= {"test_accuracy": None, "curve": [[1, 2]]} if harm == "curve" else {}
        ledger.complete(trial._trial_id, [ran], [0.5])
    began = time.monotonic()
    assert "s." in refused(vitlab("study", "status", "s", "--storage", url, status=2))
    assert time.monotonic() - began < 10


def test_a_create_that_was_cut_short_can_be_done_again(vitlab, tmp_path):
    url = f"sqlite:///{tmp_path}/study.db"
    kept = created(plan("width=8,16", name="cut"), url)
    kept.storage.set_study_user_attr(kept.number, "vitlab", None)
    assert "there is no study cut" in refused(vitlab("study", "work", "cut", "--storage", url, status=2))
    vitlab("study", "create", "cut", "--space", "width=8,16", *TINY, "--storage", url)
    assert "2 waiting" in vitlab("study", "status", "cut", "--storage", url).stdout


def test_a_url_needs_no_driver_in_it_and_its_password_is_not_shown():
    place = read_url("postgresql://me:secret@host/db")
    assert place.url == "postgresql+psycopg://me:secret@host/db"
    assert place.shown == "postgresql://me:***@host/db"


def test_without_optuna_one_line_says_what_to_install(vitlab, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for words in (("create", "a", "--space", "width=8,16"), ("work", "a"), ("best", "a")):
        assert "pip install 'vitlab[study]'" in refused(vitlab("study", *words, status=2))


def test_the_program_starts_without_optuna():
    code = "import sys, vitlab.cli; sys.exit('optuna' in sys.modules or 'sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
