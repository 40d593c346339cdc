"""Every reader of files that the product has, each with a folder of whole files that it reads.

ONNX is not among them: vitlab writes it, runs what it wrote to compare, and reads nobody else's. Nor is what is read
only if it has the digest that is written in the source: the page's runtime. What a browser sends is another area's.
"""

import argparse
import json
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from PIL import Image
from studies import plan, tiny

from vitlab import lab, recipes
from vitlab.data.prepared import Normalise, Prepared
from vitlab.engine.progress import Progress
from vitlab.engine.run import Run
from vitlab.engine.storage import read_tensors, write_json, write_tensors
from vitlab.export.card import write_card
from vitlab.given import load_data
from vitlab.inference.calibration import Calibration, Judged
from vitlab.page.engine import open_engine
from vitlab.reproduce.runs import Reproducer
from vitlab.settings import from_json, to_json
from vitlab.study.advice import advise
from vitlab.study.ledger import Ledger
from vitlab.study.results import read_results
from vitlab.study.store import create_study, open_study, read_url
from vitlab.transfer.found import network_of
from vitlab.transfer.sources import find

from . import sets
from .sets import Harm

WHOLE_RUN = (
    "experiment.json", "data.json", "environment.json", "result.json", "metrics.jsonl", "calibration.json",
    "weights.safetensors", "predictions.safetensors",
)  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """What is read, out of a folder of whole files, of which those named are damaged one at a time."""

    name: str
    make: Callable[[Path], None]  # the whole files
    read: Callable[
        [Path, str], object
    ]  # the folder and the file that is damaged; what is wrong with it is an exception
    files: tuple[str, ...] = ()  # left out: all of them
    forms: dict[str, str] = field(default_factory=dict)  # file → a name that says how else it is taken apart


# Runs


def make_run(folder: Path) -> None:
    run = lab.train(tiny(), name="whole", runs=folder, quiet=True)
    for path in run.folder.iterdir():
        if path.name in WHOLE_RUN:
            path.rename(folder / path.name)
    shutil.rmtree(run.folder)
    judged = Judged(10, 10, 0.5, 0.4, 0.1, 0.05)
    write_json(folder / "calibration.json", asdict(Calibration(1.5, judged, judged)))
    Image.fromarray(np.eye(28, dtype=np.uint8) * 255).save(folder / "picture.png")


def make_stopped(folder: Path) -> None:
    """A run with a checkpoint, and its pictures beside it."""

    class Enough(Exception):
        pass

    class Once(Progress):
        def epoch(self, line: object) -> None:
            raise Enough

    experiment = tiny("ema=0.9")
    prepared = load_data(experiment, None)
    with suppress(Enough):
        lab.train_in(folder, experiment, prepared, torch.device("cpu"), progress=Once(2, True))
    for name in ("lock", "result.json"):
        (folder / name).unlink(missing_ok=True)
    write_tensors(folder / "start.safetensors", Run(folder).build().state_dict(), {})


def read_run(folder: Path, name: str) -> None:
    """What every verb that opens a run begins with."""
    run = Run(folder)
    experiment, card = run.experiment, run.card
    assert from_json(type(experiment), to_json(experiment)) == experiment
    network = run.model()
    given = Normalise(card, torch.device("cpu"))(torch.zeros(1, card.channels, card.height, card.width))
    assert network.logits(given).shape == (1, len(card.classes))
    assert run.temperature > 0


def read_figures(folder: Path, name: str) -> None:
    """What reports are made of."""
    run = Run(folder)
    for line in run.metrics():
        assert line["step"] >= 0
    evaluation = run.evaluation
    assert 0 <= evaluation.accuracy <= 1
    evaluation.confusion()
    evaluation.calibration()
    result, environment = run.result, run.environment
    assert len(f"{result['test_accuracy']:.2%} {result['low']:.2%} {result['high']:.2%} {result['count']:,}") > 9
    assert isinstance(environment["device"], str)
    assert ", ".join(f"{name} {number}" for name, number in environment["versions"].items())
    if name == "calibration.json":
        assert write_card(run)


