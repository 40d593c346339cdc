"""Compare variants of a recipe on held-out pictures: python scripts/tune.py FILE [--minutes 8].

FILE has a line `base | RECIPE [setting=value …]`, then one `NAME | [setting=value …]` a variant; they are trained one
after another, and what each gets on the pictures held out is printed as it ends, as in results/tuning. The test part is
not read. Without labels it is neighbours and a linear probe that count, on the second half of the pictures held out;
the first half chooses the probe's decay.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from vitlab import Experiment, override, recipe
from vitlab.data.prepared import Prepared
from vitlab.engine.progress import Progress
from vitlab.given import find_device, load_data
from vitlab.lab import train_in
from vitlab.objectives import Supervised


class Late(Exception):
    """The time is over."""


class Clock(Progress):
    """Says nothing, and ends a training at the first measurement after the time is over."""

    def __init__(self, end: float):
        super().__init__(0, quiet=True)
        self.end, self.seen = end, list[Mapping[str, Any]]()

    def epoch(self, line: Mapping[str, Any]) -> None:
        self.seen.append(line)
        if time.monotonic() > self.end:
            raise Late

    def __str__(self) -> str:
        held_out = [f"{on_held_out(line)}@{line['epoch']}" for line in self.seen]
        last = self.seen[-1] if self.seen else {"loss": float("nan"), "images_per_second": 0}
        return f"{' '.join(held_out)} training loss {last['loss']:.3f} | {last['images_per_second']:,.0f} pictures/s"


def on_held_out(line: Mapping[str, Any]) -> str:
    if "knn_accuracy" in line:
        return f"{line['knn_accuracy']:.2%}"
    return f"{line['validation_accuracy']:.2%}/{line['validation_loss']:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    device, end = find_device(given.device), time.monotonic() + 60 * given.minutes
    text = given.file.read_text(encoding="utf-8")
    print(text, flush=True)
    variants = read(text)
    data = load_data(next(iter(variants.values())), given.data).on(device)
    for name, experiment in variants.items():
        clock, began, labelled = Clock(end), time.monotonic(), isinstance(experiment.objective, Supervised)
        try:
            with tempfile.TemporaryDirectory() as folder:
                run = train_in(Path(folder) / "run", experiment, without_test(data, labelled), device, progress=clock)
                took = run.result
        except Late:
            print(f"[{time.monotonic() - began:6.1f}] {name}: {clock}, not finished", flush=True)
            break
        seconds = f"{took['train_seconds']:.1f} s + compile {took['compile_seconds']:.0f}"
        found = f"[{time.monotonic() - began:6.1f}] {name}: {clock}, {seconds}, {took['parameters']:,} weights"
        if not labelled:
            found += f", neighbours {took['knn_accuracy']:.2%}, probe {took['test_accuracy']:.2%}"
        print(found, flush=True)


def without_test(data: Prepared, labelled: bool) -> Prepared:
    """The same pictures, with those held out, or their second half, in the place of the test part."""
    if labelled:
        return replace(data, test=data.validation)
    places = torch.arange(len(data.validation))
    first, second = (data.validation.pick(half) for half in places.tensor_split(2))
    return replace(data, validation=first, test=second)


def read(text: str) -> dict[str, Experiment]:
    """Each variant's name and settings."""
    (_, base), *variants = [line.split("|", 1) for line in text.splitlines() if line.strip()]
    common, *settings = base.split()
    return {name.strip(): override(recipe(common), settings + own.split()) for name, own in variants}


if __name__ == "__main__":
    main()
