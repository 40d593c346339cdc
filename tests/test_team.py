"""Several processes train one run as one process would: the same pictures, draws and losses, whoever dies."""

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from kinds import refusal
from loops import loop_of, small
from test_augment import EVERYTHING
from torch import Tensor

import vitlab
import vitlab.cli
from vitlab.chance import Chance, Share
from vitlab.data.augment import Augment
from vitlab.engine.loop import Loop
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import read_tensors
from vitlab.engine.team import Team
from vitlab.errors import BadInput
from vitlab.given import find_device
from vitlab.model import Shape, ViT
from vitlab.model.attention import Softmax
from vitlab.model.tokens import ConvPatches
from vitlab.objectives import Dino, Mae, Supervised
from vitlab.objectives.dino import Distillation
from vitlab.settings import to_json

HERE = torch.device("cpu")
TEAMS = [(8, 2), (9, 2), (13, 3), (12, 5), (64, 7)]
SMALL = ViT(width=16, depth=1, tokens=ConvPatches(7), attention=Softmax(heads=2))
WORDS = (
    "limit=330", "epochs=3", "batch=33", "width=16", "depth=1", "cutmix=1", "mixed=0.5", "erase=0.3", "flip=yes",
    "optimiser=adamw", "ema=0.9", "checkpoint=0",
)  # fmt: skip


def shares(batch: int, size: int) -> list[Share]:
    found = [Team(rank, size).share(batch, HERE) for rank in range(size)]
    assert all(found)
    return [share for share in found if share is not None]


@pytest.mark.parametrize(("batch", "size"), TEAMS)
def test_a_batch_is_shared_without_gaps_or_repeats_and_mirrors_stay_together(batch: int, size: int) -> None:
    found = shares(batch, size)
    assert sorted(torch.cat([share.places for share in found]).tolist()) == list(range(batch))
    for share in found:
        assert torch.equal(share.places.flip(0), batch - 1 - share.places), "a picture's partner is in the same share"
    counts = [len(share.places) for share in found]
    assert max(counts) - min(counts) <= 3
    assert min(counts) >= 2


