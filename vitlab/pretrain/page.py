"""Tables of what was learned without labels, from the records of runs."""

from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any

from vitlab.bench.tables import link, of_runs, table, where
from vitlab.pretrain.labels import WAYS, worth

FEATURES = [
    "recipe", "data", "epochs", "linear probe", "k-NN", "k-NN of pixels", "seeds", "training", "device", "date"
]  # fmt: skip
FINETUNED = [
    "run", "data", "fine-tuned", "probe before", "seeds", "pretraining", "fine-tuning", "epochs", "device", "date"
]  # fmt: skip
LABELS = ["run", "pretraining", "labels", *WAYS.values(), "seeds", "device", "date"]


def features(records: Iterable[Mapping[str, Any]], results: str) -> str:
    """How each recipe learned, on what, and what its features are worth; `results` is where their folder lies."""
    rows = []
    for record in records:
        runs = record["runs"]
        figures = [of_runs(runs, name) for name in ("test_accuracy", "knn_accuracy", "pixels_knn_accuracy")]
        seconds = mean(run["train_seconds"] for run in runs)
        learned = [record["config"]["data"]["source"]["kind"], str(runs[0]["epochs"]), *figures, str(len(runs))]
        rows.append([link(record, f"{results}/records"), *learned, f"{seconds:.0f} s", *where(record)])
    return table(FEATURES, rows, left=2, words=2)


def finetuned(records: Iterable[Mapping[str, Any]], results: str) -> str:
    """What each recipe came to with all labels, from the weights that it had learned without them."""
    rows = []
    for record in records:
        runs, source = record["runs"], record["config"]["data"]["source"]["kind"]
        before = [run["pretraining"] for run in runs]
        took = [f"{mean(run['train_seconds'] for run in each):.0f} s" for each in (before, runs)]
        figures = [of_runs(runs, "test_accuracy"), of_runs(before, "test_accuracy"), str(len(runs)), *took]
        rows.append([link(record, f"{results}/finetuned"), source, *figures, str(runs[0]["epochs"]), *where(record)])
    return table(FINETUNED, rows, left=2, words=2)


def labels(records: Iterable[Mapping[str, Any]], results: str) -> str:
    """A line for each number of labels: what each way to use them came to."""
    rows = []
    for record in records:
        before = f"{record['pretraining']['train_seconds']:.0f} s"
        seeds = str(len({run["seed"] for run in record["runs"] if "seed" in run}))
        rows += [[link(record, f"{results}/labels"), before, *cells, seeds, *where(record)] for cells in worth(record)]
    return table(LABELS, rows, left=1, words=2)
