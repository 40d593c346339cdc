"""Check other people's models and keep what was found, in results/check: python scripts/check_libraries.py.

The record says, for each model, every probe's verdict and the seconds it took.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

from vitlab.check import check
from vitlab.check.target import library_model
from vitlab.engine.run import describe_environment
from vitlab.engine.storage import write_json

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from library_models import TIMM, TRANSFORMERS, side_of

WHOLE = {"vit_tiny_patch16_224": {"img_size": 224}, "deit_tiny_patch16_224": {"img_size": 224}}  # as they are published


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/check/libraries.json"))
    given = parser.parse_args()
    models = [
        *(("timm", name, arguments | {"num_classes": 10}) for name, arguments in TIMM.items()),
        *(("transformers", name, arguments | {"num_labels": 10}) for name, arguments in TRANSFORMERS.items()),
        *(("timm", name, arguments) for name, arguments in WHOLE.items()),
    ]
    runs = []
    for library, name, arguments in models:
        torch.manual_seed(0)
        side = side_of(arguments)
        report = check(partial(library_model, library, name, arguments), (3, side, side))
        runs.append(
            {
                "model": f"{library}:{name}", "arguments": arguments, "parameters": report.weights, "side": side,
                "seconds": round(report.seconds, 2),
                "verdicts": {probe: asked.finding.verdict for probe, asked in report.asked.items()},
                "slowest": max((round(asked.seconds, 2), probe) for probe, asked in report.asked.items()),
                "measured": {probe: asked.finding.measured for probe, asked in report.asked.items()},
            }
        )  # fmt: skip
        print(runs[-1]["model"], runs[-1]["seconds"], report.named("mistake"), report.named("warning"), flush=True)
    facts = describe_environment(torch.device("cpu")) | {"command": "python scripts/check_libraries.py"}
    write_json(given.out, {"name": "check"} | facts | {"runs": runs})


if __name__ == "__main__":
    main()
