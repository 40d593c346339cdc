"""A run is a folder: it can be moved, zipped, read by hand, killed at any instant and resumed to the same result."""

import fcntl
import hashlib
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from vitlab.data.prepared import Card
from vitlab.engine.building import build
from vitlab.engine.evaluation import Evaluation, checked
from vitlab.engine.facts import Facts, described, figures, positive
from vitlab.engine.storage import explain, read_json, read_tensors, write, write_json, write_tensors
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.model import Network, Shape
from vitlab.settings import from_json, parse_json, to_json

ZOO = Path(__file__).parent.parent / "zoo"  # trained models that come with the package, each a run folder
STARTS = ("vitlab", "vitlab/__main__.py")  # how the program's own path ends, as a script and as python -m vitlab


class InUse(BadInput):
    """Another process works in the folder."""


class Run:
    """The files of one run; every write is whole or not there."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def name(self) -> str:
        return Path(os.path.abspath(self.folder)).name  # of `.` too

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def weights(self) -> Path:
        return self.folder / "weights.safetensors"

    @property
    def start(self) -> Path:
        """The weights that training starts from, where they are another run's."""
        return self.folder / "start.safetensors"

    @property
    def seen(self) -> Path:
        """Which pictures it has learned with their labels, by their digests, and those of what it started from."""
        return self.folder / "seen.safetensors"

    @property
    def kept(self) -> Path:
        """What an objective keeps beside the weights."""
        return self.folder / "objective.safetensors"

    @property
    def report(self) -> Path:
        return self.page("report.html")

    @property
    def drawings(self) -> Path:
        return self.page("look")

    @property
    def shipped(self) -> bool:
        """Whether it comes with the package, where nothing is to be written."""
        return self.folder.parent == ZOO

    def page(self, name: str) -> Path:
        """Where something to look at is put: in the run; for a shipped one, in the current folder."""
        return Path(f"{self.name}-{name}") if self.shipped else self.folder / name

    @property
    def finished(self) -> bool:
        return (self.folder / "result.json").exists() and not self.checkpoint.exists()

    @property
    def experiment(self) -> Experiment:
        path = self.folder / "experiment.json"
        return from_json(Experiment, read_json(path), str(path))

    @property
    def card(self) -> Card:
        path = self.folder / "data.json"
        return from_json(Card, read_json(path), str(path))

    @property
    def environment(self) -> Facts:
        path = self.folder / "environment.json"
        return described(read_json(path), str(path))

    def begin(
        self,
        experiment: Experiment,
        card: Card,
        device: torch.device,
        start: "Run | None" = None,
        *,
        learned: Tensor | None = None,
        around: Mapping[str, Any] | None = None,
    ) -> None:
        """Write down all that is known before the first step, and what else there is to say of what is `around`."""
        if (self.folder / "experiment.json").exists():
            go_on = "" if self.finished else f"go on with 'vitlab resume {self.folder}', or "
            raise BadInput(f"{self.folder} is there already: {go_on}choose another --name")
        origin = dict(around or {})
        if start is not None:
            content = start.weights.read_bytes()
            write(self.start, content)
            origin |= {"start": {"run": start.name, "sha256": hashlib.sha256(content).hexdigest()}}
        if learned is not None and len(learned):
            write_tensors(self.seen, {"digests": learned}, {})
        write_json(self.folder / "environment.json", describe_environment(device) | origin)
        write_json(self.folder / "data.json", to_json(card))
        write_json(self.folder / "experiment.json", to_json(experiment))  # last: a folder with it is a run

    def build(self, weights: Mapping[str, Tensor] | None = None) -> Network:
        """The run's model with its first weights; those that it is to take, if there are any, say how large it is."""
        card = self.card
        shape = Shape(card.channels, card.height, card.width)
        network = build(self.experiment.model, shape, len(card.classes), weights)
        if self.start.exists():
            take_start(network, read_tensors(self.start)[0], self.start)
        return network

    def model(self) -> Network:
        """The trained model, ready to be used."""
        if not self.weights.exists():
            raise BadInput(f"{self.folder} has no weights yet: finish it with 'vitlab resume {self.folder}'")
        tensors, _ = read_tensors(self.weights)
        network = self.build(tensors)
        load_weights(network, tensors, self.weights)
        return network.eval()

    def metrics(self) -> list[Facts]:
        """One mapping per finished epoch; a last line that a crash cut short is not one."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        *whole, last = path.read_bytes().split(b"\n")
        for number, line in enumerate([*whole, last] if last else whole, start=1):
            try:
                content = parse_json(line)
            except ValueError:
                if number <= len(whole):
                    raise BadInput(f"{path} is damaged: line {number} is not JSON") from None
            else:
                found.append(figures(content, f"{path}, line {number},"))
        return found

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        path = self.folder / "metrics.jsonl"
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise explain(error, f"cannot write {path}") from error

    def forget_after(self, step: int) -> None:
        """Drop the metrics of epochs that end after `step`: they will be made again."""
        kept = [json.dumps(line) + "\n" for line in self.metrics() if line["step"] <= step]
        write(self.folder / "metrics.jsonl", "".join(kept).encode())

    def write_evaluation(self, evaluation: Evaluation, facts: Mapping[str, Any]) -> None:
        write_tensors(
            self.folder / "predictions.safetensors", {"logits": evaluation.logits, "labels": evaluation.labels}, {}
        )
        low, high = evaluation.interval
        result = {"test_accuracy": evaluation.accuracy, "low": low, "high": high, "count": evaluation.count}
        write_json(self.folder / "result.json", result | {"test_loss": evaluation.loss} | dict(facts))

    @property
    def evaluation(self) -> Evaluation:
        """The predictions on the test part, as the run left them."""
        path = self.folder / "predictions.safetensors"
        tensors, _ = read_tensors(path)
        try:
            return checked(Evaluation(tensors["logits"], tensors["labels"]))
        except KeyError as error:
            raise BadInput(f"{path} is damaged: it lacks {error}") from None
        except ValueError as error:
            raise BadInput(f"{path} is damaged: {error}") from None

    @property
    def result(self) -> Facts:
        path = self.folder / "result.json"
        return figures(read_json(path), str(path))

    @property
    def calibration(self) -> Path:
        """The temperature that was fitted to the model, and what it did."""
        return self.folder / "calibration.json"

    @property
    def temperature(self) -> float:
        """What logits are divided by before they become probabilities; 1 until 'vitlab calibrate' has found another."""
        path = self.calibration
        return positive(read_json(path), str(path), "temperature") if path.exists() else 1.0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes out; the system lets go by itself when this one dies, so no lock is ever stale."""
        path = self.folder / "lock"
        try:
            file = open(path, "a")  # noqa: SIM115 (held for the whole run)
        except OSError as error:
            raise explain(error, f"cannot use {self.folder}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InUse(
                    f"{self.folder} is in use by another process: wait for it, or choose another name"
                ) from None
            yield


