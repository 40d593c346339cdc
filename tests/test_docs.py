"""What the documents say is true: every command runs, every example works, every figure has a record."""

import contextlib
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

import apart
import numpy as np
import pytest
from conftest import QUICK
from foreign_models import as_folder, hugging
from PIL import Image
from scripted import script
from torch.distributed.run import get_args_parser

from vitlab import Experiment, override, recipes
from vitlab.bench.forecast import BYTES, forecast, on_imagenet
from vitlab.bench.forecast_page import recipe_job
from vitlab.bench.scale_page import Scaled
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
def checkout(tmp_path_factory, processes) -> Path:
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
    if re.fullmatch(r"vitlab [^|&;<>]+( && vitlab [^|&;<>]+)*", words):
        return "".join(run_here(each, folder, status) for each in words.split(" && "))
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-ec", words], cwd=folder, env=environment, capture_output=True, text=True, timeout=800, check=False
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


def run_example(code: str, folder: Path, printed: Path) -> str:
    """What an example in Python prints, in a process of its own."""
    done = apart.Started(printed, folder, apart.script, code).end()
    assert done.returncode == 0, f"{code}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands_of(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [line.partition("#")[0].strip() for block in blocks(text, "sh") for line in block.splitlines()]


# By tests/test_reproduce_small.py and tests/test_export_command.py.
RUN_ELSEWHERE = {"vitlab reproduce r1 --small", "vitlab calibrate runs/digits", "vitlab export runs/digits"}


def commands_to_run() -> list[str]:
    """Those of the README, and of the pages about looking and studies, but the first two and what is run elsewhere."""
    commands = commands_of("README.md")
    assert commands[:2] == ["make run", "make test"]
    assert "make test" in (ROOT / ".ci/run").read_text()  # the suite itself is not run inside itself
    create, work, report, *_ = commands_of("docs/study.md")
    assert {create, f"{work} && {report}", *RUN_ELSEWHERE} < {*commands}
    assert RUN_ELSEWHERE - {*commands_of("docs/export.md")} == {"vitlab reproduce r1 --small"}
    found = dict.fromkeys([*commands[2:], *commands_of("docs/look.md"), *commands_of("docs/study.md")[2:]])
    return [
        each for each in found if each and not each.startswith(("source", "vitlab page")) and each not in RUN_ELSEWHERE
    ]


