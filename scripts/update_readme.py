"""Fill the README's tables from the records in results/: python scripts/update_readme.py."""

from pathlib import Path
from statistics import mean

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.bench.tables import link, of_runs, table, where
from vitlab.marks import filled
from vitlab.pretrain.page import features
from vitlab.recipes import reproductions
from vitlab.reproduce.page import summary

ROOT = Path(__file__).resolve().parent.parent


RESULTS = [
    "recipe", "data", "weights", "epochs", "test accuracy", "seeds", "training", "pictures/s", "device", "date"
]  # fmt: skip


def row(record: dict) -> list[str]:
    """One line: what was trained, on what, how well with what spread, how fast."""
    runs = record["runs"]
    figures = [f"{runs[0]['parameters']:,}", str(runs[0]["epochs"]), of_runs(runs, "test_accuracy"), str(len(runs))]
    pictures, seconds = (mean(run[name] for run in runs) for name in ("images_per_second", "train_seconds"))
    source = record["config"]["data"]["source"]["kind"]
    return [link(record, "results/records"), source, *figures, f"{seconds:.0f} s", f"{pictures:,.0f}", *where(record)]


def updated(text: str) -> str:
    """The text with every table between its two marks made anew."""
    labelled, unlabelled = [], []
    for record in read_records(ROOT / "results" / "records"):
        (labelled if learned_from_labels(record) else unlabelled).append(record)
    made = {
        "results": table(RESULTS, map(row, labelled), left=2, words=2),
        "unlabelled": features(unlabelled, "results"),
        "reports": summary(reproductions(), ROOT / "results" / "reports", "docs/reports.md"),
    }
    return filled(text, made)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text(encoding="utf-8")), encoding="utf-8")
