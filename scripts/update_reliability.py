"""Put the record of the torture into docs/reliability.md: python scripts/update_reliability.py."""

import json
from pathlib import Path

from vitlab.marks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "reliability.md", ROOT / "results" / "torture" / "full.json"


def updated(text: str) -> str:
    """The page with what the record says."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return filled(text, {"areas": areas(record), "torture": table(record)})


def areas(record: dict) -> str:
    return "\n".join(f"- `{area['name']}`: {area['promise']}" for area in record["areas"])


def table(record: dict) -> str:
    """What was run, and a line for each thing that was tried."""
    rows, areas = record["rows"], record["areas"]
    tried, lost = (sum(each) for each in zip(*((row["tried"], len(row["lost"])) for row in rows), strict=True))
    shares = ", ".join(f"`{area['name']}` {area['seconds']:.0f} s" for area in areas)
    lines = [
        f"`{record['command']}` on {record['device']}, {record['date'][:10]}: **{tried:,} cases in "
        f"{record['minutes']:.1f} minutes, {lost} lost** ([record](../results/torture/full.json)). Seconds that each",
        f"area was given: {shares}.",
        "",
        "| area | what was tried | cases | lost |",
        "|---|---|---:|---:|",
        *(f"| {row['area']} | {row['what']} | {row['tried']:,} | {len(row['lost'])} |" for row in rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
