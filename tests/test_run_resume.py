"""A run may be killed at any instant and resumed to the same bits; what is damaged is named and left alone."""

import json
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import QUICK, refused
from safetensors.torch import load_file

import vitlab
from vitlab import open_run
from vitlab.engine import loop
from vitlab.engine.run import Run, claim_run
from vitlab.engine.storage import read_tensors, write, write_tensors


def start(folder: Path, *overrides: str) -> None:
    """Train or resume `folder`: what each process of these tests does."""
    if (folder / "experiment.json").exists():
        if not vitlab.open_run(folder).finished:  # a kill may come after the very last write
            vitlab.resume(folder, quiet=True)
    else:
        vitlab.train("digits", *QUICK, *overrides, name=folder.name, runs=folder.parent, quiet=True)


def bits(folder: Path) -> tuple[bytes, list[dict]]:
    """Final weights, and the metrics without what the clock decides."""
    tensors = load_file(folder / "weights.safetensors")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["seconds"], line["images_per_second"]
    return b"".join(tensors[name].numpy().tobytes() for name in sorted(tensors)), lines


@pytest.mark.parametrize(
    "extra", [(), ("optimiser=muon", "ema=0.9", "model.block.dropout=0.1", "mixup=1", "rotate=10")]
)
def test_the_same_seed_gives_the_same_bits(tmp_path, extra):
    for name in ("first", "second"):
        start(tmp_path / name, *extra)
    start(tmp_path / "other", *extra, "seed=1")
    assert bits(tmp_path / "first") == bits(tmp_path / "second")
    assert bits(tmp_path / "first")[0] != bits(tmp_path / "other")[0]


LONGER = (*QUICK, "epochs=12", "checkpoint=1000")


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory) -> Path:
    """A longer run that nobody stopped."""
    return vitlab.train("digits", *LONGER, runs=tmp_path_factory.mktemp("whole"), quiet=True).folder


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_saves_and_says_how_to_go_on(tmp_path, vitlab, begin, never_stopped, kind):
    started, metrics = begin("train", "digits", *LONGER), tmp_path / "runs/digits/metrics.jsonl"
    started.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2)
    started.send(kind)
    done = started.end()
    assert done.returncode == 130
    assert done.stderr.count("\n") == 1
    assert done.stderr.rstrip().endswith("go on with: vitlab resume runs/digits")
    assert "test accuracy" in vitlab("resume", "runs/digits").stdout
    assert bits(tmp_path / "runs/digits") == bits(never_stopped)


def stop_after(steps: int, folder: Path, monkeypatch) -> None:
    """Train a new run and ask it to stop after this many steps."""
    asked = iter([False] * (steps - 1) + [True])

    @contextmanager
    def counted():
        yield lambda: next(asked)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "stop_requests", counted)
        with pytest.raises(loop.Stopped, match=f"after step {steps} of 24"):
            start(folder, "checkpoint=1000")


@pytest.fixture
def stopped(tmp_path, monkeypatch) -> Path:
    """A run that stands in its second epoch."""
    stop_after(10, tmp_path / "stopped", monkeypatch)
    return tmp_path / "stopped"


@pytest.mark.parametrize("steps", [1, 7, 8, 9, 23])
def test_stopped_anywhere_in_an_epoch_of_8_steps_it_ends_in_the_same_bits(tmp_path, monkeypatch, steps):
    stop_after(steps, tmp_path / "stopped", monkeypatch)
    for name in ("stopped", "whole"):
        start(tmp_path / name)
    assert bits(tmp_path / "stopped") == bits(tmp_path / "whole")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 100, 0.5, 0.99])
def test_a_cut_checkpoint_is_named_and_left_alone(stopped, keep):
    path = stopped / "checkpoint.safetensors"
    content = path.read_bytes()
    cut = content[: int(len(content) * keep) if isinstance(keep, float) else keep]
    path.write_bytes(cut)
    before = (stopped / "metrics.jsonl").read_text()
    with pytest.raises(vitlab.BadInput, match=r"checkpoint\.safetensors"):
        start(stopped)
    assert path.read_bytes() == cut
    assert (stopped / "metrics.jsonl").read_text() == before


def test_a_flipped_bit_is_noticed_and_the_good_file_goes_on(stopped, vitlab):
    path = stopped / "checkpoint.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-100] + bytes([content[-100] ^ 4]) + content[-99:])
    assert "checksum" in refused(vitlab("resume", stopped, status=2))
    path.write_bytes(content)
    vitlab("resume", stopped)


def test_an_unreadable_checkpoint_is_named(stopped):
    path = stopped / "checkpoint.safetensors"
    path.unlink()
    path.mkdir()
    with pytest.raises(vitlab.BadInput, match=r"cannot read .*checkpoint\.safetensors"):
        start(stopped)


