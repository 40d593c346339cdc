"""Several runs side by side on one self-contained page: settings first, then accuracy, learning, cost and errors."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import torch

from vitlab.data.rows import Pictures
from vitlab.report import (
    comparison_accuracy,
    comparison_classes,
    comparison_cost,
    comparison_curves,
    comparison_maps,
    comparison_pictures,
    comparison_settings,
    paired,
    words,
)
from vitlab.report.comparison_runs import Compared, why_not_paired
from vitlab.report.template import fill, script


def render(
    runs: Sequence[Compared], pictures: Pictures, commands: Sequence[tuple[str, str]], device: torch.device
) -> str:
    """The whole page; `pictures` (n, c, y, x) are the first run's test part."""
    alike = [run for run in runs if not why_not_paired(runs[0], run)]
    return fill(
        "vitlab.report",
        "comparison",
        {
            "percent": words.percent,
            "grouped": words.grouped,
            "points": paired.points,
            "probability": paired.probability,
        },
        shared=("report",),
        runs=runs,
        classes=runs[0].card.classes,
        caveat=paired.CAVEAT,
        settings=comparison_settings.gather(runs),
        accuracy=comparison_accuracy.gather(runs),
        probed=words.joined([run.called for run in runs if not run.labelled] or [""]),
        curves=comparison_curves.gather(runs),
        cost=comparison_cost.gather(runs),
        confusion=comparison_classes.gather(runs),
        left_out=[run for run in runs if run not in alike],
        chosen=comparison_pictures.gather(alike, pictures) if len(alike) > 1 else None,
        maps=comparison_maps.gather(alike, pictures, device) if alike else None,
        commands=commands,
        **script("report"),
    )


def commands(runs: Sequence[Compared], out: Path | None, data: Path | str | None) -> list[tuple[str, str]]:
    """What makes the page again, and each of its runs."""
    options = [word for name, value in (("--out", out), ("--data", data)) if value for word in (name, str(value))]
    folders = [str(run.run.folder) for run in runs]
    found = [("Make this page again", shlex.join(["vitlab", "report", *folders, *options]))]
    for run, folder in zip(runs, folders, strict=True):
        words_of = ["vitlab", "train", f"{folder}/experiment.json", "--name", f"{run.run.folder.resolve().name}-again"]
        words_of += ["--data", str(data)] if data else []
        found.append((f"Train {run.letter} again", shlex.join(words_of)))
    return found
