"""Fill the tables of docs/pretrain.md from the records in results/: python scripts/update_pretrain.py."""

from pathlib import Path
from statistics import mean, stdev

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.bench.tables import table
from vitlab.marks import filled
from vitlab.pretrain.labels import WAYS, worth

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pretrain.md"
FIGURES = ["recipe", "data", "epochs", "linear probe", "neighbours", "of pixels", "seeds", "training", "device", "date"]
LABELS = ["run", "pretraining", "labels", *WAYS.values(), "device", "date"]


def row(record: dict) -> list[str]:
    """One line: how it learned, on what, and what its features are worth."""
    runs = record["runs"]

    def figure(name: str) -> str:
        found = [100 * run[name] for run in runs]
        return f"{mean(found):.2f} %" + (f" ± {stdev(found):.2f}" if len(found) > 1 and stdev(found) else "")

    figures = [figure(name) for name in ("test_accuracy", "knn_accuracy", "pixels_knn_accuracy")]
    seconds = mean(run["train_seconds"] for run in runs)
    learned = [record["config"]["data"]["source"]["kind"], str(runs[0]["epochs"]), *figures, str(len(runs))]
    return [link(record, "records"), *learned, f"{seconds:.0f} s", *where(record)]


def labels(record: dict) -> list[list[str]]:
    """A line for each number of labels: what each way to use them came to."""
    before = f"{record['pretraining']['train_seconds']:.0f} s"
    return [[link(record, "labels"), before, *cells, *where(record)] for cells in worth(record)]


def link(record: dict, folder: str) -> str:
    return f"[`{record['name']}`](../results/{folder}/{record['name']}.json)"


def where(record: dict) -> list[str]:
    return [record["device"], record["date"][:10]]


def updated(text: str) -> str:
    """The page with its tables made anew."""
    results = ROOT / "results"
    rows = [row(record) for record in read_records(results / "records") if not learned_from_labels(record)]
    worths = [each for record in read_records(results / "labels") for each in labels(record)]
    made = {"unlabelled": table(FIGURES, rows, left=2, words=2), "labels": table(LABELS, worths, left=1, words=2)}
    return filled(text, made)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