def test_a_full_disk_loses_nothing(stopped, vitlab):
    """/dev/full answers every write with 'no space left', as a full disk does."""
    before = (stopped / "checkpoint.safetensors").read_bytes()
    (stopped / ".checkpoint.safetensors.part").symlink_to("/dev/full")
    line = refused(vitlab("resume", stopped, status=2))
    assert "the disk is full" in line
    assert (stopped / "checkpoint.safetensors").read_bytes() == before
    start(stopped)
    start(stopped.with_name("whole"))
    assert bits(stopped) == bits(stopped.with_name("whole"))


def test_two_processes_never_share_a_folder(stopped, program):
    with open_run(stopped).hold():
        assert "in use by another process" in refused(program("resume", stopped, status=2))
    start(stopped)


def test_new_runs_never_share_a_folder(tmp_path):
    taken = [claim_run(tmp_path, "run", exact=False).name for _ in range(3)]
    assert taken == ["run", "run-2", "run-3"]
    (tmp_path / "file").touch()
    with pytest.raises(vitlab.BadInput, match=r"cannot make .*file"):
        claim_run(tmp_path, "file", exact=True)
    start(tmp_path / "mine")
    with pytest.raises(vitlab.BadInput, match="is there already"):
        vitlab.train("digits", *QUICK, name="mine", runs=tmp_path, quiet=True)


def test_changed_pictures_are_noticed(tmp_path, vitlab):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.integers(0, 255, (40, 8, 8), dtype=np.uint8), "y_train": np.arange(40) % 2}
    np.savez(tmp_path / "own.npz", **arrays)
    words = ("data.source=npz:own.npz", "patch=4", "width=8", "epochs=1", "heads=2", "--name", "own")
    vitlab("train", "digits", *words)
    (tmp_path / "runs/own/report.html").unlink()
    arrays["x_train"][0, 0, 0] += 1
    np.savez(tmp_path / "own.npz", **arrays)
    assert "have changed" in refused(vitlab("resume", "runs/own", status=2))


def test_changed_test_pictures_are_noticed_but_by_a_run_of_an_older_version(tmp_path, vitlab):
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.integers(0, 255, (40, 8, 8), dtype=np.uint8), "y_train": np.arange(40) % 2}
    arrays |= {"x_test": rng.integers(0, 255, (9, 8, 8), dtype=np.uint8), "y_test": np.arange(9) % 2}
    np.savez(tmp_path / "own.npz", **arrays)
    words = ("data.source=npz:own.npz", "patch=4", "width=8", "epochs=1", "heads=2", "--name", "own")
    vitlab("train", "digits", *words)
    vitlab("evaluate", "runs/own")
    arrays["x_test"][0, 0, 0] += 1
    np.savez(tmp_path / "own.npz", **arrays)
    for verb in ("evaluate", "report"):
        assert "have changed since it was trained" in refused(vitlab(verb, "runs/own", status=2))
    card = json.loads((tmp_path / "runs/own/data.json").read_text())
    del card["tested"]
    (tmp_path / "runs/own/data.json").write_text(json.dumps(card))
    assert "test accuracy" in vitlab("evaluate", "runs/own").stdout


def test_a_loss_that_is_no_number_stops_with_the_step_and_the_last_good_checkpoint(tmp_path, vitlab):
    line = refused(
        vitlab("train", "digits", *QUICK, "optimiser=adamw", "learning_rate=1e30", "warmup=2.9", "clip=0", status=2)
    )
    assert "no longer a number at step" in line
    step = int(line.split("checkpoint is step ")[1].split()[0])
    tensors, facts = read_tensors(tmp_path / "runs/digits/checkpoint.safetensors")
    assert facts["step"] == step
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_a_finished_run_is_not_trained_again(trained, vitlab):
    assert "is finished" in refused(vitlab("resume", trained, status=2))


def test_a_run_can_be_moved(stopped, tmp_path):
    start(tmp_path / "whole")
    moved = Path(shutil.move(stopped, tmp_path / "moved"))
    start(moved)
    assert bits(moved) == bits(tmp_path / "whole")


FIRST = Path(__file__).parent / "data" / "first-version"  # runs of vitlab's first commit, one ended and one stopped


def test_a_run_of_the_first_version_is_read_and_its_checkpoint_is_refused_in_one_line(tmp_path, vitlab):
    shutil.copytree(FIRST, tmp_path, dirs_exist_ok=True)
    stated = json.loads((FIRST / "ended/result.json").read_text())["test_accuracy"]
    for verb in ("evaluate", "report"):
        assert f"test accuracy {stated:.2%}" in vitlab(verb, "ended").stdout
    vitlab("finetune", "ended", "epochs=1")
    assert "another version of vitlab" in refused(vitlab("resume", "stopped", status=2))
    for path in FIRST.glob("stopped/*"):
        assert (tmp_path / "stopped" / path.name).read_bytes() == path.read_bytes()


