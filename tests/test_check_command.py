"""vitlab check, as a student, a teacher and a test call it."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from conftest import refused

HERE = Path(__file__).parent

SOUND = """
from mistaken import Sound

class ViT(Sound):
    pass
"""
SUBMISSIONS = {
    "sound.py": SOUND,
    "softmax.py": "from mistaken import SoftmaxTwice as Model\nclass ViT(Model):\n    pass\n",
    "prints.py": "print('hello')\n" + SOUND + "    def forward(self, x):\n        print(x.shape)\n"
    "        return super().forward(x)\n",
    "trains.py": "import time\nprint('epoch 1')\ntime.sleep(1000)\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "dies.py": "import os\nos.abort()\n",
    "leaves.py": "from mistaken import Leaving as ViT\nmodel = ViT()\n",
    "broken.py": "import torch\nclass ViT(torch.nn.Module:\n    pass\n",
    "raises.py": "import torch\n\nclass ViT(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        raise ValueError('no such patch')\nmodel = ViT()\n",
    "wrong.py": "import torch\n\ncriterion = torch.nn.CrossEntropyLoss()\n\nclass ViT(torch.nn.Linear):\n"
    "    def __init__(self):\n        super().__init__(3, 3)\n\n    def forward(self, x):\n"
    "        raise ValueError('odd shape')\n",
    "argues.py": "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', required=True)\n"
    "parser.parse_args()\n",
    "asks.py": "patch = int(input('patch size? '))\n",
    "eats.py": "import torch\nheap = torch.ones(40, 2**28)\n",
    "empty.py": "x = 1\n",
    "sleeps.py": "from mistaken import Sleeping\nmodel = Sleeping()\n",
    "nan.py": "from mistaken import NotANumber\nmodel = NotANumber()\n",
    "wants.py": "import torch\nclass ViT(torch.nn.Module):\n    def __init__(self, patch, width):\n"
    "        super().__init__()\n",
}


@pytest.fixture
def folder(tmp_path):
    """A teacher's folder: some sound, some not, some that cannot be checked at all."""
    made = tmp_path / "submissions"
    made.mkdir()
    for name, text in SUBMISSIONS.items():
        (made / name).write_text(text, encoding="utf-8")
    shutil.copy(HERE / "mistaken.py", tmp_path / "mistaken.py")
    (made / "group").mkdir()
    (made / "group" / "model.py").write_text(SOUND, encoding="utf-8")
    (made / "group" / "train.py").write_text("raise RuntimeError\n", encoding="utf-8")
    return made


@pytest.fixture
def environment(tmp_path, monkeypatch):
    before = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *([before] if before else [])]))
    shutil.copy(HERE / "mistaken.py", tmp_path / "mistaken.py")


def test_a_folder_of_submissions_makes_one_table(program, folder, environment, tmp_path):
    quick = ("--skip", "overfit", "export", "--seconds", "5", "--memory", "4")
    done = program("check", "--folder", "submissions", *quick, "--json", "--html", "page.html", status=1)
    reports = {Path(report["target"]).name: report for report in json.loads(done.stdout)}
    assert reports.keys() == {*SUBMISSIONS, "model.py"}
    for name in ("sound.py", "prints.py", "model.py"):
        assert reports[name]["healthy"], reports[name]
        assert not reports[name]["trouble"]
    mistakes = {
        name: {probe for probe, asked in report["asked"].items() if asked["finding"]["verdict"] == "mistake"}
        for name, report in reports.items()
    }
    assert mistakes["softmax.py"] == {"output"}
    assert mistakes["leaves.py"] == {"batch-sizes"}
    asleep = reports["sleeps.py"]["asked"]["batch-sizes"]["finding"]
    assert (asleep["verdict"], asleep["measured"]) == ("unknown", "no answer within 5 s")
    assert set(reports["sleeps.py"]["asked"]) == set(reports["sound.py"]["asked"])
    assert "status 3" in reports["leaves.py"]["asked"]["batch-sizes"]["finding"]["measured"]
    assert set(reports["leaves.py"]["asked"]) == set(reports["sound.py"]["asked"])  # the rest was asked all the same
    troubles = {
        "trains.py": "no answer within 5 s", "exits.py": "it calls exit(3)", "dies.py": "SIGABRT",
        "broken.py": "SyntaxError", "raises.py": "ValueError: no such patch (raises.py, line 6)",
        "wrong.py": "ViT of wrong.py cannot be asked: no usual picture shape",
        "argues.py": "it calls exit(2) when it is imported or built; it last printed: argues.py: error: the following "
        "arguments are required: --data",
        "asks.py": "asks for input", "eats.py": "memory", "empty.py": "defines no nn.Module",
        "wants.py": "ViT needs patch, width", "nan.py": "not all finite",
    }  # fmt: skip
    for name, words in troubles.items():
        assert words in reports[name]["trouble"], reports[name]
        assert not reports[name]["healthy"]
        assert "\n" not in reports[name]["trouble"]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(name in page for name in SUBMISSIONS)
    assert "http://" not in page
    assert "https://" not in page


