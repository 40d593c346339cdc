"""Put a trained run into the package, in half precision: python scripts/make_zoo.py RUN NAME [--data FOLDER].

Its weights become half as large; result.json and predictions.safetensors then say what these weights give on the test
part, evaluated here on the CPU: in float32, as whoever has no GPU sees it. Everything else is the run's.
"""

import argparse
import shutil
from pathlib import Path

import torch

from vitlab.engine.run import ZOO, Run, open_run
from vitlab.engine.storage import make_folder, read_tensors, write_tensors
from vitlab.lab import evaluate

EVALUATED = ("test_accuracy", "low", "high", "count", "test_loss", "mirrored_accuracy")
FILES = ("experiment.json", "data.json", "environment.json", "metrics.jsonl", "seen.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("name")
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, default=ZOO)
    given = parser.parse_args()
    run, made = open_run(given.run), Run(given.out / given.name)
    make_folder(made.folder)
    for name in FILES:
        shutil.copyfile(run.folder / name, made.folder / name)
    tensors, _ = read_tensors(run.weights)
    write_tensors(made.weights, {name: halved(tensor) for name, tensor in tensors.items()}, {})
    found = evaluate(made, data=given.data, device="cpu")
    made.write_evaluation(found, {name: value for name, value in run.result.items() if name not in EVALUATED})
    size = made.weights.stat().st_size
    print(f"{made.folder}: {size:,} bytes, {found.accuracy:.2%} where the run had {run.result['test_accuracy']:.2%}")


def halved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


if __name__ == "__main__":
    main()
