"""Random combinations of every part: each trains, shows true maps, is kept and read again, or is refused by name."""

import random
import re
import shutil
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch
from kinds import members

from vitlab import lab
from vitlab.data import Arrays
from vitlab.engine.run import Run
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.export import Format, Hub, Subject, export
from vitlab.model import Network
from vitlab.settings import field_types, is_settings, to_json, walk

from . import Outcome

# Each value is right by itself, so that what is refused is a clash of two; those of a line mostly fit each other.
USUAL: dict[str, tuple[Any, ...]] = {
    "width": (8, 16), "heads": (1, 2, 4), "patch": (1, 2, 4), "patches": ((2,), (2, 4), (4, 1)),
    "size": ((4, 8), (8, 8)), "shift": (0, 0, 4), "depth": (1, 2), "mlp": (0.5, 2.5), "decoder_heads": (1, 2, 4),
    "epochs": (1,), "limit": (0,), "drop_last": (False,), "across": ("tokens",), "layer_decay": (1.0,),
    "head_first": (0.0,), "classes": ((),),
}  # fmt: skip
ODD: dict[str, tuple[Any, ...]] = {
    "width": (1, 2, 3, 4, 6, 12), "heads": (3, 8), "patch": (3, 6, 8), "patches": ((2, 3), (4, 2, 1), (4, 4)),
    "size": ((1, 1), (6, 6), (12, 4)), "shift": (5, 8), "depth": (0, 3), "mlp": (0.01, 1.0), "decoder_heads": (3,),
    "epochs": (0, 2), "limit": (2, 5), "drop_last": (True,), "across": ("batch",), "layer_decay": (0.0, 0.5),
    "head_first": (0.5, 5.0), "classes": (("0", "1"), ("9",)),
}  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    "seed": tuple(range(1000)), "registers": (0, 1, 2), "k": (1, 2, 5, 9), "channels": (1, 3, 4), "again": (0, 1, 2),
    "kernel": (1, 3, 5), "layers": (1, 2),
    "epsilon": (0.0, 1e-6, 1e-2), "layer_scale": (0.0, 1e-4, 1.0), "base": (0.5, 1.0, 100.0),
    "batch": (1, 2, 7, 100), "measure": (1, 2), "checkpoint": (0.0, 30.0), "clip": (0.0, 1.0),
    "ema": (0.0, 0.9), "learning_rate": (0.0, 1e-4, 1e-2), "matrix_rate": (0.0, 0.02), "weight_decay": (0.0, 0.05),
    "beta2": (0.0, 0.9, 0.999), "warmup": (0.0, 0.5, 3.0),
    "rank": (1, 2, 20), "alpha": (0.0, 16.0), "matrices": (("qkv", "out"), ("enter",), ("out", "leave")),
    "prototypes": (2, 5, 16), "head_width": (2, 8), "bottleneck": (2, 4), "small_views": (0, 1, 3),
    "window": (0.1, 0.5, 1.0), "small_side": (0.1, 0.5, 1.0),
    "large": (0.4, 0.7, 1.0), "small": (0.05, 0.4), "temperature": (0.1, 1.0),
    "teacher_temperature": (0.04, 1.0), "hidden": (0.1, 0.5, 0.99), "decoder_width": (4, 8, 12),
    "decoder_depth": (1, 2), "at_once": (1, 3, 500), "validation": (0.0, 0.1, 0.5),
    "rotate": (0.0, 30.0), "shear": (0.0, 20.0), "crop": (0, 1, 3),
}  # fmt: skip


def draw(kind: Any, chance: random.Random) -> Any:
    """Settings of a kind: half of them as they are by themselves, the others drawn."""
    chosen = {
        name: drawn(of, name, chance)
        for name, of in field_types(kind).items()
        if name != "compile" and (name in USUAL or is_settings(of) or chance.random() < 0.5)  # which takes a minute
    }
    return kind(**chosen)


def drawn(wanted: Any, name: str, chance: random.Random) -> Any:
    """A value of a type: one member of a union, or one of the values for this name."""
    if is_settings(wanted):
        first, *others = members(wanted)
        return draw(chance.choice([*[first] * len(others), first, *others]), chance)
    if name in USUAL:
        return chance.choice((USUAL if chance.random() < 0.93 else ODD)[name])
    if wanted is bool:
        return chance.random() < 0.5
    if get_origin(wanted) is Literal:
        return chance.choice(get_args(wanted))
    return chance.choice(VALUES.get(name, (0.1, 0.5)))