def read_page(folder: Path, name: str) -> None:
    """What a page asks of a run, in the form in which it travels."""
    engine = open_engine(Run(folder), "a run")
    json.dumps([engine.facts, engine.evaluation.confusion().tolist()], allow_nan=False)
    json.dumps(engine.look(engine.blank, [0], relevance=True), allow_nan=False)


def read_stopped(folder: Path, name: str) -> None:
    """Resume, up to the first step."""
    run = Run(folder)
    experiment = run.experiment
    loop = lab.Loop(run, experiment, prepared_digits(), torch.device("cpu"), Progress(1, True))
    loop.session.restore(*read_tensors(run.checkpoint), run.checkpoint)
    assert 0 <= loop.session.step <= loop.session.steps
    kept = (run.folder / "metrics.jsonl").read_bytes()
    try:
        run.forget_after(loop.session.step)
    finally:
        (run.folder / "metrics.jsonl").write_bytes(kept)


@cache
def prepared_digits() -> Prepared:
    return load_data(tiny(), None)


def make_recipe(folder: Path) -> None:
    for name in ("digits", "cifar10-fast", "digits-dino"):
        (folder / f"{name}.json").write_text(json.dumps(to_json(recipes.recipe(name))))


def read_recipe(folder: Path, name: str) -> None:
    experiment = recipes.recipe(str(folder / name))
    assert from_json(type(experiment), to_json(experiment)) == experiment
    hash(experiment)


def make_records(folder: Path) -> None:
    records = Path(__file__).parents[2] / "results" / "reports"
    for name in ("r1-shallow", "r3-bag"):
        shutil.copy(records / f"{name}.json", folder)


def read_records(folder: Path, name: str) -> None:
    Reproducer(folder, folder).read(name.removesuffix(".json"))


# Studies


