"""Train a recipe over several seeds and keep the figures: python scripts/record.py RECIPE [setting=value …] --seeds 5.

The record goes to results/records/RECIPE.json (or --name): name, command, device, date, versions, config, and one entry
a seed with its log. It is written after every seed; seeds that it has already are not trained again.
"""

import argparse
import shlex
import tempfile
from pathlib import Path
from typing import Any

from vitlab import Experiment, override, recipe
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import read_json, write_json
from vitlab.lab import find_device, load_data, train_in
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
    parser.add_argument("--out", type=Path, default=Path("results/records"))
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    given = parser.parse_args()
    name = given.name or given.recipe
    command = shlex.join(["python", "scripts/record.py", given.recipe, *given.settings]) + f" --seeds {given.seeds}"
    experiment, device = override(recipe(given.recipe), given.settings), find_device(given.device)
    path, config = given.out / f"{name}.json", to_json(experiment)
    kept = known(path, experiment)
    given.out.mkdir(parents=True, exist_ok=True)
    data = load_data(experiment, given.data).on(device)
    with tempfile.TemporaryDirectory() as folder:
        for seed in sorted(set(range(given.seeds)) - {run["seed"] for run in kept}):
            run = train_in(
                (given.keep or Path(folder)) / f"{name}-{seed}", override(experiment, [f"seed={seed}"]), data, device
            )
            figures = {key: run.result[key] for key in KEPT if key in run.result}
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
