"""Peers: the training step on a batch in memory, and the whole epoch with its data path, by turns in one run."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from vitlab.bench.contenders import CONTENDERS, LIBRARY
from vitlab.bench.loops import Trained
from vitlab.bench.measure import Call, Timing, take_turns
from vitlab.bench.pipeline import LOADINGS, noise, one_by_one, transforms_used
from vitlab.bench.record import Row, missing
from vitlab.bench.reports import Loading, loader
from vitlab.bench.runners import LOOP, Ring, Runner, enter, repeats_for
from vitlab.bench.settings import Manner
from vitlab.bench.shapes import Work
from vitlab.data import Sample
from vitlab.data.dataset import DataSet, Part, take
from vitlab.data.prepared import Card, describe

Tell = Callable[[str], object]
Loaders = dict[Loading, DataLoader[Any]]


def compare_peers(work: Work, rounds: int, device: torch.device, manners: tuple[Manner, ...], tell: Tell) -> list[Row]:
    """The rows of one shape: a step and an epoch, each contender in each manner."""
    torch.manual_seed(0)
    data = pictures_for(work)
    shape = (work.batch, work.picture.channels, work.picture.height, work.picture.width)
    batch = torch.randn(shape, device=device), torch.randint(0, work.classes, (work.batch,), device=device)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        trained = Trained(work.settings(), data, work.batch, work.augment)
        ring = Ring(work, trained, device, Path(folder), *batch)
        runners = []
        for manner in sorted(
            manners, key=("best", "users").index
        ):  # trials drop all that is compiled, so they are first
            here = [c for c in CONTENDERS if c.installed and (c.tuned or manner == "users")]
            runners += enter(ring, here, manner, tell)
        tell(f"{work.name}: {rounds} rounds of steps, then epochs of {work.pictures} pictures")
        rows += compare_steps(ring, runners, rounds)
        rows += compare_epochs(ring, runners, passes(rounds), tell)
    gone = [missing(part, work.name, c.name, c.package) for part in PARTS for c in CONTENDERS if not c.installed]
    return sorted([*rows, *gone], key=lambda row: (PARTS.index(row.part), MANNER_ORDER.index(row.manner)))


PARTS = ("training", "epoch")
MANNER_ORDER = ("users", "best")


def passes(rounds: int) -> int:
    """A pass over thousands of pictures is steadier than a few steps, so it needs fewer turns."""
    return -(-rounds // 5)


def pictures_for(work: Work) -> DataSet:
    """The embedded digits, or noise of the shape: how long a step takes does not depend on what is on a picture."""
    if work.picture.channels == 3:
        return noise(work, work.pictures)
    sample = Sample().load(Path())
    return DataSet(sample.name, sample.classes, take(sample.train, work.pictures), sample.test)


def compare_steps(ring: Ring, runners: list[Runner], rounds: int) -> list[Row]:
    """Zero the gradients, forward, cross-entropy, backward, AdamW, on a batch that lies on the device."""
    calls: dict[str, Call] = {runner.key: runner.step for runner in runners}
    calls |= {gradients(runner.name): runner.gradients for runner in runners if runner.gradients}
    timings = take_turns(calls, rounds, repeats_for(ring.work), ring.device)
    rows = []
    for runner in runners:
        row = row_of("training", ring.work, runner, timings, ring.work.batch)
        if runner.gradients:
            row = row.with_gradients(timings[gradients(runner.name)], timings[gradients(LIBRARY)])
        rows.append(row)
    return rows


def gradients(name: str) -> str:
    return f"{name}: gradients"


def row_of(part: str, work: Work, runner: Runner, timings: dict[str, Timing], pictures: int) -> Row:
    """A runner's row: its time as a multiple of vitlab's step, and of vitlab's whole loop, in the same manner."""
    loop = timings[f"{LOOP}, {runner.manner}"]
    base = loop if part == "epoch" else timings[f"{LIBRARY}, {runner.manner}"]
    row = Row(
        part, work.name, runner.name, parameters=runner.parameters, note=runner.note,
        manner=runner.manner, setting=str(runner.setting),
    )  # fmt: skip
    row = row.timed(timings[runner.key], base, pictures)
    return replace(row, loop_ratio=round(timings[runner.key].ratio(loop), 3))


def compare_epochs(ring: Ring, runners: list[Runner], rounds: int, tell: Tell) -> list[Row]:
    """From stored pictures to moved weights: every library with a DataLoader, vitlab with its loop."""
    data = ring.trained.data
    card = describe(data, data.train, Part(data.train.pictures[:0], data.train.labels[:0]))
    loaders = loaders_for(ring, card)
    calls: dict[str, Call] = {}
    used: dict[str, str] = {}
    # The model alone has no epoch of its own: the loop is how vitlab's users run it.
    entered = [runner for runner in runners if runner.name != LIBRARY]
    for runner in entered:
        if not runner.loads:
            calls[runner.key] = runner.epoch(None)
            continue
        tried = {str(loading): runner.epoch(batches) for loading, batches in loaders[runner.manner].items()}
        timings = take_turns(tried, 1, 1, ring.device) if len(tried) > 1 else {}
        best = min(timings, key=lambda name: timings[name].median) if timings else next(iter(tried))
        calls[runner.key] = tried[best]
        used[runner.key] = f"DataLoader, {best}"
        if timings:
            tell(f"{ring.work.name}, epoch, {runner.name}: {used[runner.key]}")
    timings = take_turns(calls, rounds, 1, ring.device)
    rows = []
    seen = ring.work.pictures // ring.work.batch * ring.work.batch
    for runner in entered:
        row = row_of("epoch", ring.work, runner, timings, seen)
        note = f"{used[runner.key]}; {transforms_used()}" if runner.loads else "data in memory, metrics written"
        rows.append(replace(row, note=note))
    return rows


def loaders_for(ring: Ring, card: Card) -> dict[Manner, Loaders]:
    """The DataLoader of the users' manner, and those tried for the best; all contenders share them."""
    part, batch = ring.trained.data.train, ring.work.batch
    transform = one_by_one(card, augmented=bool(ring.work.augment.crop))
    made = {loading: loader(part, transform, batch, loading) for loading in LOADINGS[ring.device.type]}
    first = next(iter(made))
    return {"users": {first: made[first]}, "best": made}
