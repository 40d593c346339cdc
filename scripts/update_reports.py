"""Write docs/reports.md and its pictures from the records in results/reports/: python scripts/update_reports.py."""

from pathlib import Path

from vitlab.recipes import reproductions
from vitlab.reproduce.page import write_page

ROOT = Path(__file__).resolve().parent.parent


def update(root: Path) -> None:
    """Write the page anew; a picture that no experiment draws any more goes."""
    page = root / "docs" / "reports.md"
    for picture in page.with_suffix("").glob("*.*"):
        picture.unlink()
    write_page(reproductions(), root / "results" / "reports", page)


if __name__ == "__main__":
    update(ROOT)