def test_the_table_has_what_is_open_and_folders_without_a_file(vitlab, environment, tmp_path):
    made = tmp_path / "submissions"
    (made / "nothing").mkdir(parents=True)
    (made / "mine.py").write_text("from mistaken import Rounded\nmodel = Rounded()\n", encoding="utf-8")
    words = ("--folder", "submissions", "--only", "reach", "neighbours")
    told = vitlab("check", *words).stdout
    assert told.splitlines()[0].split() == ["model", "weights", "mistakes", "warnings", "open"]
    assert told.splitlines()[1].split()[-2:] == ["none", "reach"]
    assert "no Python file in submissions/nothing" in told


@pytest.mark.usefixtures("one_core")
def test_on_one_core_models_are_checked_one_after_the_other(vitlab, environment, tmp_path):
    noted = f"import time\nlog = open({str(tmp_path / 'log')!r}, 'a', buffering=1)\n"
    noted += "print('begun', file=log)\ntime.sleep(0.5)\nprint('done', file=log)\n"
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(noted + SOUND, encoding="utf-8")
    vitlab("check", "one.py", "two.py", "--only", "reach")
    assert (tmp_path / "log").read_text().split() == ["begun", "done"] * 2


def test_only_the_model_that_was_built_is_spoken_of(vitlab, environment, tmp_path):
    """Its parts want arguments, which is no reason that it has no answer."""
    (tmp_path / "mine.py").write_text(
        "import mistaken\nfrom torch import nn\n\nclass Part(nn.Module):\n    def __init__(self, width):\n"
        "        super().__init__()\n\nclass ViT(mistaken.Sound):\n    def forward(self, x):\n"
        "        return super().forward(x).argmax(1)\n",
        encoding="utf-8",
    )
    told = " ".join(vitlab("check", "mine.py", status=1).stdout.split())
    assert "ViT of mine.py cannot be asked: the model returns a tensor of shape (2,), not (batch, classes)" in told
    assert "width" not in told
    assert "BadInput" not in told


def test_the_report_of_one_model(vitlab, environment, tmp_path):
    (tmp_path / "mine.py").write_text(SUBMISSIONS["softmax.py"], encoding="utf-8")
    done = vitlab("check", "mine.py:ViT", "--html", "mine.html", status=1)
    assert "mine.py:ViT · 1×28×28 → 10 classes" in done.stdout
    assert "✗ output" in done.stdout
    assert "cannot fall below 1.46" in " ".join(done.stdout.split())
    assert "1 mistake, 14 fine" in done.stdout
    page = (tmp_path / "mine.html").read_text(encoding="utf-8")
    assert "how strongly each pixel moves the output" in page
    assert page.count("<img ") >= 1


