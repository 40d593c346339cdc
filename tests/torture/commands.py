"""A damaged file met on the command line: exit status 2 and one line, or an answer."""

import io
import random
import shutil
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from vitlab.cli import main

from .readers import WHOLE_RUN, Reader, make_recipe, make_run, make_study, make_weights, signed
from .sets import make_arrays, make_pictures

PARTS = {
    "run": make_run, "other": make_run, "weights": make_weights, "recipes": make_recipe, "study": make_study,
    "arrays": make_arrays, "pictures": make_pictures,
}  # fmt: skip
SHOWN = ("report run", "report run other")
STUDIED = ("status", "show", "best")
PREDICTED = ("colour.png", "colour.jpg", "packed.tiff", "palette.gif")
PREDICT = "predict run run/picture.png"
LOOK = "look run run/picture.png --tested 0 --out made/look"
SEND = "export run --to hub --out made/hub"
# The file, and what may be asked of it.
ASKED = {
    "run/experiment.json": ("evaluate run", PREDICT, "settings run/experiment.json", LOOK, SEND),
    "run/data.json": (*(f"{PREDICT} --format {way}" for way in ("text", "csv", "jsonl")), LOOK, SEND),
    "run/weights.safetensors": ("evaluate run", PREDICT, LOOK, SEND),
    "run/calibration.json": (PREDICT, SEND),
    "run/environment.json": (*SHOWN, SEND), "run/result.json": (*SHOWN, SEND), "run/metrics.jsonl": SHOWN,
    "run/predictions.safetensors": SHOWN,
    "recipes/digits.json": ("settings recipes/digits.json",),
    "weights/model.safetensors": ("transfer weights --runs made",),
    "weights/config.json": ("transfer weights --runs made",),
    "weights/plain.pth": ("transfer weights/plain.pth --runs made",),
    "study/study.db": tuple(f"study {verb} s --storage sqlite:///study/study.db" for verb in STUDIED),
    "study/study.log": tuple(f"study {verb} s --storage journal:study/study.log" for verb in STUDIED),
    "arrays/plain.npz": ("settings npz:arrays/plain.npz", "train npz:arrays/plain.npz epochs=1 --quiet --runs made"),
    **{f"pictures/{name}": ("predict run pictures", f"look run pictures/{name} --out made/look") for name in PREDICTED},
}  # fmt: skip


def make_all(folder: Path) -> None:
    for name, make in PARTS.items():
        (folder / name).mkdir()
        make(folder / name)


def ask(folder: Path, name: str) -> None:
    """One command; its words are drawn from the damage, so that a case is the same each time."""
    words = random.Random((folder / name).read_bytes()).choice(ASKED[name]).split()
    said, errors = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    kept = {path: path.read_bytes() for path in (folder / "run").iterdir() if path.name in WHOLE_RUN}
    status: object = 0
    try:
        with chdir(folder), redirect_stdout(said), redirect_stderr(errors):
            main(words)
            said.flush()
    except SystemExit as end:
        status = end.code
    finally:
        shutil.rmtree(folder / "made", ignore_errors=True)
    errors.flush()
    lines = errors.buffer.getvalue().decode().splitlines()
    command = " ".join(words)
    assert status in (0, 1, 2), f"{command}: exit status {status}"
    assert not status or lines, f"{command}: exit status {status} without a word"
    assert all(line.startswith("vitlab: ") for line in lines), f"{command}: {lines}"
    assert status != 2 or len(lines) == 1, f"{command}: {lines}"
    assert all(path.read_bytes() == content for path, content in kept.items()), f"{command} changed the run"


COMMANDS = Reader("the command line", make_all, ask, tuple(ASKED), signed("run/weights", "run/predictions"))
