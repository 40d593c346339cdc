"""What can be measured: each part is its settings, read from the command line, and a way to measure."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from vitlab.bench.attention import AttentionCosts, Limits
from vitlab.bench.growth import BASES, measure_growth
from vitlab.bench.inference import Served, inference_lines, measure_inference
from vitlab.bench.peers import compare_peers, passes
from vitlab.bench.pipeline import compare_data_paths
from vitlab.bench.points import Point
from vitlab.bench.record import Row
from vitlab.bench.roofline import Bound, measure_bound
from vitlab.bench.scale import KINDS, KindName, Took, measure_scale, plan_in
from vitlab.bench.settings import Manner, growth_setting
from vitlab.bench.shapes import FOR_DEVICE, SHAPES, ShapeName, Work
from vitlab.data.dataset import Part as DataPart
from vitlab.engine.compiler import compiler_trouble
from vitlab.engine.run import Run, open_run
from vitlab.errors import BadInput
from vitlab.given import check_finished, load_data, tested_on
from vitlab.printed import Words
from vitlab.recipes import recipe
from vitlab.settings import override, to_json

Count = Annotated[int | None, tyro.conf.arg(metavar="COUNT", help_behavior_hint="")]
Folder = Annotated[Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")]
Gigabytes = Annotated[float | None, tyro.conf.arg(metavar="GB", help_behavior_hint="")]
Counts = Annotated[tuple[int, ...], tyro.conf.arg(metavar="COUNT…", help_behavior_hint="")]
Shapes = Annotated[tuple[ShapeName, ...], tyro.conf.arg(help_behavior_hint="")]
Kinds = Annotated[tuple[KindName, ...], tyro.conf.arg(help_behavior_hint="")]
Tell = Callable[[str], object]
Runs = list[Row] | list[Point] | list[Bound] | list[Took] | list[Served]
Measured = tuple[str, dict[str, Any], Runs]  # a record's name, config and runs
DIGITS = 10_000  # pictures that are embedded


@dataclass(frozen=True)
class Common:
    """What every part is told."""

    threads: int = 2  # CPU threads that torch may use
    device: Annotated[str, tyro.conf.arg(metavar="DEVICE")] = "auto"  # auto, cpu or cuda
    out: Path = Path("results/bench")  # folder of the records
    page: Path = Path("docs/performance.md")  # the page that is written from the records

    def check(self, device: str) -> None:
        """Refuse what cannot be measured, before anything is."""
        for field in fields(self):
            value = getattr(self, field.name)
            if (
                field.name in ("threads", "rounds", "doublings", "batch", "width", "heads")
                and value is not None
                and value < 1
            ):
                raise BadInput(f"{field.name} must be 1 or more, not {value}")

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        raise NotImplementedError


@dataclass(frozen=True)
class Peers(Common):
    """A training step and an epoch of vitlab against timm, vit-pytorch, transformers and nn.TransformerEncoder."""

    rounds: int = 30  # turns that each contender gets; a ratio is the median over them
    shapes: Shapes = ()  # models to train (default: R1 R0 R4 on a CPU, tiny and small on a GPU)
    settings: tuple[Manner, ...] = ("users", "best")  # users: as its users run it; best: the fastest setting
    pictures: Count = None  # pictures in an epoch (default: as many as the shape says)

    def check(self, device: str) -> None:
        super().check(device)
        if not self.settings:
            raise BadInput("settings must name users, best or both")
        for work in self.works(device):
            most = DIGITS if work.picture.channels == 1 else 1_000_000
            if not work.batch <= work.pictures <= most:
                raise BadInput(f"pictures must be from {work.batch}, one batch, to {most}, not {work.pictures}")

    def works(self, device: str) -> list[Work]:
        found = [SHAPES[name] for name in self.shapes or FOR_DEVICE[device]]
        return found if self.pictures is None else [replace(work, pictures=self.pictures) for work in found]

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        trouble = compiler_trouble(device.type) if "best" in self.settings else None
        if trouble:
            tell(f"compiled settings are left out, as torch.compile does not work here: {trouble}")
        for work in self.works(device.type):
            rows = compare_peers(work, self.rounds, device, self.settings, tell)
            config = {"rounds": self.rounds, "shapes": {work.name: str(work)}, "settings": {work.name: asdict(work)}}
            config |= {"compiler": trouble or "works"} if "best" in self.settings else {}
            only = f"-{self.settings[0]}" if len(set(self.settings)) == 1 else ""
            yield f"peers-{work.name.lower()}{only}-{device.type}", config, rows


@dataclass(frozen=True)
class Attention(Common):
    """Forward and backward time and peak memory of every kind of attention, from 64 to 16,384 tokens."""

    rounds: int = 15  # turns that each kind gets; fewer, at least 3, where a call takes seconds
    tokens: Counts = ()  # token counts (default: 64 128 256 … 16384)
    batch: Count = None  # sequences at once (default: 1 on a CPU, 64 on a GPU)
    width: int = 64  # features of a token
    heads: int = 4  # heads, where a kind has them
    seconds: float = 20.0  # a call expected to take longer is left out
    memory: Gigabytes = None  # a call expected to take more is left out (default: 8 on a CPU, 100 on a GPU)

    def check(self, device: str) -> None:
        super().check(device)
        if self.tokens and min(self.tokens) < 2:
            raise BadInput(f"tokens must be 2 or more, not {min(self.tokens)}")
        if self.width % self.heads:
            raise BadInput(f"{self.heads} heads do not divide a width of {self.width}")
        if self.seconds <= 0 or (self.memory is not None and self.memory <= 0):
            raise BadInput("seconds and memory must be more than 0, or nothing could be measured")

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        on_gpu = device.type == "cuda"
        counts = tuple(sorted(set(self.tokens))) or tuple(2**power for power in range(6, 15))
        memory = self.memory or (100.0 if on_gpu else 8.0)
        costs = AttentionCosts(
            counts, self.batch or (64 if on_gpu else 1), self.width, self.heads, self.rounds,
            Limits(self.seconds, memory * 1e9), device,
        )  # fmt: skip
        points: list[Point] = []
        for found in costs.measure():
            points += found
            tell(f"{found[0].size:,} tokens: " + ", ".join(map(words_of, found)))
        config = {
            "rounds": self.rounds, "tokens": list(counts), "batch": costs.batch, "width": self.width,
            "heads": self.heads, "precision": "bfloat16" if on_gpu else "float32",
            "seconds": self.seconds, "memory": memory,
        }  # fmt: skip
        yield f"attention-{device.type}", config, points


def words_of(point: Point) -> str:
    if point.milliseconds is None:
        return f"{point.series} {point.note}"
    return f"{point.series} {point.milliseconds:,.2f} ms {(point.memory or 0) / 1e6:,.1f} MB"


@dataclass(frozen=True)
class Growth(Common):
    """One epoch of vitlab's loop while pictures, tokens, width or depth is doubled again and again."""

    rounds: int = 5  # turns that each size gets
    doublings: Count = None  # times that each is doubled (default: 5 on a CPU, 4 on a GPU)

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        base, doublings = BASES[device.type], self.doublings or (4 if device.type == "cuda" else 5)
        tell(f"{self.rounds} rounds of epochs, each doubled {doublings} times from {base}")
        points = measure_growth(base, doublings, self.rounds, device)
        config = {"rounds": self.rounds, "base": asdict(base), "words": str(base)}
        yield f"growth-{device.type}", config | {"setting": str(growth_setting(device))}, points


