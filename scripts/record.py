"""Train a recipe over several seeds and keep the figures: python scripts/record.py RECIPE [setting=value …].

The record goes to results/RECIPE.json (or --name): name, command, device, date, versions, config, and one entry a seed.
"""

import argparse
import shlex
import tempfile
from pathlib import Path

from vitlab import override, recipe, train
from vitlab.engine.storage import write_json
from vitlab.settings import to_json

KEPT = ("seed", "test_accuracy", "train_seconds", "compile_seconds", "epochs", "images_per_second", "parameters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recipe")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--name")
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    name = given.name or given.recipe
    kept = []
    with tempfile.TemporaryDirectory() as runs:
        for seed in range(given.seeds):
            run = train(given.recipe, *given.settings, f"seed={seed}", runs=runs, data=given.data)
            kept.append({key: run.result[key] for key in KEPT})
            print(kept[-1], flush=True)
            environment = run.environment
    environment["command"] = shlex.join(["python", "scripts/record.py", given.recipe, *given.settings])
    environment["command"] += f" --seeds {given.seeds}"
    config = to_json(override(recipe(given.recipe), given.settings))
    write_json(given.out / f"{name}.json", {"name": name} | environment | {"config": config, "runs": kept})


if __name__ == "__main__":
    main()
