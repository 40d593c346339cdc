"""Put the records of the torture into docs/reliability.md: python scripts/update_reliability.py."""

import json
from pathlib import Path

from vitlab.marks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORDS = ROOT / "docs" / "reliability.md", ROOT / "results" / "torture"


def updated(text: str) -> str:
    """The page with what the records say."""
    full, *others = (read(path) for path in sorted(RECORDS.glob("*.json"), key=lambda path: path.stem != "full"))
    longer = "\n".join(line(record, f" ({parts(record)})") for record in others)
    return filled(text, {"areas": areas(full), "torture": table(full), "longer": longer})


def read(path: Path) -> dict:
    found: dict = json.loads(path.read_text(encoding="utf-8"))
    return found


def line(record: dict, more: str = "") -> str:
    """One run of the torture in a sentence."""
    tried, lost = sum(row["tried"] for row in record["rows"]), sum(len(row["lost"]) for row in record["rows"])
    return (
        f"- `{record['command']}` on {record['device']}, {record['date'][:10]}: **{tried:,} cases in "
        f"{record['minutes']:.1f} minutes, {lost} lost**{more} ([record](../results/torture/{record['name']}.json))"
    )


def parts(record: dict) -> str:
    return ", ".join(f"{row['what']}: {row['tried']:,}" for row in record["rows"])


def areas(record: dict) -> str:
    return "\n".join(f"- `{area['name']}`: {area['promise']}" for area in record["areas"])


def table(record: dict) -> str:
    """What was run, and a line for each thing that was tried."""
    shares = ", ".join(f"`{area['name']}` {area['seconds']:.0f} s" for area in record["areas"])
    lines = [
        line(record).removeprefix("- ") + f". Seconds that each area was given: {shares}.",
        "",
        "| area | what was tried | cases | lost |",
        "|---|---|---:|---:|",
        *(f"| {row['area']} | {row['what']} | {row['tried']:,} | {len(row['lost'])} |" for row in record["rows"]),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
