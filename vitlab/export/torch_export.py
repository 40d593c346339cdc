"""torch.export: a program in one file (.pt2) that torch runs without vitlab, and that compilers take."""

import warnings
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import ClassVar

import torch

from vitlab.export.graph import Form, Graph, step
from vitlab.export.subject import Answer, Subject


@dataclass(frozen=True)
class TorchExport:
    """program.module()(pictures) → {"logits", "probabilities"}, and the outputs that were asked for beside them."""

    kind: ClassVar[str] = "torch-export"
    maps: bool = False  # "attention" (batch, layers, heads, tokens, tokens) too
    layers: bool = False  # "layers" (batch, layers + 1, classes) too: logits before the first block and after each

    @property
    def file(self) -> str:
        return "model.pt2"

    def form(self, subject: Subject) -> Form:
        graph = Graph(subject.network, subject.card, subject.run.temperature, maps=self.maps, layers=self.layers)
        shape, (tall, wide) = subject.network.shape, step(subject.network)
        single = shape.height < 2 * tall or shape.width < 2 * wide
        held = "torch.export takes a single row or column of patches for a constant" if single else ""
        return Form(graph, subject.run.experiment.model, held)

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        content = BytesIO()  # on a full disk, torch's own writing ends the process
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tables that are views, which are stored whole
            torch.export.save(form.program(), content, extra_files=subject.facts())
        path.write_bytes(content.getbuffer())

    def load(self, path: Path) -> Answer:
        return torch.export.load(path).module()
