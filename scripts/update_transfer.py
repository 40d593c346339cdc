"""Fill the table of docs/transfer.md from its record: python scripts/update_transfer.py."""

import json
from pathlib import Path

from vitlab.marks import filled
from vitlab.sample import Difference, Sample, difference

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "transfer.md", ROOT / "results" / "transfer" / "small.json"


def rows(name: str, study: dict) -> list[str]:
    """One line for each way to use what was learned first."""
    found: dict[str, list[float]] = {}
    for run in study["runs"]:
        found.setdefault(run["way"], []).append(100 * run["test_accuracy"])
    samples = {way: Sample(tuple(each)) for way, each in found.items()}
    lines = []
    for way, sample in samples.items():
        gain = "" if way == "from scratch" else points(difference(sample, samples["from scratch"]))
        spread = f" ± {sample.deviation:.1f}" if sample.deviation else ""
        lines.append(f"| {name} | {way} | {sample.mean:.1f} %{spread} | {gain} | {sample.count} |")
    return lines


def points(found: Difference) -> str:
    """A difference with its 95 % interval, bold where that leaves out 0."""
    said = f"{found.value:+.1f}".replace("-", "−") + ("" if found.margin is None else f" ± {found.margin:.1f}")
    return f"**{said}**" if found.sign else said


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
