"""Put the records of the maps into docs/look.md and draw their curves: python scripts/update_look.py."""

import json
from pathlib import Path
from typing import Any

import torch

from vitlab.look import drawing, figures
from vitlab.look.heat import KINDS
from vitlab.look.trust import RANDOM, Curves, Trust
from vitlab.marks import filled
from vitlab.sample import Sample

ROOT = Path(__file__).resolve().parent.parent
PAGE, RECORDS = ROOT / "docs" / "look.md", ROOT / "results" / "look"
TESTS = ("deletion", "insertion")


def updated(text: str) -> str:
    """The page with the tables that the records give."""
    made = {f"{name} {fill}": table(read(name), fill) for name in ("mnist", "cifar10") for fill in ("mean", "blur")}
    return filled(text, made)


def read(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def table(record: dict[str, Any], fill: str) -> str:
    """Each model's accuracy, and each map's lead over random order by deletion and by insertion, over seeds."""
    lines = [
        "| model | test accuracy | last layer's attention | rollout | relevance |",
        "|---|---:|---:|---:|---:|",
    ]
    for model in record["models"]:
        runs = model["runs"]
        cells = [" · ".join(lead(runs, fill, kind, test) for test in TESTS) for kind in KINDS]
        accuracy = Sample(tuple(run["test_accuracy"] for run in runs))
        assert accuracy.margin is not None
        shown = f"{100 * accuracy.mean:.1f} ± {100 * accuracy.margin:.1f} %"
        lines.append(f"| {model['name']} | {shown} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def lead(runs: list[dict[str, Any]], fill: str, kind: str, test: str) -> str:
    """Points, with the interval over seeds; in bold where it lies above 0."""
    sample = Sample(tuple(100 * run["maps"][fill][kind]["lead"][test][0] for run in runs))
    assert sample.margin is not None
    text = f"{sample.mean:+.1f} ± {sample.margin:.1f}".replace("-", "−")
    return f"**{text}**" if sample.mean > sample.margin else text


def trust_of(record: dict[str, Any], model: str, fill: str) -> Trust:
    """The recorded curves, with one run where a picture would stand."""
    runs = next(one["runs"] for one in record["models"] if one["name"] == model)
    maps = [run["maps"][fill] for run in runs]
    curves = {
        kind: Curves(
            *(torch.tensor([one[kind][f"{test}_curve"] for one in maps]) for test in ("deletion", "insertion"))
        )
        for kind in (*KINDS, RANDOM)
    }
    return Trust(torch.tensor(maps[0]["shares"]), curves)


def main() -> None:
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    with drawing.styled():
        for name, title in (("mnist", "MNIST"), ("cifar10", "CIFAR-10")):
            record = read(name)
            trust = trust_of(record, "class token", "mean")
            seeds = f"{title}: mean over {trust.count} seeds, {record['pictures']:,} test pictures each"
            drawn = figures.draw_trust(trust, f"{seeds}; bands span the seeds.", bands=True)
            (PAGE.parent / "look" / f"trust-{name}.svg").write_bytes(drawing.rendered(drawn, "svg"))


if __name__ == "__main__":
    main()