def is_about_the_first_run(command: str) -> bool:
    return "runs/digits" in command


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("short", "least"), [("SETTINGS=epochs=3", 90), pytest.param("", 97, marks=pytest.mark.slow)])
def test_the_first_command_and_every_one_about_its_run_run(checkout, tmp_path, short, least):
    accuracy = float(re.search(r"test accuracy ([\d.]+)%", run(f"make run {short}", checkout))[1])
    assert accuracy >= least
    assert (checkout / "runs/digits/report.html").stat().st_size < 1_000_000
    printed = {command: run(command, checkout) for command in filter(is_about_the_first_run, commands_to_run())}
    assert printed["vitlab predict runs/digits docs/seven.png"].startswith("docs/seven.png: 7 ")
    look = (ROOT / "docs/look.md").read_text(encoding="utf-8")
    for example in blocks(look, "python"):
        run_example(example, checkout, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_other_command_of_the_readme_runs(checkout, tmp_path):
    commands = [command for command in commands_to_run() if not is_about_the_first_run(command)]
    assert len(commands) > 10
    for command in commands:
        run(command, checkout, status=int(command == MISTAKEN))
    for example in blocks(README, "python"):
        run_example(example, checkout, tmp_path)


def test_the_page_about_check_says_what_there_is(checkout, tmp_path):
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
        assert run_example(example, checkout, tmp_path).startswith("True every one of 784 pixels")
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
    charts = script("update_pretrain").drawn()
    assert {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs/pretrain").iterdir()} == charts
    assert all(f"pretrain/{path.name}" in text for path in charts)
    commands = commands_of("docs/pretrain.md")
    assert {command.split()[1] for command in commands} == {"pretrain", "finetune", "labels"}
    printed = [run(command, checkout) for command in commands]
    assert "k-NN accuracy" in printed[0]
    assert "from scratch, in the same time" in " ".join(printed[-1].split())


def test_the_commands_about_other_peoples_weights_run(checkout):
    text = (ROOT / "docs/transfer.md").read_text(encoding="utf-8")
    assert script("update_transfer").updated(text) == text
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
    names = {0: "cat", 1: "dog", 2: "frog"}
    (checkout / "my-vit").mkdir()
    as_folder(
        hugging("ViTForImageClassification", **small, image_size=32, patch_size=8, id2label=names), checkout / "my-vit"
    )
    printed = {command: run(command, checkout) for command in commands_of("docs/transfer.md")}
    assert "frog" in printed["vitlab predict runs/my-vit docs/frog.png"]
    (probe,) = (said for command, said in printed.items() if command.endswith("--name probe"))
    assert "filters for 3 channels made ones for 1 channel" in probe
    assert "of a linear probe on the features" in " ".join(probe.split())


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


def test_the_page_about_reliability_is_what_the_record_says():
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    assert script("update_reliability").updated(text) == text


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
    planned = {(variant.group, variant.name): variant for variant in plan.variants}
    for variant in record["variants"]:
        wanted = planned[variant["group"], variant["name"]]
        parts = [(variant, wanted.settings), *([(variant["first"], wanted.first)] if wanted.first else [])]
        for part, settings in parts:
            experiment = override(recipes.recipe(name), list(settings))
            assert from_json(Experiment, part["config"]) == experiment, f"{wanted.name} is of another configuration"
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


def test_the_pages_about_performance_and_scale_are_what_the_records_say(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "results").symlink_to(ROOT / "results")
    made, kept = (folder / "docs" for folder in (tmp_path, ROOT))
    for name in ("scale.md", "tour.md"):  # of which the records make only what stands between marks
        emptied = re.sub(
            r"(<!-- ([\w ]+) -->\n).*?(<!-- end of \2 -->)", r"\1\3", (kept / name).read_text(), flags=re.S
        )
        (made / name).write_text(emptied)
    script("update_performance").update(tmp_path)
    for name in ("performance.md", "scale.md", "tour.md"):
        assert (made / name).read_text() == (kept / name).read_text()
    for folder in ("performance", "scale"):
        charts = {path.name: path.read_bytes() for path in (made / folder).glob("*")}
        assert charts == {path.name: path.read_bytes() for path in (kept / folder).glob("*")}


def test_what_the_page_about_scale_says_in_words_is_what_its_figures_say():
    record = json.loads((ROOT / "results/bench/scale-cpu.json").read_text(encoding="utf-8"))
    cluster = Scaled.read(record).cluster()
    small, base = (on_imagenet(name) for name in ("ViT-S/16", "ViT-B/16"))
    node = forecast(base, 8, 4096, cluster)
    assert node.efficiency > 0.9
    assert node.exchange < 0.01 * node.compute
    assert forecast(small, 8, 4096, cluster).bound == "input"
    assert cluster.gathered / BYTES < small.rate  # one H200 eats pictures faster
    assert all(forecast(job, 64, 1024, cluster).bound == "batch too small" for job in (small, base))
    assert forecast(base, 512, 4096, cluster).bound == "exchange"
    job = recipe_job(json.loads((ROOT / "results/records/cifar10-fast.json").read_text(encoding="utf-8")))
    assert forecast(job, 8, 500, cluster).step > 500 / job.rate  # eight are slower than one


def test_the_commands_about_several_processes_are_understood():
    """torchrun's own parser takes them, and the recipe its settings; tests/test_team.py starts such processes."""
    text = (ROOT / "docs/scale.md").read_text(encoding="utf-8")
    commands = [shlex.split(block.replace("\\\n", "")) for block in blocks(text, "") if block.startswith("torchrun")]
    assert len(commands) == 2
    for command in commands:
        asked = get_args_parser().parse_args(command[1:])
        assert (asked.module, asked.training_script, asked.training_script_args[0]) == (True, "vitlab", "train")
        name, *settings = asked.training_script_args[1:]
        assert override(recipes.recipe(name), settings)


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
    assert f"{round(crowd['users'] * crowd['strokes_a_second_each'])} strokes a second together" in text
    assert crowd["failed"] == 0
    assert f"{crowd['answers']:,} answers with no failure, half within {crowd['median']:.0f} ms" in text
    assert f"95 % within {crowd['p95']:.0f} ms" in text
