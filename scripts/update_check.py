"""Put the record of other people's models into docs/check.md: python scripts/update_check.py."""

import json
import textwrap
from pathlib import Path

from vitlab.marks import filled

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORD = ROOT / "docs" / "check.md", ROOT / "results" / "check" / "libraries.json"


def updated(text: str) -> str:
    """The page with what the record says."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return filled(text, {"record": sentence(record)})


def sentence(record: dict) -> str:
    runs = record["runs"]
    small = [run for run in runs if run["side"] < 200]
    libraries = {name: sum(run["model"].startswith(name) for run in small) for name in ("timm", "transformers")}
    verdicts = [verdict for run in runs for verdict in run["verdicts"].values()]
    slowest = max(small, key=lambda run: run["seconds"])
    whole = " and ".join(f"`{run['model']}` {run['seconds']:.0f} s" for run in runs if run not in small)
    answers = {kind: verdicts.count(kind) for kind in ("mistake", "warning", "unknown")}
    quickest = min(run["seconds"] for run in small)
    text = (
        f"- **No false alarms** on {libraries['timm']} models of timm and {libraries['transformers']} of transformers, "
        f"made small: of {len(verdicts):,} answers {answers['mistake']} are mistakes, {answers['warning']} warnings, "
        f"{answers['unknown']} open. A whole check takes {quickest:.1f} to {slowest['seconds']:.1f} s on "
        f"{record['device']}; of models as they are published, at 224 × 224 pixels, {whole} "
        f"([record](../results/check/libraries.json))."
    )
    return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
