"""The Hugging Face hub: a folder with the run and its model card, to be shared by push_to_hub."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from vitlab.errors import BadInput
from vitlab.export.graph import Form, Graph
from vitlab.export.subject import Answer, Subject, needed


@dataclass(frozen=True)
class Hub:
    """Pretrained.from_pretrained(folder)(pictures) → logits; the folder is a run of vitlab with a README.md."""

    kind: ClassVar[str] = "hub"

    @property
    def file(self) -> str:
        return "hub"

    def form(self, subject: Subject) -> Form:
        graph = Graph(subject.network, subject.card, subject.run.temperature)
        return Form(graph, subject.run.experiment.model, held="a run is of one size")

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        pretrained(subject).save_pretrained(path)

    def load(self, path: Path) -> Answer:
        return library().Pretrained.from_pretrained(str(path)).inner


def library() -> Any:
    needed("huggingface_hub")
    return needed("vitlab.export.pretrained")[0]


def pretrained(subject: Subject) -> Any:
    return library().Pretrained(subject.run, subject.licence)


def push(subject: Subject, name: str) -> str:
    """Put a run on the hub; returns its address there."""
    try:
        address: str = pretrained(subject).push_to_hub(name)
    except Exception as error:  # whatever a network, an account or the hub may refuse
        raise BadInput(f"the hub did not take {name}: {' '.join(str(error).split())[:200]}") from None
    return address
