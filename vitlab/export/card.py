"""A model card: what a run is, for somebody who meets it on the hub; a header that machines read, then words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from vitlab.data.arrays import Arrays
from vitlab.data.folder import Folder
from vitlab.engine.cost import flops
from vitlab.engine.run import Run
from vitlab.experiment import Experiment
from vitlab.export.subject import needed
from vitlab.report.calibration import expected_error, kept
from vitlab.settings import walk, write_value

HUB = {  # names of the data sets there
    "mnist": "ylecun/mnist", "fashion-mnist": "zalando-datasets/fashion_mnist",
    "cifar10": "uoft-cs/cifar10", "cifar100": "uoft-cs/cifar100",
}  # fmt: skip


def write_card(run: Run, licence: str | None = None) -> str:
    """The card of a finished run, in the hub's format."""
    network, card, result = run.model(), run.card, run.result
    pages = jinja2.Environment(loader=jinja2.PackageLoader("vitlab.export", "."), undefined=jinja2.StrictUndefined)
    made = pages.get_template("card.md.j2")
    return made.render(
        header=header(run, licence), name=run.name, card=card, result=result, licence=licence,
        version=run.environment["versions"]["vitlab"], environment=run.environment, seed=run.experiment.seed,
        parameters=sum(weight.numel() for weight in network.parameters()), flops=flops(network),
        error=expected_error(run.evaluation.calibration(10)) if result["count"] else None,
        calibration=kept(run),
        settings=[(".".join(each.path), write_value(each.value)) for each in walk(published(run.experiment))],
        percent=lambda share: f"{100 * share:.2f} %",
    )  # fmt: skip


def published(experiment: Experiment) -> Experiment:
    """The experiment without the place of its pictures on this machine: of their path the last part is left."""
    source = experiment.data.source
    if not isinstance(source, Folder | Arrays):
        return experiment
    named = replace(source, path=Path(source.path).name)
    return replace(experiment, data=replace(experiment.data, source=named))


def header(run: Run, licence: str | None) -> str:
    """The YAML at its top, by the hub's own classes."""
    (hub,) = needed("huggingface_hub")
    card, result = run.card, run.result
    measured = []
    if result["count"]:
        measured = [
            hub.EvalResult(
                task_type="image-classification", dataset_type=HUB.get(card.name, card.name), dataset_name=card.name,
                dataset_split="test", metric_type="accuracy", metric_value=round(result["test_accuracy"], 6),
            )
        ]  # fmt: skip
    known: dict[str, Any] = {"datasets": [HUB[card.name]]} if card.name in HUB else {}
    data = hub.ModelCardData(
        library_name="vitlab", pipeline_tag="image-classification", tags=["vision-transformer", "vitlab"],
        license=licence, model_name=run.name, eval_results=measured or None, **known,
    )  # fmt: skip
    text: str = data.to_yaml()
    return text.strip()
