"""What the documents say is true: every command runs, every example works, every figure has a record."""

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import mean
from types import ModuleType

import numpy as np
import pytest
from conftest import QUICK
from PIL import Image

from vitlab import Experiment, override, recipes
from vitlab.check.probes import PROBES
from vitlab.cli import main
from vitlab.settings import from_json

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent


MISTAKEN = "vitlab check docs/first_vit.py"  # finds its mistakes, and says so by its exit status


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """The repository as a user has it, with its .venv and no runs."""
    folder = tmp_path_factory.mktemp("checkout")
    for entry in ROOT.iterdir():
        if entry.name not in ("runs", ".git", "tests"):
            (folder / entry.name).symlink_to(entry)
    if BIN.parent != ROOT / ".venv":  # the suite may also run in another environment that has vitlab
        (folder / ".venv").unlink(missing_ok=True)
        (folder / ".venv").symlink_to(BIN.parent)
    return folder


def run(words: str, folder: Path, status: int = 0) -> str:
    """What a command prints; one of vitlab's own runs in this process, which has imported all that is slow."""
    if re.fullmatch(r"vitlab [^|&;<>]+", words):
        return run_here(words, folder, status)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", words], cwd=folder, env=environment, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == status, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_here(words: str, folder: Path, status: int) -> str:
    printed, ended = io.StringIO(), 0
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        try:
            main(shlex.split(words)[1:])
        except SystemExit as end:
            ended = int(end.code or 0)
    assert ended == status, f"{words}\n{printed.getvalue()}"
    return printed.getvalue()


