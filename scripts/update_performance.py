"""Write docs/performance.md from the records in results/, and their figures into docs/scale.md and docs/tour.md:
python scripts/update_performance.py."""

from pathlib import Path

from vitlab.bench.page import write_page
from vitlab.bench.scale_page import fill_scale

ROOT = Path(__file__).resolve().parent.parent


def update(root: Path) -> None:
    write_page(root / "results" / "bench", root / "docs" / "performance.md")
    fill_scale(root / "results" / "bench", root / "docs")


if __name__ == "__main__":
    update(ROOT)
