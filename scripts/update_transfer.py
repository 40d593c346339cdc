"""Fill the table of docs/transfer.md from its record: python scripts/update_transfer.py."""

import json
from pathlib import Path
from statistics import mean, stdev

from vitlab.marks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "transfer.md", ROOT / "results" / "transfer" / "small.json"


def rows(name: str, study: dict) -> list[str]:
    """One line for each way to use what was learned first."""
    found: dict[str, list[float]] = {}
    for run in study["runs"]:
        found.setdefault(run["way"], []).append(100 * run["test_accuracy"])
    scratch = mean(found["from scratch"])
    lines = []
    for way, each in found.items():
        gain = "" if way == "from scratch" else f"{mean(each) - scratch:+.1f}".replace("-", "−")
        spread = f" ± {stdev(each):.1f}" if len(set(each)) > 1 else ""
        lines.append(f"| {name} | {way} | {mean(each):.1f} %{spread} | {gain} | {len(each)} |")
    return lines


def updated(text: str) -> str:
    """The page with its table made anew."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    head = "| from, to | way | test accuracy | points over scratch | seeds |\n|---|---|---:|---:|---:|"
    lines = [line for name, study in record["studies"].items() for line in rows(name, study)]
    source = f"[Record](../results/transfer/small.json): {record['device']}, {record['date'][:10]}."
    made = "\n".join([head, *lines, "", source]) + "\n"
    return filled(text, {"transfer": made})


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
