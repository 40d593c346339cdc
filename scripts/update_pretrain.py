"""Fill the tables of docs/pretrain.md from the records in results/: python scripts/update_pretrain.py."""

from pathlib import Path
from statistics import mean, stdev

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.marks import filled
from vitlab.pretrain.labels import WAYS, worth

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pretrain.md"
FIGURES = ["recipe", "data", "epochs", "linear probe", "neighbours", "of pixels", "seeds", "training", "device", "date"]
LABELS = ["run", "pretraining", "labels", *WAYS.values(), "device", "date"]


def row(record: dict) -> str:
    """One line: how it learned, on what, and what its features are worth."""
    runs = record["runs"]

    def figure(name: str) -> str:
        found = [100 * run[name] for run in runs]
        return f"{mean(found):.2f} %" + (f" ± {stdev(found):.2f}" if len(found) > 1 and stdev(found) else "")

    data, seconds = record["config"]["data"]["source"]["kind"], mean(run["train_seconds"] for run in runs)
    figures = [figure(name) for name in ("test_accuracy", "knn_accuracy", "pixels_knn_accuracy")]
    name = f"[`{record['name']}`](../results/records/{record['name']}.json)"
    cells = [
        name,
        data,
        runs[0]["epochs"],
        *figures,
        len(runs),
        f"{seconds:.0f} s",
        record["device"],
        record["date"][:10],
    ]
    return line(cells)


def labels(record: dict) -> list[str]:
    """A line for each number of labels: what each way to use them came to."""
    name = f"[`{record['name']}`](../results/labels/{record['name']}.json)"
    before = f"{record['pretraining']['train_seconds']:.0f} s"
    return [line([name, before, *cells, record["device"], record["date"][:10]]) for cells in worth(record)]


def line(cells: list) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def table(head: list[str], rows: list[str]) -> str:
    return "\n".join([line(head), "|" + "---|" * len(head), *rows])


def updated(text: str) -> str:
    """The page with its tables made anew."""
    results = ROOT / "results"
    rows = [row(record) for record in read_records(results / "records") if not learned_from_labels(record)]
    worths = [each for record in read_records(results / "labels") for each in labels(record)]
    return filled(text, {"unlabelled": table(FIGURES, rows), "labels": table(LABELS, worths)})


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