def pictures(chance: random.Random, path: Path) -> Arrays:
    """A few pictures of a small size and two classes or more, in a file."""
    classes, channels = chance.choice((2, 3, 5)), chance.choice((1, 2, 3))
    height, width = (chance.choice((4, 8, 12) if chance.random() < 0.9 else (1, 6)) for _ in range(2))
    shown = np.random.default_rng(chance.randrange(2**32))
    train, test = classes + chance.randrange(6), chance.choice((1, 2, 5))
    np.savez(
        path,
        x_train=shown.integers(0, 256, (train, height, width, channels), np.uint8),
        y_train=np.arange(train) % classes,
        x_test=shown.integers(0, 256, (test, height, width, channels), np.uint8),
        y_test=np.arange(test) % classes,
    )
    return Arrays(str(path))


def trials(seed: int, folder: Path) -> Iterator[Outcome]:
    torch.set_num_threads(1)  # tiny models: threads cost more than they give
    number = 0
    while True:
        here = folder / "trial"
        here.mkdir(parents=True)
        yield trial(random.Random(f"{seed} {number}"), here, f"seed {seed}, trial {number}")
        shutil.rmtree(here)
        number += 1


def trial(chance: random.Random, folder: Path, again: str) -> Outcome:
    """One combination, all the way; `again` is what it takes to repeat it."""
    given = draw(Experiment, chance)
    experiment = replace(given, data=replace(given.data, source=pictures(chance, folder / "pictures.npz")))
    what = "trained, maps true, read again"
    try:
        run = lab.train(experiment, name="run", runs=folder, device="cpu", quiet=True)
        lost = untrue(run)
        if chance.random() < 0.1:
            kind = chance.choice([kind for kind in members(Format) if kind is not Hub])
            what = f"exported to {kind.kind}"
            export(Subject(run), draw(kind, chance))
    except BadInput as refusal:
        what = "refused by name"
        lost = unclear(str(refusal), experiment, 1 if (folder / "run" / "result.json").exists() else 2)
    except Exception:
        lost = traceback.format_exc(limit=-3).replace("\n", " | ")
    return Outcome(what, lost=(f"{again}: {lost}; {to_json(experiment)}",) if lost else ())


@torch.no_grad()
def untrue(run: Run) -> str:
    """Where the kept model answers otherwise than the run's own predictions, or a map is not what attention did."""
    again, kept = lab.evaluate(run, device="cpu").logits, run.evaluation.logits
    if not torch.allclose(again, kept, rtol=1e-5, atol=1e-6 * float(kept.abs().max())):  # the last bits may differ
        return "the model that was read again answers otherwise"
    network: Network = run.model()
    if getattr(run.experiment.model, "across", "") == "batch":
        return ""  # pictures attend to pictures: no map lies on one
    shape = network.shape
    noise = torch.randn(2, shape.channels, shape.height, shape.width, generator=torch.Generator().manual_seed(0))
    for stream in network.trace(noise).all():
        for place, (block, entered, _) in enumerate(stream.steps(), start=1):
            seen = block.seen(entered)
            did = block.attention(seen, stream.rotation)
            shown = block.attention.join(block.map(entered, stream.rotation) @ block.attention.values(seen))
            if not torch.allclose(shown, did, rtol=1e-4, atol=1e-5 * float(did.abs().max().clamp(min=1))):
                return f"the map of block {place} is {float((shown - did).abs().max()):.1e} from what attention did"
    return ""


def unclear(sentence: str, experiment: Experiment, least: int) -> str:
    """Why a refusal does not say what clashes: it is more than a line, or names too few settings."""
    if "\n" in sentence or not sentence:
        return f"refused in no one line: {sentence!r}"
    words = {word for found in re.findall(r"[\w-]+", sentence.lower()) for word in (found, found.rstrip("s"))}
    words |= {word.removesuffix("e") for word in words} | {word.replace("-", "_") for word in words}
    named = {entry.path for entry in walk(experiment) if {entry.path[-1], str(entry.value)} & words}
    pictures = {"picture", "class", "classe"} & words
    return "" if len(named) + bool(pictures) >= least else f"refused without naming what clashes: {sentence}"