def load_weights(network: torch.nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors into a model, refusing names or shapes that do not fit."""
    own = network.state_dict()
    check_fit(own, tensors, own.keys() | tensors.keys(), path)
    network.load_state_dict(dict(tensors))


def take_start(network: torch.nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy another run's weights into a model, all but those of its logits, whose classes may be others."""
    own = network.state_dict()
    wanted = {name for name in own if "head.logits." not in name}
    check_fit(own, tensors, wanted, path)
    network.load_state_dict({name: tensors[name] if name in wanted else own[name] for name in own})


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Tensor], wanted: Iterable[str], path: Path) -> None:
    odd = [
        name for name in sorted(wanted) if name not in own or name not in given or own[name].shape != given[name].shape
    ]
    if odd:
        more = f" and {len(odd) - 3} more" if len(odd) > 3 else ""
        raise BadInput(
            f"{path} does not fit this model, in {', '.join(odd[:3])}{more}: it is of another model, or was written by "
            "another version of vitlab"
        )


@contextmanager
def holding(tensors: Mapping[str, Tensor], name: str, learned: Tensor) -> Iterator[Run]:
    """A run of these weights alone, which have learned such pictures, for another to start from."""
    with TemporaryDirectory() as folder:
        run = Run(Path(folder) / name)
        run.folder.mkdir()
        write_tensors(run.weights, dict(tensors), {})
        write_tensors(run.seen, {"digests": learned}, {})
        yield run


def zoo() -> list[str]:
    """The names of the trained models that come with the package."""
    return sorted(path.parent.name for path in ZOO.glob("*/experiment.json"))


def open_run(folder: Path | str) -> Run:
    """An existing run folder, or a trained model of the package by its name, or one line that says why it is none."""
    folder = Path(folder)
    if (folder / "experiment.json").exists():
        return Run(folder)
    if str(folder) in zoo():
        return Run(ZOO / folder)
    raise BadInput(
        f"no run at {folder}: there is no experiment.json in it, and the trained models that come with vitlab are "
        f"{', '.join(zoo())}"
    )


def check_name(name: str) -> None:
    """A run's name is that of a folder right in the folder of the runs."""
    if Path(name).name != name or name.startswith("."):
        raise BadInput(f"'{name}' is no name for a run: use letters, digits, - and _")


def claim_run(runs: Path, wanted: str, exact: bool) -> Run:
    """A folder for a new run: `wanted`, or unless it must be `exact`, `wanted-2`, `wanted-3`, … if that is taken."""
    check_name(wanted)
    number = 1
    while True:
        folder = runs / (wanted if number == 1 else f"{wanted}-{number}")
        try:
            folder.mkdir(parents=True, exist_ok=exact)
            return Run(folder)
        except OSError as error:
            if exact or not isinstance(error, FileExistsError):
                raise explain(error, f"cannot make {folder}") from error
            number += 1


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Where a figure comes from: device, versions, date and command."""
    return {
        "command": shlex.join(["vitlab", *sys.argv[1:]]) if sys.argv[0].endswith(STARTS) else "python",
        "device": describe_device(device),
        "threads": torch.get_num_threads(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"vitlab": own_version(), "python": platform.python_version(), "torch": torch.__version__},
    }


def own_version() -> str:
    try:
        return version("vitlab")
    except PackageNotFoundError:
        return "from source"


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    names = [line.partition(":")[2].strip() for line in cpu_lines() if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []
