"""Put the record of other people's models into docs/check.md: python scripts/update_check.py."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "check.md", ROOT / "results" / "check.json"
PLACE = re.compile(r"(<!-- record -->\n).*?(<!-- end of record -->)", re.DOTALL)


def updated(text: str) -> str:
    """The page with what the record says."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return PLACE.sub(lambda found: found[1] + sentence(record) + "\n" + found[2], text)


def sentence(record: dict) -> str:
    runs = record["runs"]
    small = [run for run in runs if run["side"] < 200]
    libraries = {name: sum(run["model"].startswith(name) for run in small) for name in ("timm", "transformers")}
    verdicts = [verdict for run in runs for verdict in run["verdicts"].values()]
    slowest = max(small, key=lambda run: run["seconds"])
    whole = "; ".join(
        f"`{run['model']}` as published ({run['side']} × {run['side']} pixels) {run['seconds']:.0f} s"
        for run in runs
        if run not in small
    )
    return "\n".join(
        (
            f"- **No false alarms** on {libraries['timm']} models of timm and transformers' ViT, made small: of "
            f"{len(verdicts):,} answers {verdicts.count('mistake')} are mistakes,",
            f"  {verdicts.count('warning')} warnings and {verdicts.count('unknown')} open. A whole check takes "
            f"{min(run['seconds'] for run in small):.1f} to {slowest['seconds']:.1f} s",
            f"  on {record['device']}; {whole}",
            "  ([record](../results/check.json)).",
        )
    )


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