@dataclass(frozen=True)
class Data(Common):
    """Stored pictures to normalised batches: vitlab's batches against a DataLoader, plain and augmented."""

    rounds: int = 6  # passes that each way gets
    pictures: int = 6400  # pictures in a pass

    def check(self, device: str) -> None:
        super().check(device)
        if not 64 <= self.pictures <= 1_000_000:
            raise BadInput(f"pictures must be from 64, one batch, to 1000000, not {self.pictures}")

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        rows = []
        for work in (SHAPES["R1"], SHAPES["R4"]):
            rows += compare_data_paths(work, self.rounds, device, self.pictures)
        yield f"data-{device.type}", {"rounds": self.rounds, "pictures": self.pictures, "shapes": {}}, rows


@dataclass(frozen=True)
class Roofline(Common):
    """What bounds a recipe's step: its share of the device's matrix rate, and its time by kind of kernel."""

    recipe: tyro.conf.Positional[str] = "digits"  # a recipe, or a configuration file
    settings: Words = ()  # changes to it, such as batch=1000
    rounds: int = 10  # bursts of steps; the time is the median over them
    data: Folder = None  # folder of the data sets (default: $VITLAB_DATA, or a folder in your cache)

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        experiment = override(recipe(self.recipe), list(self.settings))
        data = load_data(experiment, self.data)
        name = "-".join([Path(self.recipe).stem, *(word.replace("=", "-") for word in self.settings)])
        bound = measure_bound(name, experiment, data, device, self.rounds)
        yield f"roofline-{name}-{device.type}", {"rounds": self.rounds, "experiment": to_json(experiment)}, [bound]


