"""timm's and Hugging Face's own formats: folders that these libraries load, by the tables of `vitlab.transfer`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from vitlab.engine.storage import read_json
from vitlab.export.graph import Form, Graph
from vitlab.export.subject import Answer, Subject
from vitlab.transfer.out import load_hf, load_timm, to_hf, to_timm


@dataclass(frozen=True)
class Timm:
    """timm.create_model("local-dir:FOLDER", pretrained=True)(normalised pictures) → logits."""

    kind: ClassVar[str] = "timm"

    @property
    def file(self) -> str:
        return "timm"

    def form(self, subject: Subject) -> Form:
        return of_one_size(subject)

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        to_timm(subject.run, path)

    def load(self, path: Path) -> Answer:
        known, model = read_json(path / "config.json")["pretrained_cfg"], load_timm(path)
        return lambda pictures: {"logits": model(normalised(pictures, known["mean"], known["std"]))}


@dataclass(frozen=True)
class HuggingFace:
    """ViTForImageClassification.from_pretrained("FOLDER")(normalised pictures).logits; DeiT's and DINOv2's alike."""

    kind: ClassVar[str] = "hf"

    @property
    def file(self) -> str:
        return "hf"

    def form(self, subject: Subject) -> Form:
        return of_one_size(subject)

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        to_hf(subject.run, path)

    def load(self, path: Path) -> Answer:
        known, model = read_json(path / "preprocessor_config.json"), load_hf(path)
        return lambda pictures: {"logits": model(normalised(pictures, known["image_mean"], known["image_std"]))}


def of_one_size(subject: Subject) -> Form:
    graph = Graph(subject.network, subject.card, temperature=1.0)
    return Form(graph, subject.run.experiment.model, held="its table of positions is kept as it is")


def normalised(pictures: torch.Tensor, mean: list[float], deviation: list[float]) -> torch.Tensor:
    """As these libraries' own preparation does it, by what the folder says."""
    return (pictures - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(deviation).view(-1, 1, 1)