def test_two_that_write_one_file_at_once_leave_it_whole(tmp_path):
    path, seen, both = tmp_path / "page.html", set(), [bytes([letter]) * 300_000 for letter in b"ab"]

    def write_often(content: bytes) -> None:
        for _ in range(30):
            write(path, content)
            seen.add(path.read_bytes())

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write_often, content) for content in both]:
            done.result()
    assert seen <= set(both)
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_a_folder_or_a_link_to_one_is_not_written_over(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    for place in ("folder", "link", ""):
        with pytest.raises(vitlab.BadInput, match="it is a folder"):
            write(Path(place), b"page")
    assert (tmp_path / "link").is_symlink()


def test_tensors_survive_storage(tmp_path):
    tensors = {
        "bfloat16": torch.randn(3, 4).bfloat16(), "scalar": torch.tensor(1.5), "empty": torch.empty(0, 2),
        "transposed": torch.randn(3, 4).T, "integers": torch.arange(5),
    }  # fmt: skip
    write_tensors(tmp_path / "t.safetensors", tensors, {"step": 3})
    back, facts = read_tensors(tmp_path / "t.safetensors")
    assert facts == {"step": 3}
    assert all(torch.equal(back[name], tensor) and back[name].dtype == tensor.dtype for name, tensor in tensors.items())


@pytest.fixture
def damaged(trained, tmp_path):
    """A copy of a finished run, one of whose files is replaced."""
    folder = shutil.copytree(trained, tmp_path / "damaged")

    def replace(name: str, content: object) -> Run:
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
        return Run(folder)

    return replace


@pytest.mark.parametrize(
    ("name", "content", "ask", "said"),
    [
        ("result.json", [], lambda run: run.result, "no JSON object"),
        ("result.json", {"test_accuracy": "x"}, lambda run: run.result, "test_accuracy is no number"),
        ("result.json", {"epochs": 10**400}, lambda run: run.result, "epochs is no number"),
        ("result.json", {"count": 9, "low": float("nan")}, lambda run: run.result, "low is no number"),
        ("result.json", {"count": -1}, lambda run: run.result, "count is -1"),
        ("result.json", {}, lambda run: run.result["low"], "it lacks low"),
        ("environment.json", {"device": 1}, lambda run: run.environment, "it lacks command"),
        ("metrics.jsonl", '{"step": 1}\n[]\n', lambda run: run.metrics(), "line 2, is damaged: it is no JSON object"),
        ("metrics.jsonl", '{"loss": 1}\n', lambda run: run.forget_after(0), "line 1, is damaged: it lacks step"),
        ("calibration.json", {"temperature": 0}, lambda run: run.temperature, "should be above 0"),
        ("calibration.json", {"temperature": [1]}, lambda run: run.temperature, "temperature must be a number"),
        ("calibration.json", "[" * 100_000, lambda run: run.temperature, "nested too deeply"),
    ],
)
def test_a_damaged_file_of_a_run_is_named_in_one_line(damaged, name, content, ask, said):
    with pytest.raises(vitlab.BadInput) as refusal:
        ask(damaged(name, content))
    assert said in str(refusal.value)
    assert name in str(refusal.value)


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"logits": torch.zeros(3, 2)}, "it lacks 'labels'"),
        ({"logits": torch.zeros(3), "labels": torch.zeros(3, dtype=torch.int64)}, r"logits \(3,\)"),
        ({"logits": torch.zeros(3, 2), "labels": torch.zeros(2, dtype=torch.int64)}, r"labels \(2,\)"),
        ({"logits": torch.zeros(3, 2), "labels": torch.arange(3)}, "labels from 0 to 2 for 2 classes"),
    ],
)
def test_predictions_that_are_none_are_refused(tmp_path, tensors, said):
    write_tensors(tmp_path / "predictions.safetensors", tensors, {})
    with pytest.raises(vitlab.BadInput, match=said):
        _ = Run(tmp_path).evaluation


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("experiment.json", "width", 10**9), ("experiment.json", "depth", 10**9), ("experiment.json", "mlp", 1e12),
        ("data.json", "height", 10**9), ("data.json", "width", 0), ("data.json", "mean", []),
        ("data.json", "classes", []), ("data.json", "classes", ["\x1b[2J", "b"]),
    ],
)  # fmt: skip
def test_a_header_that_lies_takes_no_memory_and_no_time(damaged, trained, name, key, value):
    def changed(content):
        if isinstance(content, dict):
            return {k: value if k == key else changed(v) for k, v in content.items()}
        return content

    run = damaged(name, changed(json.loads((trained / name).read_text())))
    began = time.monotonic()
    with pytest.raises(vitlab.BadInput):
        run.model()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("harm", ["facts", "step", "state", "shape", "words"])
def test_a_checkpoint_of_another_run_is_refused(stopped, harm):
    path = stopped / "checkpoint.safetensors"
    tensors, facts = read_tensors(path)
    state = next(name for name in tensors if name.endswith(".exp_avg"))
    if harm == "state":
        del tensors[state]
    elif harm == "shape":
        tensors[state] = torch.zeros(3, 3, 3)
    write_tensors(
        path, tensors, {"facts": {}, "step": facts | {"step": 10**6}, "words": {"step": "x"}}.get(harm, facts)
    )
    with pytest.raises(vitlab.BadInput, match="is no checkpoint of this run"):
        start(stopped)
