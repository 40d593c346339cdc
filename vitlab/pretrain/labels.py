"""What labels are worth: accuracy against the share of labels, with pretraining and without, at equal total time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from rich.table import Table

from vitlab.console import plain_table
from vitlab.data.prepared import Normalise, Prepared
from vitlab.data.rows import Pictures
from vitlab.engine.evaluation import Evaluation
from vitlab.engine.loop import use_bfloat16
from vitlab.engine.probe import Reader, probe
from vitlab.engine.run import Run, describe_environment
from vitlab.engine.storage import make_folder, read_json, write, write_json
from vitlab.errors import BadInput
from vitlab.experiment import Experiment
from vitlab.given import Loaded, check_finished, find_device, load_data
from vitlab.lab import train_in
from vitlab.objectives import Supervised
from vitlab.reproduce import charts
from vitlab.sample import Sample
from vitlab.settings import from_json, override, to_json

Key = tuple[int, str, int | None]  # labels, way, seed
WAYS = {
    "probe": "linear probe",
    "finetuned": "fine-tuned",
    "scratch": "from scratch",
    "scratch-long": "from scratch, in the same time",
}


@dataclass
class Study:
    """Trainings on shares of the labels, each an ordinary run folder; what is there already is not trained again."""

    run: Run
    settings: Sequence[str]
    shares: Sequence[float]
    seeds: int
    folder: Path
    data: Path | str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        check_finished(self.run)
        if isinstance(self.run.experiment.objective, Supervised):
            raise BadInput(f"{self.run.folder} learned from labels: give a run of 'vitlab pretrain'")
        if not self.run.card.labelled:
            raise BadInput(f"the pictures of {self.run.folder} have no labels, so none can be left out")
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise BadInput(f"shares of the labels lie above 0 and up to 1, not {' '.join(map(str, self.shares))}")
        if self.seeds < 1:
            raise BadInput(f"seeds must be 1 or more, not {self.seeds}")
        self.where = find_device(self.device)
        self.pictures = Loaded(self.data, self.where)
        self.base = override(replace(self.run.experiment, objective=Supervised()), list(self.settings))

    @property
    def path(self) -> Path:
        return self.folder / "labels.json"

    @property
    def chart(self) -> Path:
        return self.folder / "labels.svg"

    @cached_property
    def whole(self) -> Prepared:
        return load_data(self.base, self.data)

    def finish(self, tell: Callable[[str], None]) -> dict[str, Any]:
        """Train what is missing, and keep the record as it grows."""
        rows: list[dict[str, Any]] = []
        before = self.before()
        make_folder(self.folder)
        for share in self.shares:
            labels = max(round(share * len(self.whole.train)), len(self.whole.card.classes))
            for row in chain([self.probed(labels)], self.trained(labels)):
                rows.append({"share": share, "labels": labels} | row)
                tell(f"{share:.0%} of the labels, {WAYS[row['way']]}: {row['test_accuracy']:.2%}")
                before.pop(key_of(rows[-1]), None)
                write_json(self.path, self.record([*rows, *before.values()]))
        write_json(self.path, self.record(rows))
        write(self.chart, curves(self.record(rows)).encode())
        return self.record(rows)

    def before(self) -> dict[Key, dict[str, Any]]:
        """The rows of an earlier call of the same settings, which stay in the record until they are said anew."""
        try:
            kept = read_json(self.path)
            if from_json(Experiment, kept["config"], str(self.path)) != self.base:
                return {}
            return {key_of(row): row for row in kept["runs"]}
        except (BadInput, KeyError, TypeError):  # there is none, or a damaged one, which is written anew
            return {}

    def record(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        result = self.run.result
        pretraining = {name: result[name] for name in ("train_seconds", "test_accuracy", "knn_accuracy", "epochs")}
        configs = {"pretraining": pretraining | {"config": to_json(self.run.experiment)}, "config": to_json(self.base)}
        return {"name": self.run.name} | describe_environment(self.where) | configs | {"runs": rows}

    def probed(self, labels: int) -> dict[str, Any]:
        """A linear probe on some labels; its decay is chosen on the held-out pictures."""
        data = self.pictures.of(override(self.base, [f"limit={labels}"]))  # those that the trainings are given
        bfloat16 = use_bfloat16(self.base.training.precision, self.where)
        network = self.run.model().to(self.where)
        read = Reader(network, Normalise(self.run.card, self.where), bfloat16, self.base.testing.at_once)

        def features(pictures: Pictures) -> torch.Tensor:
            return read(pictures).clone()

        held_out = (features(data.validation.pictures), data.validation.labels)
        weight, bias, _ = probe(
            features(data.train.pictures), data.train.labels, len(data.card.classes),
            held_out if len(data.validation) else None,
        )  # fmt: skip
        found = Evaluation((features(data.test.pictures) @ weight.mT + bias).cpu(), data.test.labels.cpu())
        return {"way": "probe", "test_accuracy": found.accuracy}

    def trained(self, labels: int) -> Iterator[dict[str, Any]]:
        """Fine-tuned, from scratch, and from scratch for as long as pretraining and fine-tuning took.

        Fewer labels make shorter epochs: there are more of them, for as many steps, to warm up in, and between two
        looks at the pictures held out, whose time would else count as training.
        """
        training = self.base.training
        whole, own = (count // min(training.batch, count) for count in (len(self.whole.train), labels))
        times = whole / own
        epochs, measure = (max(round(number * times), 1) for number in (training.epochs, training.measure))
        paced = [f"epochs={epochs}", f"measure={measure}", f"warmup={training.schedule.warmup * times!r}"]
        for seed in range(self.seeds):
            chosen = override(self.base, [f"limit={labels}", *paced, f"seed={seed}"])
            tuned = self.train(f"finetuned-{labels}-{seed}", chosen, self.run)
            yield self.row("finetuned", tuned)
            plain = self.train(f"scratch-{labels}-{seed}", chosen)
            yield self.row("scratch", plain)
            seconds = self.run.result["train_seconds"] + tuned.result["train_seconds"]
            longer = round(epochs * seconds / plain.result["train_seconds"])
            there = self.folder / f"scratch-long-{labels}-{seed}"
            if (there / "experiment.json").exists():  # clocks differ: go on as it was begun
                longer = Run(there).experiment.training.epochs
            yield self.row("scratch-long", self.train(there.name, override(chosen, [f"epochs={longer}"])))

    def train(self, name: str, experiment: Experiment, start: Run | None = None) -> Run:
        return train_in(
            self.folder / name, experiment, self.pictures.of(experiment), self.where, quiet=True, start=start
        )

    @staticmethod
    def row(way: str, run: Run) -> dict[str, Any]:
        kept = ("seed", "test_accuracy", "train_seconds", "epochs", "images_per_second")
        return {"way": way} | {name: run.result[name] for name in kept}


def key_of(row: Mapping[str, Any]) -> Key:
    return row["labels"], row["way"], row.get("seed")


def table(record: Mapping[str, Any]) -> Table:
    """Shares of the labels against ways to use them."""
    shown = plain_table("labels", *WAYS.values())
    for cells in worth(record):
        shown.add_row(*cells)
    if any(row.get("seed") for row in record["runs"]):
        shown.caption = "± is the standard deviation over seeds"
    return shown


def worth(record: Mapping[str, Any]) -> Iterator[list[str]]:
    """For each number of labels: it, and the accuracy of each way to use them."""
    for labels in counts(record):
        cells = [f"{labels:,}"]
        for way in WAYS:
            found = accuracies(record, labels, way)
            cells.append(f"{mean(found):.2%}" + (f" ± {100 * stdev(found):.2f}" if len(found) > 1 else ""))
        yield cells


def curves(record: Mapping[str, Any]) -> str:
    """Accuracy against labels, a line for each way to use them, as an SVG file."""
    found = counts(record)
    tracks = [
        charts.Track(name, [charts.Mark(name, Sample(accuracies(record, labels, way))) for labels in found])
        for way, name in WAYS.items()
    ]
    places = [f"{labels:,} label{'s' * (labels != 1)}" for labels in found]
    return charts.study(places, tracks, f"{record['name']}: what labels are worth, by accuracy on the test part")


def counts(record: Mapping[str, Any]) -> list[int]:
    """How many labels were used, fewest first."""
    return sorted({row["labels"] for row in record["runs"]})


def accuracies(record: Mapping[str, Any], labels: int, way: str) -> tuple[float, ...]:
    """With this many labels used in this way, one for each seed."""
    return tuple(row["test_accuracy"] for row in record["runs"] if (row["labels"], row["way"]) == (labels, way))
