"""Fill the README's tables from the records in results/: python scripts/update_readme.py."""

from pathlib import Path
from statistics import mean, stdev

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.marks import filled
from vitlab.pretrain.page import features
from vitlab.recipes import reproductions
from vitlab.reproduce.page import summary

ROOT = Path(__file__).resolve().parent.parent


def row(record: dict) -> str:
    """One line: what was trained, on what, how well with what spread, how fast."""
    runs = record["runs"]
    accuracies = [100 * run["test_accuracy"] for run in runs]
    spread = f" ± {stdev(accuracies):.2f}" if len(runs) > 1 else ""
    pictures, seconds = mean(run["images_per_second"] for run in runs), mean(run["train_seconds"] for run in runs)
    return (
        f"| [`{record['name']}`](results/records/{record['name']}.json) | {record['config']['data']['source']['kind']} "
        f"| {runs[0]['parameters']:,} | {runs[0]['epochs']} | **{mean(accuracies):.2f} %**{spread} | {len(runs)} "
        f"| {seconds:.0f} s | {pictures:,.0f} | {record['device']} | {record['date'][:10]} |"
    )


def table(records: list[dict]) -> str:
    head = "| recipe | data | weights | epochs | test accuracy | seeds | training | pictures/s | device | date |"
    return "\n".join([head, "|" + "---|" * 10, *map(row, records)]) + "\n"


def updated(text: str) -> str:
    """The text with every table between its two marks made anew."""
    labelled, unlabelled = [], []
    for record in read_records(ROOT / "results" / "records"):
        (labelled if learned_from_labels(record) else unlabelled).append(record)
    made = {
        "results": table(labelled),
        "unlabelled": features(unlabelled, "results"),
        "reports": summary(reproductions(), ROOT / "results" / "reports", "docs/reports.md"),
    }
    return filled(text, made)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(updated(readme.read_text(encoding="utf-8")), encoding="utf-8")
