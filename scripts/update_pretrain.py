"""Fill the table of docs/pretrain.md from the records in results/: python scripts/update_pretrain.py."""

from pathlib import Path
from statistics import mean, stdev

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.marks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pretrain.md"


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
    return "| " + " | ".join(map(str, cells)) + " |"


def updated(text: str) -> str:
    """The page with its table made anew."""
    records = read_records(ROOT / "results" / "records")
    head = "| recipe | data | epochs | linear probe | neighbours | of pixels | seeds | training | device | date |"
    rows = [row(record) for record in records if not learned_from_labels(record)]
    return filled(text, {"unlabelled": "\n".join([head, "|" + "---|" * 10, *rows])})


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
