"""What is chosen for one's own pictures, against other choices: python scripts/record_own.py cifar10 --data FOLDER.

A folder is made of a few training pictures of a data set, and 200 others of each class are held out; every alternative
is what `vitlab train folder:PATH` chooses, with some settings changed. The test part is not read. The record is written
after every run; what is in it is not trained again.
"""

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

from vitlab import override, own
from vitlab.data import data_folder
from vitlab.data.named import Cifar10, FashionMnist
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import read_json, write_json
from vitlab.given import find_device, load_data
from vitlab.lab import train_in

HELD_OUT = 200  # pictures of each class
CHOSEN = "as chosen"


@dataclass(frozen=True)
class Trial:
    """A data set, how many of its pictures of each class are learned from, and what else might be chosen."""

    source: Cifar10 | FashionMnist
    each: int
    others: dict[str, tuple[str, ...]]


PLAIN = ("tokens=conv-patches", "patch=4")
TRIALS = {
    "cifar10": Trial(
        Cifar10(),
        300,
        {
            CHOSEN: (),
            "plain patches": PLAIN,
            "mirrored and shifted alone": ("trivial=no",),
            "cutmix too": ("cutmix=1", "mixed=0.5"),
            "a stem of 32 channels": ("tokens.channels=32",),
        },
    ),
    "fashion-mnist": Trial(
        FashionMnist(),
        100,
        {CHOSEN: (), "plain patches": PLAIN, "no changes": ("rotate=0", "translate=0", "augment.scale=0", "shear=0")},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trial", choices=TRIALS)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the epochs that are chosen")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    trial, where = TRIALS[given.trial], find_device(given.device)
    record = read_json(given.out) if given.out.exists() else {"name": f"own-{given.trial}", "runs": []}
    with tempfile.TemporaryDirectory() as work:
        pictures = Path(work) / given.trial
        draw(trial, pictures, data_folder(Path(given.data) if given.data else None))
        name = f"folder:{pictures}"
        chosen = own.choices(name)
        for seed in range(given.seeds):
            for other in trial.others:
                if any((run["way"], run["seed"]) == (other, seed) for run in record["runs"]):
                    continue
                experiment = own.experiment(name, chosen)
                epochs = f"epochs={max(round(given.share * experiment.training.epochs), 1)}"
                experiment = override(experiment, [*trial.others[other], epochs, "measure=100", f"seed={seed}"])
                prepared = load_data(experiment, given.data)
                run = train_in(Path(tempfile.mkdtemp(dir=work)) / "run", experiment, prepared, where, quiet=True)
                result = run.result
                record["runs"].append(
                    {"way": other, "settings": list(trial.others[other]), "seed": seed,
                     "held_out_accuracy": result["test_accuracy"], "count": result["count"]}
                    | {key: result[key] for key in ("train_seconds", "epochs", "images_per_second", "parameters")}
                )  # fmt: skip
                print(other, seed, result["test_accuracy"], round(result["train_seconds"]), flush=True)
                command = f"python scripts/record_own.py {given.trial} --share {given.share:g} --seeds {given.seeds}"
                around = describe_environment(where) | {"command": command}
                words = [word for choice in chosen for word in choice.settings]
                write_json(given.out, record | around | {"chosen": words, "pictures_of_a_class": trial.each})


def draw(trial: Trial, folder: Path, data: Path) -> None:
    """train/ and test/, a folder for each class; all are training pictures of the data set."""
    loaded = trial.source.load(data)
    order = torch.randperm(len(loaded.train), generator=torch.Generator().manual_seed(0))
    labels = loaded.train.labels[order]
    for label, word in enumerate(loaded.classes):
        places = order[labels == label][: trial.each + HELD_OUT].tolist()
        for part, own_places in (("train", places[: trial.each]), ("test", places[trial.each :])):
            (folder / part / word.replace("/", "-")).mkdir(parents=True)
            for place in own_places:
                pixels = loaded.train.pictures[place].numpy().transpose(1, 2, 0)
                picture = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
                picture.save(folder / part / word.replace("/", "-") / f"{place}.png")


if __name__ == "__main__":
    main()