def test_a_sound_model_is_told_so(vitlab, environment, tmp_path):
    (tmp_path / "mine.py").write_text(SOUND, encoding="utf-8")
    done = vitlab("check", "mine.py", "--only", "reach", "neighbours")
    assert "no mistakes found, 2 fine" in done.stdout


def test_arguments_and_shape_are_given_to_the_model(vitlab, environment, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import mistaken\ndef build(batch_first):\n    return mistaken.BatchFirst(batch_first)\n",
        encoding="utf-8",
    )
    only = ("--only", "neighbours", "--shape", "1x28x28")
    assert "no mistakes" in vitlab("check", "mine.py:build(batch_first=True)", *only).stdout
    assert "✗ neighbours" in vitlab("check", "mine.py", "--model", "build(batch_first=False)", *only, status=1).stdout


def test_a_run_and_a_librarys_model_are_checked_by_name(vitlab, trained):
    done = vitlab("check", str(trained), "--only", "reach", "every-picture")
    assert "all 2,000 test pictures are seen" not in done.stdout  # what is fine is named, not told
    assert "2 fine" in done.stdout
    small = "timm:vit_tiny_patch16_224(img_size=32,patch_size=8,depth=2,num_classes=10)"
    assert "2 fine" in vitlab("check", small, "--only", "reach", "positions").stdout


LOADERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from mistaken import Sound

def pictures(count):
    return TensorDataset(torch.randn(count, 1, 28, 28), torch.zeros(count))

def data():
    return DataLoader(pictures(64), 32), DataLoader(pictures(33), 32, drop_last=True)

model = Sound()
"""


@pytest.mark.parametrize("held", [True, False])
def test_the_loaders_of_a_file_are_looked_at(vitlab, environment, tmp_path, held):
    (tmp_path / "mine.py").write_text(LOADERS + "train_loader, test_loader = data()\n" * held, encoding="utf-8")
    words = () if held else ("--loaders", "data")
    done = vitlab("check", "mine.py", *words, "--skip", "overfit", "export", status=1)
    assert "✗ every-picture" in done.stdout
    assert "32 of 33 test pictures are seen" in done.stdout
    assert "1 mistake, 16 fine" in done.stdout


def test_interrupted_it_leaves_no_process_behind(begin, environment, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os, pathlib, time\npathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(1000)\n",
        encoding="utf-8",
    )
    started, pid = begin("check", "mine.py"), tmp_path / "pid"
    started.wait_for(lambda: pid.exists() and pid.read_text())
    started.send(signal.SIGINT)
    done = started.end()
    assert (done.returncode, done.stderr) == (130, "vitlab: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "nothing to check"),
        (("mine.py", "--html", "nowhere/page.html"), "cannot write nowhere/page.html: nowhere is no folder"),
        (("mine.py", "--html", "."), "it is a folder"),
        (("no.py:ViT",), "no file no.py"),
        (("nothing",), "'nothing' is no file.py:Class"),
        (("timm:",), "is no file.py:Class"),
        (("mine.py:ViT(3)",), "cannot read '(3)'"),
        (("mine.py", "--shape", "28x28"), "'28x28' is no picture shape"),
        (("mine.py", "--only", "reech"), "did you mean 'reach'?"),
        (("--folder", "nowhere"), "no folder nowhere"),
        ((".",), "write --folder ."),
        (("mine.py", "--seconds", "0"), "must be more than 0"),
        (("--folder", "."), "no Python file"),
    ],
)
def test_bad_input_is_refused_in_one_line(vitlab, tmp_path, words, answer):
    if "mine.py" in " ".join(words):
        (tmp_path / "mine.py").write_text("x = 1\n", encoding="utf-8")
    assert answer in refused(vitlab("check", *words, status=2))


def test_the_probes_are_listed_with_their_thresholds(vitlab):
    listed = " ".join(vitlab("check", "--list").stdout.split())
    assert "neighbours" in listed
    assert "a factor of 1,000" in listed