def make_study(folder: Path) -> None:
    for url in (f"sqlite:///{folder}/study.db", f"journal:{folder}/study.log"):
        kept = create_study(plan("width=8,16", seeds=2), read_url(url))
        ledger = Ledger(kept)
        ledger.reconcile()
        for place, slot in enumerate(ledger.slots()):
            taken = ledger.take([slot])
            assert taken is not None
            ran = {"seed": place // 2, "accuracy": 0.5 + place / 10, "seconds": 1.0, "parameters": 100 + place}
            ran |= {"curve": [[1, 0.5, 0.4], [2, 1.0, 0.5]], "folder": "x", "device": "cpu", "test_accuracy": None}
            ledger.complete(taken[1]._trial_id, [ran], [ran["accuracy"]])
    (folder / "study.log.lock").unlink(missing_ok=True)


def read_study(folder: Path, name: str) -> None:
    url = f"sqlite:///{folder}/{name}" if name.endswith(".db") else f"journal:{folder}/{name}"
    found = read_results(open_study("s", read_url(url)))
    advise(found)


# Other people's weights


def foreign_weights() -> dict[str, torch.Tensor]:
    """A ViT of width 8 by timm's names."""
    width, draw = 8, partial(torch.randn, generator=torch.Generator().manual_seed(0))
    block = {"norm1": (width,), "attn.qkv": (3 * width, width), "attn.proj": (width, width), "norm2": (width,),
             "mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}  # fmt: skip
    shapes = {f"blocks.0.{name}": shape for name, shape in block.items()}
    shapes |= {"patch_embed.proj": (width, 3, 4, 4), "norm": (width,), "head": (5, width)}
    tensors = {"cls_token": draw(1, 1, width), "pos_embed": draw(1, 5, width)}
    for name, shape in shapes.items():
        tensors |= {f"{name}.weight": draw(shape), f"{name}.bias": draw(shape[0])}
    return tensors


def make_weights(folder: Path) -> None:
    tensors = foreign_weights()
    config = {"model_type": "vit", "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "hidden_act": "gelu",
              "id2label": {str(i): f"class {i}" for i in range(5)}}  # fmt: skip
    processor = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    (folder / "model.safetensors").write_bytes(safetensors.torch.save(tensors))
    halves = [dict(list(tensors.items())[place::2]) for place in range(2)]
    for place, half in enumerate(halves):
        torch.save(half, folder / f"part-{place}.bin")
    index = {"weight_map": {name: f"part-{place}.bin" for place, half in enumerate(halves) for name in half}}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    torch.save(tensors, folder / "plain.pth")
    torch.save({"teacher": {f"module.backbone.{k}": v for k, v in tensors.items()}, "args": argparse.Namespace(x=1)},
               folder / "wrapped.pth")  # fmt: skip
    torch.save(tensors, folder / "old.pt", _use_new_zipfile_serialization=False)
    large = {name: torch.zeros(1).expand(*([20_000] * each.ndim)) for name, each in tensors.items()}
    torch.save(tensors | {"norm.weight": large["norm.weight"]}, folder / "stretched.pth")
    (folder / "harm.pth").write_bytes(pickle.dumps({"model": Harm(os.mkdir, "run-now")}))


def read_weights(folder: Path, name: str) -> None:
    inside = name.endswith(".json") or name.startswith(("model", "part"))
    if inside and name.startswith(("part", "pytorch")):
        (folder / "model.safetensors").rename(folder / "hidden")
    try:
        found = find(str(folder if inside else folder / name))
        given = torch.zeros(1, found.shape.channels, found.shape.height, found.shape.width)
        assert network_of(found)(given).shape == (1, max(len(found.classes), 1))
    finally:
        if (folder / "hidden").exists():
            (folder / "hidden").rename(folder / "model.safetensors")


def signed(*names: str) -> dict[str, str]:
    return {f"{name}.safetensors": "x.signed" for name in names}


USED = ("experiment.json", "data.json", "weights.safetensors", "calibration.json")
SHOWN = ("environment.json", "result.json", "metrics.jsonl", "calibration.json", "predictions.safetensors")
RESUMED = ("checkpoint.safetensors", "start.safetensors", "metrics.jsonl", "experiment.json", "data.json")
CALL = b"cos\nmkdir\n(U\x07run-now\x85R"  # of a pickle
READERS = (
    Reader("idx", sets.make_idx, partial(sets.read_named, sets.IDX)),
    Reader("idx gzipped", partial(sets.make_idx, suffix=".gz"), partial(sets.read_named, sets.IDX)),
    Reader("idx in a tar", partial(sets.make_tape, make=sets.make_idx), partial(sets.read_named, sets.IDX)),
    Reader("CIFAR binary", sets.make_binary, partial(sets.read_named, sets.BINARY)),
    Reader("CIFAR pickles", sets.make_batches, partial(sets.read_named, sets.BATCHES)),
    Reader(
        "CIFAR pickles with a call", partial(sets.make_batches, payload=CALL), partial(sets.read_named, sets.BATCHES)
    ),
    Reader("CIFAR sheets", sets.make_sheets, partial(sets.read_named, sets.SHEETS)),
    Reader("cache of a set", sets.make_cache, sets.read_cached, ("small.safetensors",)),
    Reader("pictures", sets.make_pictures, sets.read_pictures),
    Reader("archives of pictures", sets.make_archives, sets.read_archive),
    Reader("mapped pictures", sets.make_mapped, sets.read_mapped, ("set.pictures",)),
    Reader("npz", sets.make_arrays, sets.read_arrays),
    Reader("run, to use", make_run, read_run, USED, signed("weights")),
    Reader("run, to report", make_run, read_figures, SHOWN, signed("predictions")),
    Reader("run, on a page", make_run, read_page, (*USED, *SHOWN), signed("weights", "predictions")),
    Reader("run, to resume", make_stopped, read_stopped, RESUMED, signed("checkpoint", "start")),
    Reader("recipes", make_recipe, read_recipe),
    Reader("records", make_records, read_records),
    Reader("studies", make_study, read_study),
    Reader("weights of others", make_weights, read_weights),
)


def whole(reader: Reader, folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files to damage, as they are when whole."""
    for name in reader.files or sorted(path.name for path in folder.iterdir() if not path.name.startswith(".")):
        yield name, (folder / name).read_bytes()
