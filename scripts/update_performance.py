"""Write docs/performance.md and its charts from the records in results/: python scripts/update_performance.py."""

from pathlib import Path

from vitlab.bench.page import write_page

ROOT = Path(__file__).resolve().parent.parent


def update(root: Path) -> None:
    write_page(root / "results" / "bench", root / "docs" / "performance.md")


if __name__ == "__main__":
    update(ROOT)