@dataclass(frozen=True)
class Scale(Common):
    """A training step in one process and in two on a CPU, and its parts alone; a model of step time is fitted to it."""

    rounds: int = 9  # turns that everything gets
    kinds: Kinds = ()  # models to train (default: all of them)
    exchanged: float = 64.0  # MB of the largest message that two processes exchange
    stored: float = 300.0  # MB of a file of pictures that is read from at random
    patience: float = 0.0  # minutes in which a time is taken again where other programs were loud

    def check(self, device: str) -> None:
        super().check(device)
        if device != "cpu":
            raise BadInput("scale is measured on a CPU, by two processes of one thread each: add --device cpu")
        if len(set(self.kinds or KINDS)) < 2 or self.exchanged < 0.017 or self.stored <= 0:
            raise BadInput("a fit needs 2 kinds or more, 0.017 MB or more exchanged, and more than 0 MB stored")

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        if device.type != "cpu":
            tell("scale is measured on a CPU, and left out here")
            return
        kinds = {str(name): KINDS[name] for name in self.kinds or KINDS}
        with tempfile.TemporaryDirectory() as folder:
            plan = plan_in(folder, kinds, round(self.exchanged * 2**20), round(self.stored * 1e6))
            found, others = measure_scale(plan, self.rounds, self.threads, 60 * self.patience, tell)
        said = {name: {"words": str(kind), "gradients": kind.gradients} for name, kind in kinds.items()}
        config = {"rounds": self.rounds, "processes": 2, "others": round(others, 3), "kinds": said}
        yield f"scale-{device.type}", config, found


@dataclass(frozen=True)
class Inference(Common):
    """Latency and throughput of trained models: torch, compiled, onnxruntime, 8-bit weights, and timm's of the size."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = (Path("cifar10"),)  # folders of runs, or models of vitlab
    rounds: int = 10  # turns that each way gets
    batches: Counts = (1, 4, 16, 64, 256)  # pictures at once
    pictures: int = 1000  # test pictures on which accuracy is counted; 0: none
    data: Folder = None  # folder of the data sets (default: $VITLAB_DATA, or a folder in your cache)

    def check(self, device: str) -> None:
        super().check(device)
        if not self.batches or min(self.batches) < 1:
            raise BadInput("batches must be 1 or more, and there must be one")
        for run in self.runs:
            check_finished(open_run(run))

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        rows: list[Served] = []
        load = round(os.getloadavg()[0], 1)
        for run in map(open_run, self.runs):
            test = self.test_part(run, tell)
            for found in measure_inference(run, sorted(set(self.batches)), self.rounds, device, test):
                rows += found
                tell("\n".join(inference_lines(found)))
        trained = {run.name: origin(run) for run in map(open_run, self.runs)}
        config = {"rounds": self.rounds, "batches": list(self.batches), "load": load, "trained": trained}
        yield f"inference-{device.type}", config, rows

    def test_part(self, run: Run, tell: Tell) -> DataPart | None:
        try:
            return tested_on(run, self.data).test.pick(slice(self.pictures)) if self.pictures else None
        except BadInput as reason:
            tell(f"the accuracy of {run.name} is not measured, since its test part is not at hand ({reason})")
        return None


def origin(run: Run) -> str:
    return "comes with vitlab" if run.shipped else run.environment["command"]


@dataclass(frozen=True)
class All(Common):
    """All of them, one after the other: about an hour on two cores."""

    rounds: int = 30  # turns that each contender gets; the other parts take fewer, in proportion

    def parts(self) -> list[Common]:
        common = {field.name: getattr(self, field.name) for field in fields(Common)}
        few = passes(self.rounds)
        return [
            Peers(rounds=self.rounds, **common),
            Attention(rounds=-(-self.rounds // 2), **common),
            Growth(rounds=few, **common),
            Data(rounds=few, **common),
            Roofline(rounds=few, **common),
            Scale(rounds=few, **common),
            Inference(rounds=few, **common),
        ]

    def measure(self, device: torch.device, tell: Tell) -> Iterator[Measured]:
        for part in self.parts():
            yield from part.measure(device, tell)


Part = Peers | Attention | Growth | Data | Roofline | Scale | Inference | All
