"""Put the maps to the test on a whole data set: python scripts/record_maps.py mnist (or cifar10).

Each kind of model is trained over several seeds; then patches of test pictures are deleted and inserted in the order of
each map and at random. The record goes to results/look/DATA.json: the areas under the curves, the curves themselves and
each map's lead over random order, for two ways to fill what was deleted.
"""

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import torch

from vitlab import look, override, recipe, train
from vitlab.engine.run import Run
from vitlab.engine.storage import write_json
from vitlab.look import Look, Trust, trust
from vitlab.settings import to_json

KEPT = ("seed", "test_accuracy", "train_seconds", "compile_seconds", "epochs", "images_per_second", "parameters")
FAST = ("batch=250", "graph=yes", "checkpoint=600", "measure=10", "optimiser=adamw")
PATCHES = ("tokens=conv-patches", "patch=4")
FLIPS = ("flip=yes", "crop=4", "rotate=0", "translate=0", "augment.scale=0", "shear=0")
LARGER = ("width=192", "depth=6", "heads=6")
DATA = {
    "mnist": ("data.source=mnist", *PATCHES, *FAST, "epochs=10", "learning_rate=2e-3"),
    "cifar10": ("data.source=cifar10", *PATCHES, *LARGER, *FLIPS, *FAST, "epochs=40", "learning_rate=1e-3"),
}
MODELS = {
    "class token": (),
    "mean head": ("head=mean",),
    "Linformer": ("attention=linformer",),
    "locality": ("attention=locality",),
    "4 registers": ("registers=4",),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data_set", choices=DATA)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--pictures", type=int, default=2000, help="test pictures that are put to the test")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--data")
    parser.add_argument("--runs", default="runs/maps")
    parser.add_argument("--out", type=Path, default=Path("results/look"))
    given = parser.parse_args()
    settings = DATA[given.data_set]
    models = []
    for name in given.models:
        changes, runs = MODELS[name], []
        for seed in range(given.seeds):
            run = train("digits", *settings, *changes, f"seed={seed}", runs=given.runs, data=given.data, quiet=True)
            runs.append({key: run.result[key] for key in KEPT} | judged(run, given.pictures, given.data))
            print(given.data_set, name, json.dumps(shortly(runs[-1])), flush=True)
        models.append({"name": name, "config": to_json(run.experiment), "runs": runs})
        record = {"name": f"maps on {given.data_set}"} | run.environment
        record["command"] = shlex.join(["python", *sys.argv])
        record |= {"config": to_json(override(recipe("digits"), list(settings))), "pictures": given.pictures}
        write_json(given.out / f"{given.data_set}.json", record | {"models": models})


def judged(run: Run, pictures: int, data: str | None) -> dict[str, Any]:
    """The maps of a trained run on its first test pictures, put to the test; and how long the maps took."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = [f"test:{number}" for number in range(pictures)]
    look(run, names[:100], data=data)  # warm
    started = time.monotonic()
    seen = look(run, names, data=data)
    seconds = time.monotonic() - started
    network = run.model().to(device)
    return {
        "look_seconds": round(seconds, 3),
        "gap": seen.gap,
        "mean_distance": seen.streams[0].distance.mean(dim=0).tolist(),
        "entropy": seen.streams[0].entropy.mean(dim=0).tolist(),
        "maps": {
            fill: figures(trust(network, seen.pictures, seen, fill=fill, steps=16, orders=3), seen)
            for fill in ("mean", "blur")
        },
    }


def figures(tested: Trust, seen: Look) -> dict[str, Any]:
    found: dict[str, Any] = {"shares": tested.shares.tolist()}
    for kind, curves in tested.curves.items():
        deletion, insertion = tested.areas(kind)
        found[kind] = {
            "deletion": float(deletion.mean()), "insertion": float(insertion.mean()),
            "lead": tested.leads(kind),
            "deletion_curve": curves.deletion.mean(dim=0).tolist(),
            "insertion_curve": curves.insertion.mean(dim=0).tolist(),
        }  # fmt: skip
    return found


def shortly(run: dict[str, Any]) -> dict[str, Any]:
    maps = run["maps"]["mean"]
    areas = {kind: (round(v["deletion"], 3), round(v["insertion"], 3)) for kind, v in maps.items() if kind != "shares"}
    return {key: run[key] for key in ("seed", "test_accuracy", "train_seconds", "look_seconds")} | areas


if __name__ == "__main__":
    main()
