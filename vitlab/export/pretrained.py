"""save_pretrained, from_pretrained and push_to_hub: a run as a repository of the Hugging Face hub."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from torch import Tensor, nn

from vitlab.engine.run import Run, open_run
from vitlab.engine.storage import write_json
from vitlab.errors import BadInput
from vitlab.export.card import published, write_card
from vitlab.export.graph import Graph
from vitlab.given import check_finished
from vitlab.settings import to_json

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
        run, card, path = self.run, self.run.card, getattr(self.run.experiment.data.source, "path", "")
        notes = tuple(without_places(note, path) for note in card.notes)
        environment = run.environment | {"command": without_folders(run.environment["command"])}
        write_json(save_directory / "environment.json", environment)
        write_json(save_directory / "data.json", to_json(replace(card, notes=notes)))
        write_json(save_directory / "experiment.json", to_json(published(run.experiment)))
        write_json(save_directory / "config.json", {"licence": self.licence})

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


def without_folders(command: str) -> str:
    """A command, with the last part of each path in it alone."""
    try:
        words = shlex.split(command)
    except ValueError:
        raise BadInput(f"the run's environment.json is damaged: '{command[:60]}' is no command") from None
    return shlex.join(map(last_part, words))


def last_part(word: str) -> str:
    """data.source=folder:/home/me/cats → data.source=folder:cats"""
    paths = r"((?:[\w.-]+=)?(?:(?:folder|npz):)?)(.*/.*)"
    return re.sub(rf"^{paths}$", lambda found: found[1] + Path(found[2]).name, word, flags=re.DOTALL)


def without_places(note: str, pictures: str) -> str:
    """A note, with the last part alone of the path of the pictures and of each whole path in it."""
    if "/" in pictures:
        note = note.replace(pictures, Path(pictures).name)
    return re.sub(r"(?<!\S)[~.]*/(?=\S)(?:[^(),:]*/)?", "", note)
