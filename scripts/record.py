"""Train a recipe over several seeds and keep the figures: python scripts/record.py RECIPE [setting=value …] --seeds 5.

The record goes to results/records/RECIPE.json (or --name): name, command, device, date, versions, config, and one entry
a seed with its log. It is written after every seed; seeds that it has already are not trained again.

With --start FOLDER/NAME each seed is fine-tuned from the run FOLDER/NAME-SEED, as --keep FOLDER left it, and the record
goes to results/finetuned: python scripts/record.py cifar10-dino objective=supervised --start kept/cifar10-dino.
"""

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import Any

from vitlab import Experiment, override, recipe
from vitlab.engine.run import Run, describe_environment
from vitlab.engine.storage import read_json, write_json
from vitlab.given import find_device, load_data
from vitlab.lab import train_in
from vitlab.settings import from_json, to_json

KEPT = (
    "seed",
    "test_accuracy",
    "train_seconds",
    "compile_seconds",
    "epochs",
    "images_per_second",
    "parameters",
    "mirrored_accuracy",
    "knn_accuracy",
    "pixels_knn_accuracy",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name")
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder of the record")
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    parser.add_argument("--start", type=Path, help="FOLDER/NAME of runs to start from, one for each seed")
    given = parser.parse_args()
    given.out = given.out or Path("results/finetuned" if given.start else "results/records")
    name = given.name or given.recipe
    command = shlex.join(["python", "scripts/record.py", given.recipe, *given.settings]) + f" --seeds {given.seeds}"
    command += f" --start {given.start.name}" if given.start else ""
    experiment, device = override(recipe(given.recipe), given.settings), find_device(given.device)
    path, config = given.out / f"{name}.json", to_json(experiment)
    kept = known(path, experiment)
    given.out.mkdir(parents=True, exist_ok=True)
    data = load_data(experiment, given.data).on(device)
    with tempfile.TemporaryDirectory() as folder:
        for seed in sorted(set(range(given.seeds)) - {run["seed"] for run in kept}):
            start = Run(given.start.with_name(f"{given.start.name}-{seed}")) if given.start else None
            where, own = (given.keep or Path(folder)) / f"{name}-{seed}", override(experiment, [f"seed={seed}"])
            run = train_in(where, own, data, device, start=start)
            figures = {key: run.result[key] for key in KEPT if key in run.result}
            if start:
                figures["pretraining"] = {key: start.result[key] for key in KEPT if key in start.result}
            kept.append(figures | {"log": run.metrics()})
            print(figures, flush=True)
            around = describe_environment(device) | {"command": command}
            runs = sorted(kept, key=lambda run: run["seed"])
            write_json(path, {"name": name} | around | {"config": config, "runs": runs})


def known(path: Path, experiment: Experiment) -> list[dict[str, Any]]:
    """The runs that a record of the same settings has; one of other settings is not written over."""
    if not path.exists():
        return []
    record = read_json(path)
    if from_json(Experiment, record["config"], str(path)) != experiment:  # which may be older than a setting
        raise SystemExit(f"{path} is a record of other settings: move it away, or give another --name")
    return list(record["runs"])


if __name__ == "__main__":
    main()
