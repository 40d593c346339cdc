"""ONNX: one file that onnxruntime runs, in Python, C++, JavaScript or a browser, without torch and without vitlab."""

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitlab.errors import BadInput
from vitlab.export.graph import Form, Graph, attention_names
from vitlab.export.int8 import pack, rounded
from vitlab.export.subject import Answer, Subject, needed
from vitlab.look.tokens import extra_names

OPSET = 20  # the first with Gelu; onnxruntime 1.17 and its build for browsers know it
MOST = 2**31 - 1  # bytes that one file may have
SMALL = 1024  # numbers


@dataclass(frozen=True)
class Onnx:
    """`pictures` float32 in 0 … 1 (batch, channels, height, width) → `logits` and `probabilities` (batch, classes)."""

    kind: ClassVar[str] = "onnx"
    maps: bool = False  # `attention` (batch, layers, heads, tokens, tokens) too
    layers: bool = False  # `layers` (batch, layers + 1, classes) too: the logits before the first block and after each
    int8: bool = False  # weights in 8 bits

    @property
    def file(self) -> str:
        return "model-int8.onnx" if self.int8 else "model.onnx"

    def form(self, subject: Subject) -> Form:
        network = rounded(subject.network) if self.int8 else subject.network
        graph = Graph(network, subject.card, subject.run.temperature, maps=self.maps, layers=self.layers)
        return Form(graph, subject.run.experiment.model)

    def write(self, subject: Subject, form: Form, path: Path) -> None:
        model = translate(form)
        if self.int8:
            pack(model)
        describe(model, subject, form)
        check_standard(model)
        if model.ByteSize() > MOST:
            raise BadInput(f"{subject.run.name} is larger than the 2 GB that one ONNX file can hold")
        path.write_bytes(model.SerializeToString())

    def load(self, path: Path) -> Answer:
        return session_of(path, exact=True)


def session_of(path: Path | bytes, exact: bool = False, threads: int = 0) -> Answer:
    """A file's answers by onnxruntime on the CPU, as it is by itself, or as the file says.

    By itself it rounds activations to 8 bits too, where it multiplies them with weights in 8 bits.
    """
    (runtime,) = needed("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    if exact:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def answer(pictures: Tensor) -> dict[str, Tensor]:
        given = session.run(names, {"pictures": pictures.numpy()})
        return {name: torch.from_numpy(array) for name, array in zip(names, given, strict=True)}

    return answer


def translate(form: Form) -> Any:
    """The graph in ONNX's own operators, with names for what is free."""
    model = in_onnx(form.program(), "pictures", list(form.answer(torch.zeros(form.sizes()[0]))))
    graph = model.graph
    given = graph.input[0].type.tensor_type.shape.dim
    free = {given[0].dim_param: "batch", given[2].dim_param: "height", given[3].dim_param: "width"}
    for value in (*graph.input, *graph.output):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param:
                side.dim_param = free.get(side.dim_param, "tokens")
    return model


def in_onnx(
    program: torch.export.ExportedProgram, given: str, names: list[str], *, extra: str = "export", light: bool = False
) -> Any:
    """An exported program as ONNX, with nothing in it of the machine that made it.

    What follows from weights alone is worked out here, once; `light` leaves that to whoever runs it where it is large,
    which keeps a weight that is read in two ways from being written twice, and looks for nothing else to improve.
    """
    _, optimizer = needed("onnx", "onnxscript.optimizer", extra=extra)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the translator says of its own parts
        made = torch.onnx.export(
            program, dynamo=True, opset_version=OPSET, verbose=False, input_names=[given], output_names=names,
            optimize=False,
        )  # fmt: skip
        assert made is not None
        if light:
            optimizer.fold_constants(made.model, input_size_limit=SMALL, output_size_limit=SMALL)
            optimizer.remove_unused_nodes(made.model)
        else:
            optimizer.optimize_ir(made.model, input_size_limit=MOST, output_size_limit=MOST)
    model = made.model_proto
    graph = model.graph
    del graph.value_info[:]  # shapes in between, which follow
    for part in (model, graph, *graph.node, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]  # the stack of calls behind each node, with the paths of this machine
    return model


def describe(model: Any, subject: Subject, form: Form) -> None:
    """Classes, run, version and licence in the file itself; and what the tokens of `attention` are."""
    (onnx,) = needed("onnx")
    facts = subject.facts()
    facts["classes"] = json.dumps(subject.card.classes, ensure_ascii=False)
    if form.graph.maps:
        facts["attention"] = json.dumps(tokens_of(form))
    onnx.helper.set_model_props(model, facts)
    model.producer_name, model.producer_version = "vitlab", facts["vitlab"]
    model.graph.name = subject.run.name
    model.doc_string = "pictures: float32 from 0 to 1, (batch, channels, height, width); normalised inside"


def tokens_of(form: Form) -> list[dict[str, Any]]:
    """Of each output of attention: the tokens before the patches, and the rows and columns of each grid of patches."""
    with torch.no_grad():
        stream = form.graph.network.trace(torch.zeros(form.sizes()[0]))
    seen = [part for part in stream.all() if len(part.blocks)]
    return [
        {"output": name, "extra": extra_names(part), "grids": [[grid.rows, grid.columns] for grid in part.layout.grids]}
        for name, part in zip(attention_names(len(seen)), seen, strict=True)
    ]


def check_standard(model: Any) -> None:
    """A runtime in a browser knows ONNX's own operators and no others; their shapes and types must agree."""
    (onnx,) = needed("onnx")
    domains = {each.domain for each in (*model.graph.node, *model.opset_import, *model.functions)}
    if domains - {"", "ai.onnx"}:
        raise BadInput(f"the graph needs more than ONNX's own operators: {', '.join(sorted(domains))}")
    onnx.checker.check_model(model, full_check=True)
