"""Fill the tables of docs/pretrain.md, and draw its curves, from the records in results/: update_pretrain.py."""

from pathlib import Path

from vitlab.bench.page import learned_from_labels, read_records
from vitlab.marks import filled
from vitlab.pretrain import page
from vitlab.pretrain.labels import curves

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "pretrain.md"
CHARTS = ROOT / "docs" / "pretrain"


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


def drawn() -> dict[Path, str]:
    """What labels are worth, a chart for each record."""
    return {CHARTS / f"{record['name']}.svg": curves(record) for record in read_records(ROOT / "results" / "labels")}


if __name__ == "__main__":
    CHARTS.mkdir(exist_ok=True)
    for path, chart in drawn().items():
        path.write_text(chart, encoding="utf-8")
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
