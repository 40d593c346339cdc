"""What pretrained weights are worth on few labels, and by which road: python scripts/record_transfer.py --data FOLDER.

One model is trained for each experiment, then carried over with 1,000 labels in several ways and from scratch, three
seeds each, with the same settings; nothing is chosen by the test part. The record, results/transfer/small.json, is
written after every run; what is in it is not trained again.
"""

import argparse
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitlab import Experiment, Run, override
from vitlab.data import data_folder
from vitlab.data.named import Cifar10
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import read_json, write_json, write_tensors
from vitlab.given import find_device, load_data
from vitlab.lab import train_in
from vitlab.model import Shape, ViT
from vitlab.model.tokens import ConvPatches
from vitlab.transfer.fit import fit
from vitlab.transfer.sources import from_run

MODEL = ("width=64", "depth=4")
PRETRAINED = (*MODEL, "batch=100", "epochs=8", "limit=20000")
TUNED = ("limit=1000", "batch=50", "epochs=15", "warmup=2")
UNLABELLED = (*MODEL, "head=mean", "batch=100", "limit=20000", "flip=yes", "crop=4")
MAE = (*UNLABELLED, "objective=mae", "decoder_width=64", "decoder_depth=1", "epochs=20")
DINO = (
    *UNLABELLED,
    "objective=dino",
    "prototypes=256",
    "small_views=2",
    "colour=0.4",
    "hue=0.1",
    "grey=0.2",
    "epochs=6",
)
PATCH = {28: 7, 32: 8}  # 4×4 of them on pictures of either side
FINE = {32: 4}  # 8×8 of them, of which some can be hidden
SCRATCH = "from scratch"
ROADS = {SCRATCH: (), "adapt the model": (), "resize the pictures": ()}
WAYS = {
    SCRATCH: (),
    "linear probe": ("epochs=0",),
    "all weights": (),
    "all weights, layer_decay=0.75": ("layer_decay=0.75",),
    "lora, rank 8": ("tuning=lora",),
}


@dataclass(frozen=True)
class Study:
    """What is learned first, by which settings, and what it is carried over to, in which ways."""

    first: str
    pretraining: tuple[str, ...]
    then: str
    ways: dict[str, tuple[str, ...]]
    patch: dict[int, int] = field(default_factory=lambda: PATCH)  # by the side of a picture


STUDIES = {
    "CIFAR-10 to MNIST": Study("cifar10", PRETRAINED, "mnist", ROADS),
    "Fashion-MNIST to CIFAR-10": Study("fashion-mnist", PRETRAINED, "cifar10", ROADS),
    "Fashion-MNIST to MNIST": Study("fashion-mnist", PRETRAINED, "mnist", WAYS),
    "half of CIFAR-10's classes to the other half": Study("npz:first.npz", PRETRAINED, "npz:second.npz", WAYS),
    "CIFAR-10 without labels, by MAE": Study("cifar10", MAE, "cifar10", WAYS, FINE),
    "CIFAR-10 without labels, by DINO": Study("cifar10", DINO, "cifar10", WAYS, FINE),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("studies", nargs="*", default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path("results/transfer/small.json"))
    given = parser.parse_args()
    where = find_device(given.device)
    record = read_json(given.out) if given.out.exists() else {"name": "transfer", "studies": {}}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        halves(work, data_folder(Path(given.data) if given.data else None))
        for name in given.studies:
            study, kept = STUDIES[name], record["studies"].setdefault(name, {"runs": []})
            start = pretrained(study, work, given.data, where)
            kept["pretraining"] = facts(start) | {"settings": list(study.pretraining), "data": study.first}
            for seed in range(given.seeds):
                for way, settings in study.ways.items():
                    if any((run["way"], run["seed"]) == (way, seed) for run in kept["runs"]):
                        continue
                    run, notes = carried(start, study, way, (*settings, f"seed={seed}"), work=work, data=given.data,
                                         device=where)  # fmt: skip
                    kept["runs"].append({"way": way, "settings": list(settings), "notes": notes} | facts(run))
                    print(name, way, seed, kept["runs"][-1]["test_accuracy"], flush=True)
                    around = describe_environment(where) | {"command": "python scripts/record_transfer.py"}
                    write_json(given.out, record | around | {"tuned": list(TUNED), "seeds": given.seeds})


def halves(folder: Path, data: Path) -> None:
    """CIFAR-10's first five classes, and its last five, as arrays."""
    loaded = Cifar10().load(data)
    for name, low in (("first", 0), ("second", 5)):
        parts = {}
        for part, letter in ((loaded.train, "train"), (loaded.test, "test")):
            chosen = (part.labels >= low) & (part.labels < low + 5)
            parts |= {f"x_{letter}": part.pictures[chosen].numpy(), f"y_{letter}": (part.labels[chosen] - low).numpy()}
        np.savez(folder / f"{name}.npz", **parts)


def source_of(named: str, work: Path) -> str:
    return f"data.source={named.replace('npz:', f'npz:{work}/')}"


def pretrained(study: Study, work: Path, data: str | None, device: torch.device) -> Run:
    side = 32 if "npz" in study.first or "cifar" in study.first else 28
    experiment = override(
        Experiment(), [source_of(study.first, work), *study.pretraining, f"patch={study.patch[side]}"]
    )
    folder = work / f"{abs(hash(study.first + str(study.pretraining)))}"
    return train_in(folder, experiment, load_data(experiment, data), device)


def carried(
    start: Run, study: Study, way: str, settings: tuple[str, ...], *, work: Path, data: str | None, device: torch.device
) -> tuple[Run, list[str]]:
    """A run on the second pictures, from the pretrained weights or from scratch."""
    model = start.experiment.model
    assert isinstance(model, ViT)
    experiment = override(Experiment(), [source_of(study.then, work), *TUNED, *settings])
    prepared = load_data(experiment, data)
    card, folder = prepared.card, Path(tempfile.mkdtemp(dir=work))
    shape = Shape(card.channels, card.height, card.width)
    if way == SCRATCH:
        experiment = replace(experiment, model=replace(model, tokens=ConvPatches(study.patch[card.height])))
        return train_in(folder / "run", experiment, prepared, device, quiet=True), []
    fitted = fit(from_run(start), shape, "resize" if way.startswith("resize") else "adapt")
    began = Run(folder / "start")
    began.folder.mkdir()
    write_tensors(began.weights, fitted.tensors, {})
    experiment = replace(experiment, model=fitted.model)
    return train_in(folder / "run", experiment, prepared, device, quiet=True, start=began), fitted.notes


def facts(run: Run) -> dict[str, Any]:
    names = ("seed", "test_accuracy", "train_seconds", "epochs", "images_per_second", "parameters", "knn_accuracy")
    return {name: run.result[name] for name in names if name in run.result}


if __name__ == "__main__":
    main()
