"""The command line as a person meets it: what it says, and how it refuses."""

import errno
import inspect
import io
import json
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE

import apart
import numpy as np
import pytest
import torch
from conftest import QUICK, refused
from PIL import Image

from vitlab import cli, recipes
from vitlab.engine.run import open_run


@pytest.fixture
def say(capsys):
    """The command line in this process: (exit status, what it printed, what it complained of)."""

    def call(*words) -> tuple[int, str, str]:
        status = 0
        try:
            cli.main(list(map(str, words)))
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("tran", "digits"), "did you mean 'train'"),
        (("train",), "RECIPE"),
        (("train", "digit"), "did you mean 'digits'"),
        (("train", "digits", "--nam", "x"), "did you mean '--name'"),
        (("train", "digits", "--epochs", "5"), "--epochs, 5; a setting is written epochs=5"),
        (("finetune", "x", "--learning-rate=1e-3"), "a setting is written learning_rate=1e-3"),
        (("train", "digits", "--name", "../x"), "no name for a run"),
        (("train", "digits", "epochs"), "write name=value"),
        (("train", "digits", "epochs=many"), "epochs must be a whole number, not 'many'"),
        (("train", "digits", "epochs=-1"), "epochs must be 0 or more"),
        (("train", "digits", "epocs=3"), "did you mean 'epochs'"),
        (("train", "digits", "attention=sofmax"), "did you mean 'softmax'"),
        (
            ("train", "digits", "attention.dropout=0.1", "dropout=0.1"),
            "could be model.attention.dropout or model.block",
        ),
        (
            ("train", "digits", "patch=5"),
            "patches of 5 do not divide pictures of 28×28: choose from 1, 2, 4, 7, 14, 28",
        ),
        (("train", "digits", "heads=5"), "5 heads do not divide a width of 64"),
        (("train", "digits", "learning_rate=nan"), "learning_rate must be a number"),
        (("train", "digits", "data.source=folder:nowhere"), "nowhere"),
        (("train", "digits", "data.source=npz:nowhere.npz"), "nowhere.npz"),
        (("train", "digits", "data.source=mnist", "--data", "nowhere"), "vitlab data get mnist"),
        (("train", "digits", "--device", "warp"), "no device 'warp'"),
        (("train", "digits", "by_turns=yes", "flip=no"), "none is: use flip=yes with it"),
        (("train", "digits", "lr=0.1"), "did you mean 'learning_rate'"),
        (("train", "digits", "embed_dim=32"), "did you mean 'width'"),
        (("train", "mnist"), "did you mean 'mnist-best' or 'mnist-dino' or 'mnist-three-epochs'?"),
        (("check", "x.py", "--only", "reach", "--skip", "reach"), "no probe is left"),
        (("evaluate", "x", "--name", "y"), "--name"),
        (("train", "nowhere.json"), "cannot read nowhere.json"),
        (("resume", "nowhere"), "no run at nowhere"),
        (("evaluate", "nowhere"), "no run at nowhere"),
        (("evaluate", "x" * 300), "xxx…: the name is too long"),
        (("train", ""), "no recipe called ''"),
        (("predict", "nowhere", "a.png"), "no run at nowhere"),
        (("data", "fetch"), "invalid choice 'fetch'"),
        (("data", "get"), "name a data set"),
        (("data", "get", "minst"), "did you mean 'mnist'"),
        (("settings", "digits", "width=x"), "width must be a whole number"),
        (("labels", "x", "--shares", "0.1", "epochs=1"), "--shares cannot take 'epochs=1': settings come before"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(say, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    status, _, complaint = say(*words)
    assert status == 2
    assert complaint.startswith("vitlab: ")
    assert complaint.count("\n") == 1
    assert expected in complaint
    assert not list(tmp_path.iterdir())


def test_a_run_from_the_first_command_to_the_last(program, vitlab, tmp_path):
    trained = program("train", "digits", *QUICK)
    assert "epoch 3/3" in trained.stdout
    assert "95 % interval" in trained.stdout
    assert {path.name for path in (tmp_path / "runs/digits").iterdir()} == {
        "experiment.json", "data.json", "environment.json", "metrics.jsonl", "seen.safetensors", "weights.safetensors",
        "predictions.safetensors", "result.json", "report.html", "lock",
    }  # fmt: skip
    stated = json.loads((tmp_path / "runs/digits/result.json").read_text())["test_accuracy"]
    assert json.loads(vitlab("evaluate", "runs/digits", "--as-json").stdout)["accuracy"] == stated
    assert f"test accuracy {stated:.2%}" in vitlab("evaluate", "runs/digits").stdout
    again = vitlab("train", "runs/digits/experiment.json", "--name", "again", "--quiet")
    assert [line.split()[0] for line in again.stdout.splitlines()] == ["test", "trained"]
    same = [(tmp_path / "runs" / name / "weights.safetensors").read_bytes() for name in ("digits", "again")]
    assert same[0][-1000:] == same[1][-1000:]
    assert "digits-2" in vitlab("train", "digits", *QUICK, "epochs=1").stdout
    assert "is there already" in refused(vitlab("train", "digits", *QUICK, "--name", "again", status=2))


def test_evaluate_gives_the_balanced_accuracy_of_classes_of_many_and_of_few_pictures(vitlab, tmp_path):
    random = np.random.default_rng(0)
    labels = np.array([0] * 60 + [1] * 20 + [2] * 20)
    pictures = random.integers(0, 200, (100, 14, 14), np.uint8)
    pictures[labels == 1, :, :7] = 255
    half = np.arange(100) % 2 == 0
    np.savez(
        tmp_path / "own.npz", x_train=pictures[half], y_train=labels[half], x_test=pictures[~half],
        y_test=labels[~half], classes=np.array(["many", "few", "rare"]),
    )  # fmt: skip
    vitlab("train", "digits", *QUICK, "data.source=npz:own.npz", "limit=0", "patch=7", "--name", "own", "--quiet")
    told = json.loads(vitlab("evaluate", "runs/own", "--as-json").stdout)
    evaluation = open_run("runs/own").evaluation
    guesses, truth = evaluation.logits.numpy().argmax(axis=1), evaluation.labels.numpy()
    right = [int((guesses[truth == label] == label).sum()) for label in range(3)]
    names = zip(("many", "few", "rare"), right, (30, 10, 10), strict=True)
    assert told["classes"] == {name: {"right": r, "count": n} for name, r, n in names}
    balanced = (right[0] / 30 + right[1] / 10 + right[2] / 10) / 3
    assert told["balanced_accuracy"] == pytest.approx(balanced)
    assert balanced != pytest.approx(told["accuracy"])
    assert f"balanced accuracy {balanced:.2%}" in vitlab("evaluate", "runs/own").stdout
    assert f"balanced accuracy is {100 * balanced:.1f}" in Path("runs/own/report.html").read_text(encoding="utf-8")


def test_predict_reads_any_picture(trained, say, tmp_path):
    dark, light = tmp_path / "dark.png", tmp_path / "light.jpg"
    digit = np.zeros((60, 40), np.uint8)
    digit[10:50, 18:23] = 255
    Image.fromarray(digit).save(dark)
    Image.fromarray(255 - digit).convert("RGB").save(light)
    status, printed, complaint = say("predict", trained, dark, light, "--top", "2")
    assert (status, complaint) == (0, "")
    assert [line.split(":")[0] for line in printed.splitlines()] == [str(dark), str(light)]
    status, printed, complaint = say("predict", trained, light)
    assert "--invert" in complaint
    first = json.loads(say("predict", trained, dark, "--format", "jsonl")[1])
    assert sum(first["probabilities"]) == pytest.approx(1, abs=1e-5)
    assert sorted(first["classes"]) == list("0123456789")
    (tmp_path / "no.png").write_text("not a picture")
    status, printed, complaint = say("predict", trained, tmp_path / "no.png")
    assert (status, complaint.count("\n")) == (2, 1)
    assert say("predict", trained)[0] == 2


def test_help_names_every_verb_and_recipe(say):
    status, printed, _ = say("--help")
    assert status == 0
    words = printed.split()
    assert {*cli.VERBS, *recipes.names()} <= set(words)
    assert recipes.summary("digits") in " ".join(words)
    assert say()[:2] == (0, printed)
    for verb, function in cli.VERBS.items():
        assert inspect.getdoc(function).partition("\n")[0] in " ".join(words)
        status, printed, _ = say(verb, "--help")
        assert status == 0
        assert "(default: None)" not in printed


def test_a_help_text_is_broken_where_the_terminal_ends_and_not_where_the_source_does(say):
    assert "npz:FILE; or a" in say("train", "--help")[1]


def test_the_version_is_that_of_the_package(say):
    assert say("--version")[:2] == (0, f"vitlab {version('vitlab')}\n")


def test_settings_show_values_choices_and_meanings(say):
    printed = " ".join(say("settings", "digits", "attention=linformer")[1].split())
    assert "model.attention.k" in printed
    assert "softmax | linformer" in printed


def test_data_list_names_every_set(say, tmp_path):
    _, printed, _ = say("data", "list", "--data", tmp_path)
    assert all(name in printed for name in ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100"))
    assert say("data", "check", "digits")[0] == 0
    assert "embedded" in say("data", "get", "digits")[1]


def test_a_terminal_of_any_encoding_or_none_is_written_to(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    cli.main(["data", "list", "--data", str(tmp_path)])
    sys.stdout.flush()
    assert rb"3\xd732\xd732" in sys.stdout.buffer.getvalue()
    monkeypatch.setattr(sys, "stdout", None)
    cli.main(["data", "list", "--data", str(tmp_path)])
    sys.stdout.close()


def test_what_the_machine_lacks_is_said_in_one_line_wherever_it_is_met(vitlab, monkeypatch):
    def lacking(words: list[str], alone: bool) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/proc/cpuinfo")

    monkeypatch.setattr(cli, "run_verb", lacking)
    assert "cannot use /proc/cpuinfo: too many files are open" in refused(vitlab("settings", status=2))


@pytest.mark.parametrize("ask", [lambda: torch.empty(2**50, dtype=torch.uint8), lambda: bytearray(2**50)])
def test_too_little_memory_is_said_in_one_line_wherever_it_is_met(vitlab, monkeypatch, ask):
    monkeypatch.setattr(cli, "run_verb", lambda words, alone: ask())
    assert "there is too little memory" in refused(vitlab("train", "digits", status=2))


def test_a_place_that_is_taken_for_a_recipe_is_told_what_to_write(trained, vitlab, tmp_path):
    (tmp_path / "photos" / "cats").mkdir(parents=True)
    (tmp_path / "photos.zip").write_bytes(b"")
    (tmp_path / "photos.npz").write_bytes(b"")
    for name, kind in (("photos", "folder"), ("photos.zip", "folder"), ("photos.npz", "npz")):
        assert f"write {kind}:{name}" in refused(vitlab("train", name, status=2))
    assert f"{trained} is a run: 'vitlab resume' goes on" in refused(vitlab("train", trained, status=2))


@pytest.mark.parametrize("start", [("-m", "vitlab"), (str(Path(sys.executable).with_name("vitlab")),)])
def test_an_interrupt_while_everything_is_loaded_ends_it_without_a_word(start):
    with subprocess.Popen([sys.executable, *start, "settings"], stdout=PIPE, stderr=PIPE) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while "libtorch_cpu" not in maps.read_text():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"")
    assert process.returncode == -signal.SIGINT


MASKED = """
import logging, os, signal, time
from vitlab import cli, recipes

class Noisy:
    def __del__(self):
        raise ValueError("half undone")

def verb(words, alone):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        Noisy()
        logging.error("a broken connection")
        raise ValueError("could not determine the shape")

cli.run_verb = verb
cli.main(["train"])
"""


def test_what_other_code_makes_of_ctrl_c_is_ctrl_c(tmp_path):
    done = apart.Started(tmp_path, tmp_path, apart.script, MASKED).end()
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "vitlab: interrupted\n")
