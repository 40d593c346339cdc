"""save_pretrained, from_pretrained and push_to_hub: a run as a repository of the Hugging Face hub."""

import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from torch import Tensor, nn

from vitlab.engine.run import Run, open_run
from vitlab.errors import BadInput
from vitlab.export.card import write_card
from vitlab.export.graph import Graph
from vitlab.given import check_finished

NEEDED = ("experiment.json", "data.json", "environment.json", "result.json", "metrics.jsonl", "weights.safetensors")
WHERE_THERE = ("predictions.safetensors", "calibration.json", "README.md")


class Pretrained(nn.Module, ModelHubMixin, library_name="vitlab", pipeline_tag="image-classification"):
    """logits = model(pictures), pictures from 0 to 1 (b, c, y, x); what is saved is a run folder and a model card."""

    def __init__(self, run: Run | Path | str, licence: str | None = None):
        super().__init__()
        self.run = run if isinstance(run, Run) else open_run(run)
        check_finished(self.run)
        self.licence, self.classes = licence, self.run.card.classes
        self.inner = Graph(self.run.model(), self.run.card, self.run.temperature)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.inner(pictures)["logits"]

    def probabilities(self, pictures: Tensor) -> Tensor:
        """softmax(logits / T), T the run's temperature: (b, classes), in the order of `classes`."""
        return self.inner(pictures)["probabilities"]

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        return ModelCard(write_card(self.run, self.licence))

    def _save_pretrained(self, save_directory: Path) -> None:
        for name in (*NEEDED, *(name for name in WHERE_THERE if (self.run.folder / name).exists())):
            shutil.copyfile(self.run.folder / name, save_directory / name)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **given: Any) -> "Pretrained":
        folder = Path(model_id)
        if not folder.is_dir():
            how = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            wanted = [*NEEDED, *WHERE_THERE]  # nothing executable is fetched
            folder = Path(snapshot_download(model_id, allow_patterns=wanted, **{name: given[name] for name in how}))
        if not (folder / "experiment.json").exists():
            raise BadInput(f"{model_id} holds no model of vitlab: there is no experiment.json in it")
        return cls(Run(folder), given.get("licence"))
