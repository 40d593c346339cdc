"""Fill the tables of docs/pretrain.md from the records in results/: python scripts/update_pretrain.py."""

from pathlib import Path

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.marks import filled
from vitlab.pretrain import page

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pretrain.md"


def updated(text: str) -> str:
    """The page with its tables made anew."""
    results = ROOT / "results"
    unlabelled = [record for record in read_records(results / "records") if not learned_from_labels(record)]
    made = {
        "unlabelled": page.features(unlabelled, "../results"),
        "finetuned": page.finetuned(read_records(results / "finetuned"), "../results"),
        "labels": page.labels(read_records(results / "labels"), "../results"),
    }
    return filled(text, made)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