def test_after_a_restart_the_same_call_goes_on_with_the_run_of_the_same_experiment(tmp_path: Path) -> None:
    """A program may train several; and runs of other calls lie beside them."""
    first, second = (vitlab.override(vitlab.recipe("digits"), [f"seed={seed}"]) for seed in (0, 1))
    before, after = Team(job="mine"), Team(job="mine", again=True)
    for name, experiment, job in (("a", second, "another"), ("b", first, "mine"), ("c", second, "mine")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(json.dumps(describe_environment(HERE) | {"job": job}))
        (tmp_path / name / "experiment.json").write_text(json.dumps(to_json(experiment)))
    assert before.begun(tmp_path, first) is None
    found = [after.begun(tmp_path, experiment) for experiment in (first, second)]
    assert [run and run.name for run in found] == ["b", "c"]
    assert Team(job="third", again=True).begun(tmp_path, first) is None


@pytest.mark.parametrize("damaged", ["{", "[]", '{"device": 1}'])
def test_after_a_restart_a_damaged_run_of_others_is_passed_over(tmp_path: Path, damaged: str) -> None:
    experiment = vitlab.recipe("digits")
    for name, environment in (("a", damaged), ("b", json.dumps(describe_environment(HERE) | {"job": "mine"}))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environment.json").write_text(environment)
        (tmp_path / name / "experiment.json").write_text(json.dumps(to_json(experiment)))
    found = Team(job="mine", again=True).begun(tmp_path, experiment)
    assert found is not None
    assert found.name == "b"


def test_a_batch_too_small_to_be_shared_is_refused() -> None:
    with pytest.raises(BadInput, match="a batch of 7 is too small for 4 processes: make it 8 or more"):
        Team(0, 4).share(7, HERE)


def test_a_model_that_mixes_a_whole_batch_is_refused_to_two(tmp_path: Path) -> None:
    """Each process has a part of it, so that attention would see other pictures than in one."""
    loop = loop_of(small("across=batch", "head=mean"), tmp_path / "run")
    assert "across=batch mixes the pictures of a whole batch: train it in one process" in refusal(
        lambda: Loop(loop.run, loop.experiment, loop.data, HERE, loop.progress, team=Team(1, 2))
    )


@pytest.mark.parametrize("count", [0, 1, 3, 7, 100])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_row_is_shared_in_order_or_read_whole_where_it_is_short(count: int, size: int) -> None:
    parts = [list(range(count))[Team(rank, size).part(count)] for rank in range(size)]
    if count < size:
        assert parts == [list(range(count))] * size
    else:
        assert [place for part in parts for place in part] == list(range(count))


def started(share: Share | None) -> Chance:
    chance = Chance(HERE, share)
    chance.start(3, 1, 5)
    return chance


@pytest.mark.parametrize(
    "augment", [EVERYTHING, Augment(trivial=True), Augment(crop=3)], ids=["all", "trivial", "crop"]
)
@pytest.mark.parametrize(("batch", "size"), TEAMS)
def test_each_picture_is_changed_as_it_would_be_in_one_process(batch: int, size: int, augment: Augment) -> None:
    pictures = torch.rand(batch, 3, 12, 16, generator=torch.Generator().manual_seed(0))
    whole = augment(pictures, started(None).device)
    for share in shares(batch, size):
        own = augment(pictures[share.places], started(share).device)
        torch.testing.assert_close(own, whole[share.places], rtol=0, atol=1e-6)


OBJECTIVES = {
    "supervised": Supervised(cutmix=1.0, mixup=0.5),
    "parts of pictures": Supervised(cutmix=1.0, window=0.5),
    "mae": Mae(),
    "dino": Dino(),
    "without prototypes": Dino(prototypes=0),
}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_the_mean_of_the_shares_losses_and_gradients_is_the_batchs(objective: Supervised | Mae | Dino) -> None:
    """With all that an objective draws; and the centre of dino's teacher, each moved from the same.

    Without prototypes, each process is given what the teacher told the others, as a sum of what each has laid out.
    """
    batch, size = 13, 3
    pictures = torch.rand(batch, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(batch) % 10
    torch.manual_seed(0)
    first = objective.build(SMALL.build(Shape(1, 28, 28), 10))
    laid: list[Tensor] = []

    def join(share: Share) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        def joined(rows: Tensor) -> tuple[Tensor, Tensor]:
            laid.append(share.laid(rows))
            return torch.stack(laid[-size:]).sum(dim=0), share.places

        return joined

    def learned(share: Share | None) -> list[Tensor]:
        """The loss, the centre where there is one, and every gradient."""
        own = slice(None) if share is None else share.places
        learner = copy.deepcopy(first)
        if share is not None:
            learner.gather_over_team = join(share)
        loss, _ = learner(*learner.batch(pictures[own], labels[own], lambda x: x, started(share), done=0.5))
        wanted = [parameter for parameter in learner.parameters() if parameter.requires_grad]
        found = torch.autograd.grad(loss, wanted, allow_unused=True)
        centre = [learner.centre] if isinstance(learner, Distillation) else []
        return [loss.detach(), *centre, *(gradient for gradient in found if gradient is not None)]

    for share in shares(batch, size):  # a first round, so that each hears of all in the second
        learned(share)
    parts = [[len(share.places) / batch * tensor for tensor in learned(share)] for share in shares(batch, size)]
    for whole, *own in zip(learned(None), *parts, strict=True):
        torch.testing.assert_close(sum(own), whole, rtol=2e-4, atol=2e-6)


def torchrun(*words: str, cwd: Path, restarts: int = 0, dies: bool = False) -> tuple[int, str]:
    """The status and the words of a job of two processes; one of them may die. None of it is left."""
    (cwd / "tmp").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    job = subprocess.Popen(
        [*command, "--max-restarts", str(restarts), *words],
        cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(cwd / "tmp")},
    )  # fmt: skip
    try:
        if dies:
            kill_the_second(job, cwd / "runs/digits", cwd / "died/digits")
        said, _ = job.communicate(timeout=120)
        return job.returncode, said
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)


def kill_the_second(job: subprocess.Popen[str], run: Path, copy: Path) -> None:
    """SIGKILL to the second process of a job, once it has learned for an epoch; the run as it stands then is copied.

    torchrun is stopped until the other has noticed by itself: it might else be ended before it can say so.
    """
    deadline, metrics = time.monotonic() + 60, run / "metrics.jsonl"
    while not (metrics.exists() and metrics.read_text().count("\n")):
        assert time.monotonic() < deadline
        assert job.poll() is None, job.communicate()[0]
        time.sleep(0.02)
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    (second,) = [pid for pid in children if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()]
    for pid in (job.pid, *children):
        os.kill(int(pid), signal.SIGSTOP)
    os.kill(int(second), signal.SIGKILL)
    for pid in children:
        while state(pid) not in ("T", "Z"):
            time.sleep(0.005)
    shutil.copytree(run, copy)  # while nobody writes: what there would be if all had been killed now
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGCONT)
    while any(state(pid) != "Z" for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(job.pid, signal.SIGCONT)


def state(pid: str) -> str:
    """R, S, T … of a process, as the system calls it; one that is gone is a Z too."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def curve(run: vitlab.Run, *names: str) -> Tensor:
    return torch.tensor([[line[name] for name in names] for line in run.metrics()])


def check_alike(run: vitlab.Run, other: vitlab.Run) -> None:
    """The stated tolerance: losses to 2e-4 of themselves, and nearly every test picture read the same."""
    assert run.finished
    assert run.evaluation.count == 2000
    names = ("step", "loss", "validation_loss")
    torch.testing.assert_close(curve(run, *names), curve(other, *names), rtol=2e-4, atol=0)
    assert torch.equal(run.evaluation.labels, other.evaluation.labels)
    assert (run.evaluation.guesses == other.evaluation.guesses).float().mean() > 0.995


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> vitlab.Run:
    return vitlab.train("digits", *WORDS, runs=tmp_path_factory.mktemp("alone"), quiet=True)


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job whose second process died: the run that it ended with, and as it stood at that death."""
    folder = tmp_path_factory.mktemp("restarted")
    status, said = torchrun("-m", "vitlab", "train", "digits", *WORDS, cwd=folder, restarts=1, dies=True)
    assert status == 0, said
    assert "another process of the team is gone" in said
    assert "[rank0]: Traceback" not in said
    assert 8 <= read_tensors(folder / "died/digits/checkpoint.safetensors")[1]["step"] < 30
    return folder


@pytest.fixture(scope="module")
def together(restarted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that trains a run, and goes on with the one that stands where a process died."""
    folder = tmp_path_factory.mktemp("together")
    shutil.copytree(restarted / "died", folder / "died")
    calls = (["train", "digits", *WORDS], ["resume", "died/digits", "--quiet"])
    (folder / "both.py").write_text("\n".join(["from vitlab.cli import main", *(f"main({call})" for call in calls)]))
    status, said = torchrun("both.py", cwd=folder)
    assert status == 0, said
    assert said.count("test accuracy") == 2, "one process speaks"
    assert not [path for path in (folder / "tmp").iterdir() if path.name.startswith("vitlab-")], (
        "the others leave nothing"
    )
    assert [path.name for path in (folder / "runs").iterdir()] == ["digits"]
    return folder


@pytest.mark.timeout(180)
def test_two_processes_learn_what_one_learns(alone: vitlab.Run, together: Path) -> None:
    run = vitlab.open_run(together / "runs/digits")
    check_alike(run, alone)
    first = ("loss", "accuracy")
    torch.testing.assert_close(curve(run, *first)[0], curve(alone, *first)[0], rtol=1e-5, atol=0)
    assert run.environment["processes"] == 2
    assert {path.name for path in run.folder.iterdir()} == {path.name for path in alone.folder.iterdir()}


@pytest.mark.timeout(180)
def test_where_one_dies_torchrun_starts_them_again_and_they_end_in_the_same_bits(
    together: Path, restarted: Path
) -> None:
    assert [path.name for path in (restarted / "runs").iterdir()] == ["digits"], "it goes on in the folder it began"
    again, whole = (vitlab.open_run(folder / "runs/digits") for folder in (restarted, together))
    assert torch.equal(again.evaluation.logits, whole.evaluation.logits)
    for name, tensor in read_tensors(again.weights)[0].items():
        assert torch.equal(tensor, read_tensors(whole.weights)[0][name]), name


@pytest.mark.timeout(180)
def test_what_two_began_one_goes_on_with_and_two_as_well(
    alone: vitlab.Run, together: Path, restarted: Path, tmp_path: Path
) -> None:
    begun = Path(shutil.copytree(restarted / "died/digits", tmp_path / "begun"))
    check_alike(vitlab.resume(begun, quiet=True), alone)
    check_alike(vitlab.open_run(together / "died/digits"), alone)


def test_what_is_for_one_process_is_refused_to_two(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as end:
        vitlab.cli.main(["evaluate", "cifar10"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "vitlab, process 1: 'evaluate' is for one process: call it without torchrun\n"


def test_two_processes_do_not_share_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    for name in ("auto", "cuda"):
        said = refusal(find_device, name)
        assert said == "2 processes on a machine with 1 GPU: start one for each GPU, or give --device cpu"
    assert find_device("cpu") == torch.device("cpu")