def commands_of(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [line.partition("#")[0].strip() for block in blocks(text, "sh") for line in block.splitlines()]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_of_the_readme_runs(checkout):
    commands = commands_of("README.md")
    assert commands[:2] == ["make run", "make test"]
    assert "make test" in (ROOT / ".ci/run").read_text()  # the suite itself is not run inside itself
    accuracy = float(re.search(r"test accuracy ([\d.]+)%", run("make run", checkout))[1])
    assert accuracy >= 97
    assert (checkout / "runs/digits/report.html").stat().st_size < 1_000_000
    create, work, report, *_ = commands_of("docs/study.md")
    assert {create, f"{work} && {report}"} < {*commands}
    trained_elsewhere = "vitlab reproduce r1 --small"  # by tests/test_reproduce_small.py
    assert trained_elsewhere in commands
    printed = {
        command: run(command, checkout, status=int(command == MISTAKEN))
        for command in dict.fromkeys([*commands[2:], *commands_of("docs/look.md"), *commands_of("docs/study.md")[2:]])
        if command and not command.startswith(("source", "vitlab page")) and command != trained_elsewhere
    }
    assert printed["vitlab predict runs/digits docs/seven.png"].startswith("docs/seven.png: 7 ")
    look = (ROOT / "docs/look.md").read_text(encoding="utf-8")
    for example in blocks(README, "python") + blocks(look, "python"):
        run(f"{sys.executable} - <<'END'\n{example}\nEND", checkout)


def test_the_page_about_check_says_what_there_is(checkout):
    text = (ROOT / "docs/check.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \|", text, re.MULTILINE)
    assert rows == [(probe.name, probe.question) for probe in PROBES]
    shared = {MISTAKEN, "vitlab check runs/digits"}  # with the README, whose test runs them
    commands = commands_of("docs/check.md")
    assert shared <= {*commands} & {*commands_of("README.md")}
    for command in commands:
        if command not in shared:
            run(command, checkout, status=int("--list" not in command))
    for example in blocks(text, "python"):
        assert run(f"{sys.executable} - <<'END'\n{example}\nEND", checkout).startswith("True every one of 784 pixels")
    found = run(f"{MISTAKEN} --json --skip overfit export", checkout, status=1)
    (report,) = json.loads(found)
    verdicts = {probe: asked["finding"]["verdict"] for probe, asked in report["asked"].items()}
    assert {probe for probe, verdict in verdicts.items() if verdict == "mistake"} == {"positions", "output", "scale"}
    assert script("update_check").updated(text) == text


def test_the_page_about_looking_says_what_the_records_say():
    text = (ROOT / "docs/look.md").read_text(encoding="utf-8")
    assert script("update_look").updated(text) == text
    leads = {}
    for name in ("mnist", "cifar10"):
        record = json.loads((ROOT / f"results/look/{name}.json").read_text(encoding="utf-8"))
        assert record["pictures"] == 2000
        assert all(len(model["runs"]) == 3 for model in record["models"])
        for model in record["models"]:
            for kind in ("attention", "rollout", "relevance"):
                for test in ("deletion", "insertion"):
                    each = [100 * run["maps"]["mean"][kind]["lead"][test][0] for run in model["runs"]]
                    leads[name, model["name"], kind, test] = each
    on_cifar = {
        key[2:]: [mean(each) for k, each in leads.items() if k[0] == "cifar10" and k[2:] == key[2:]] for key in leads
    }
    low, high = re.search(r"Relevance is the best on CIFAR-10\*\*, (\d+) to (\d+) points", text).groups()
    relevance = on_cifar["relevance", "deletion"] + on_cifar["relevance", "insertion"]
    assert (round(min(relevance)), round(max(relevance))) == (int(low), int(high))
    attention = on_cifar["attention", "deletion"] + on_cifar["attention", "insertion"]
    assert max(attention) <= int(re.search(r"it is at most (\d+) points\s+ahead of random", text)[1])
    apart = max(max(each) - min(each) for key, each in leads.items() if key[0] == "mnist" and key[2] == "attention")
    assert round(apart) == int(re.search(r"differs by up to (\d+) points", text)[1])


def test_the_commands_about_learning_without_labels_run(checkout):
    text = (ROOT / "docs/pretrain.md").read_text(encoding="utf-8")
    assert script("update_pretrain").updated(text) == text
    commands = commands_of("docs/pretrain.md")
    assert {command.split()[1] for command in commands} == {"pretrain", "finetune", "labels"}
    printed = [run(command, checkout) for command in commands]
    assert "nearest neighbours" in printed[0]
    assert "from scratch, in the same time" in " ".join(printed[-1].split())


def test_thresholds_name_what_the_record_of_sound_models_shows():
    record = json.loads((ROOT / "results/check/libraries.json").read_text(encoding="utf-8"))
    measured = {name: [run["measured"][name] for run in record["runs"]] for name in ("depth", "overfit", "positions")}
    factors = [
        float(n) for text in measured["depth"] for n in re.findall(r"(?:factor of|gradient by) ([\d.]+)(?:;|$)", text)
    ]
    steps = [int(n) for text in measured["overfit"] for n in re.findall(r"by heart after (\d+) steps", text)]
    moved = [float(n) for text in measured["positions"] for n in re.findall(r"at least ([\d.e+-]+) of", text)]
    thresholds = {probe.name: probe.threshold for probe in PROBES}
    assert len(factors) > 40
    assert max(*factors, *(1 / factor for factor in factors)) < float(re.search(r"below (\d+)", thresholds["depth"])[1])
    assert len(steps) > 20
    assert max(steps) <= int(re.search(r"at most (\d+)", thresholds["overfit"])[1])
    assert len(moved) > 20
    assert min(moved) > 1e-3  # docs/check.md


def test_the_contributing_example_is_a_true_kind(tmp_path):
    """Apply the page to a copy of the package: the new kind trains, and passes the properties all kinds must have."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "vitlab", tmp_path / "vitlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / "vitlab/model/attention.py"
    union = "Attention = Softmax | Linformer | Uniform | Locality"
    source = path.read_text(encoding="utf-8")
    assert f"`{union} | Cosine`" in text
    added = "\n\n".join(blocks(text, "python"))
    path.write_text(source.replace(union, f"{added}\n\n{union} | Cosine"), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    for words in (
        ["-m", "vitlab", "train", "digits", *QUICK, "attention=cosine"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_model_attention.py", "-k", "cosine or Cosine"],
    ):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 3


def test_the_readme_table_is_what_the_records_say():
    assert script("update_readme").updated(README) == README
    assert README.count("results/") >= 2
    assert README.count("docs/reports.md#") >= len(recipes.reproductions())


def script(name: str) -> ModuleType:
    """A file of scripts/, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"scripts/{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("name", sorted(set(recipes.names()) - set(recipes.reproductions())))
def test_every_recipe_states_what_its_record_says(name):
    record = json.loads((ROOT / f"results/records/{name}.json").read_text(encoding="utf-8"))
    check_stated(recipes.module(name).__doc__, record["runs"])
    recorded = from_json(Experiment, record["config"])  # a setting that is younger than the record has its default
    assert recorded == recipes.recipe(name), "the record is of another configuration"


@pytest.mark.parametrize("name", recipes.reproductions())
def test_every_experiment_of_a_report_states_what_its_record_says(name):
    path, stated = ROOT / f"results/reports/{name}.json", recipes.module(name).__doc__
    if not path.exists():
        assert "not run yet" in stated
        return
    record, plan = json.loads(path.read_text(encoding="utf-8")), recipes.reproductions()[name]
    check_stated(stated, record["variants"][0]["runs"])
    settings = {(variant.group, variant.name): variant.settings for variant in plan.variants}
    for variant in record["variants"]:
        wanted = override(recipes.recipe(name), list(settings[variant["group"], variant["name"]]))
        assert from_json(Experiment, variant["config"]) == wanted, f"{variant['name']} is of another configuration"
        assert not record["small"]


def check_stated(stated: str, runs: list[dict]) -> None:
    words = " ".join(stated.split())
    assert f"{100 * mean(run['test_accuracy'] for run in runs):.2f} %" in words
    assert ("one seed" if len(runs) == 1 else f"{len(runs)} seeds") in words


def test_the_reports_page_is_what_the_records_say(tmp_path):
    """The same text and drawings, byte for byte; a PNG's bytes depend on the library, so its pixels are compared."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    script("update_reports").update(tmp_path)
    made, kept = (folder / "docs" for folder in (tmp_path, ROOT))
    assert (made / "reports.md").read_text() == (kept / "reports.md").read_text()
    names = {path.name for path in (made / "reports").iterdir()}
    assert names == {path.name for path in (kept / "reports").iterdir()}
    for name in names:
        one, other = made / "reports" / name, kept / "reports" / name
        if name.endswith(".svg"):
            assert one.read_bytes() == other.read_bytes(), name
        else:
            with Image.open(one) as a, Image.open(other) as b:
                assert np.abs(np.asarray(a, float) - np.asarray(b, float)).max() <= 2, name


def test_the_performance_page_is_what_the_records_say(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    script("update_performance").update(tmp_path)
    made, kept = (folder / "docs" for folder in (tmp_path, ROOT))
    assert (made / "performance.md").read_text() == (kept / "performance.md").read_text()
    charts = {path.name: path.read_bytes() for path in (made / "performance").glob("*")}
    assert charts == {path.name: path.read_bytes() for path in (kept / "performance").glob("*")}


def test_every_link_leads_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert link.startswith("http") or (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_page_about_the_page_says_what_the_record_says():
    text = " ".join((ROOT / "docs/page.md").read_text(encoding="utf-8").split())
    record = json.loads((ROOT / "results/bench/page-cpu.json").read_text(encoding="utf-8"))
    stroke, crowd = record["stroke"], record["crowds"][-1]
    assert (
        f"a stroke took {stroke['median']:.0f} ms (median of {stroke['strokes']}; 95 % within {stroke['p95']:.0f}"
        in text
    )
    assert f"after {stroke['first_view_milliseconds'] / 1000:.1f} s" in text
    assert f"{crowd['users']} people" in text
    assert crowd["strokes_a_second_each"] == 1
    assert crowd["failed"] == 0
    assert f"{crowd['answers']:,} answers with no failure, half within {crowd['median']:.0f} ms" in text
    assert f"95 % within {crowd['p95']:.0f} ms" in text
