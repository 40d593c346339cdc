"""Inference: one trained model by every way to run it, and timm's model of the same shape, at batches of 1 to 256."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn

from vitlab.bench.measure import Call, take_turns
from vitlab.data.dataset import Part
from vitlab.data.prepared import unit
from vitlab.engine.compiler import compiler_trouble
from vitlab.engine.run import Run
from vitlab.export import Onnx, Subject
from vitlab.export.graph import Graph, step
from vitlab.export.onnx import session_of
from vitlab.foreign import foreign
from vitlab.model import Shape, ViT

Answer = Callable[[Tensor], Tensor]  # pictures from 0 to 1 → logits
EAGER, COMPILED, ONNX, INT8, TIMM = "torch", "torch, compiled", "onnxruntime", "onnxruntime, 8-bit weights", "timm"
AT_ONCE = 200  # pictures that are read together for the accuracy


@dataclass(frozen=True)
class Served:
    """One way to run a model at one batch size; a ratio above 1 means slower than torch as it is in the same rounds."""

    run: str
    way: str
    batch: int
    milliseconds: float  # median over the rounds
    fastest: float  # milliseconds of the best round
    pictures_per_second: float
    ratio: float
    weights: int
    accuracy: float | None = None  # on the first test pictures
    tested: int = 0  # how many
    megabytes: float | None = None  # of the file, where there is one
    note: str = ""


@dataclass(frozen=True, eq=False)
class Way:
    name: str
    answer: Answer
    weights: int
    megabytes: float | None = None
    trained: bool = True
    note: str = ""


def measure_inference(
    run: Run, batches: Sequence[int], rounds: int, device: torch.device, test: Part | None
) -> Iterator[list[Served]]:
    """The rows of one batch size after another."""
    shape = run.model().shape
    with TemporaryDirectory() as folder, torch.inference_mode():
        found = ways(Subject(run), Path(folder), device)
        accuracies = {way.name: accuracy(way.answer, test, device) for way in found if test and way.trained}
        for batch in batches:
            pictures = torch.rand(batch, shape.channels, shape.height, shape.width, device=device)
            calls: dict[str, Call] = {way.name: partial(way.answer, pictures) for way in found}
            timings = take_turns(calls, rounds, max(32 // batch, 1), device)
            yield [
                Served(
                    run.name, way.name, batch, round(timings[way.name].median * 1e3, 3),
                    round(timings[way.name].fastest * 1e3, 3), round(batch / timings[way.name].median, 1),
                    round(timings[way.name].ratio(timings[EAGER]), 3), way.weights, accuracies.get(way.name),
                    len(test) if test and way.trained else 0, way.megabytes, way.note,
                )
                for way in found
            ]  # fmt: skip


def ways(subject: Subject, folder: Path, device: torch.device) -> list[Way]:
    """Every way that there is here; onnxruntime, where vitlab[export] is installed, on a CPU alone."""
    graph = Graph(subject.network, subject.card, subject.run.temperature).to(device)
    weights = sum(weight.numel() for weight in graph.parameters())
    found = [Way(EAGER, lambda pictures: graph(pictures)["logits"], weights)]
    if compiler_trouble(device.type) is None:
        compiled = torch.compile(graph, dynamic=True)
        found.append(Way(COMPILED, lambda pictures: compiled(pictures)["logits"], weights))
    if device.type == "cpu" and all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
        for name, target in ((ONNX, Onnx()), (INT8, Onnx(int8=True))):
            path = folder / target.file
            target.write(subject, target.form(subject), path)
            session = session_of(path, threads=torch.get_num_threads())
            way = Way(name, lambda pictures, session=session: session(pictures)["logits"], weights)  # type: ignore[misc]
            found.append(replace(way, megabytes=round(path.stat().st_size / 1e6, 2)))
    rival = timm_of(subject.run.experiment.model, subject.network.shape, len(subject.card.classes))
    if rival is not None:
        count = sum(weight.numel() for weight in rival.parameters())
        note = "" if count == weights else "the same width, depth, heads, MLP and patch; other parts are timm's own"
        found.append(Way(TIMM, rival.eval().to(device), count, trained=False, note=note))
    return found


def timm_of(settings: object, shape: Shape, classes: int) -> nn.Module | None:
    """timm's VisionTransformer of the same sizes; None where it is not installed, or has nothing of the kind."""
    if not isinstance(settings, ViT) or find_spec("timm") is None:
        return None
    network = settings.build(shape, classes)
    reads_class = settings.head.own_tokens > 0
    return foreign("timm.models.vision_transformer").VisionTransformer(
        img_size=(shape.height, shape.width), patch_size=step(network)[0], in_chans=shape.channels, num_classes=classes,
        embed_dim=settings.width, depth=settings.depth, num_heads=asdict(settings.attention).get("heads", 1),
        mlp_ratio=settings.block.mlp, class_token=reads_class, global_pool="token" if reads_class else "avg",
        reg_tokens=settings.registers, fc_norm=False,
    )  # fmt: skip


def accuracy(answer: Answer, test: Part, device: torch.device) -> float:
    parts = zip(test.pictures.split(AT_ONCE), test.labels.split(AT_ONCE), strict=True)
    right = sum(
        int((answer(unit(pictures.to(device))).argmax(dim=-1).cpu() == labels).sum()) for pictures, labels in parts
    )
    return right / len(test)


def inference_lines(rows: Sequence[Served]) -> list[str]:
    """What a record comes to, for the terminal."""
    lines = []
    for row in rows:
        speed = (
            f"{row.milliseconds:,.2f} ms, {row.pictures_per_second:,.0f} pictures/s, {row.ratio:.2f} of torch's time"
        )
        right = "" if row.accuracy is None else f", accuracy {row.accuracy:.2%}"
        lines.append(f"{row.run}, batch {row.batch}, {row.way}: {speed}{right}")
    return lines


def inference_tables(rows: Sequence[Served]) -> list[str]:
    """Of each run: a row for each way, with a column for each batch."""
    lines = []
    for name in dict.fromkeys(row.run for row in rows):
        own = [row for row in rows if row.run == name]
        batches = sorted({row.batch for row in own})
        tested = max(row.tested for row in own)
        lines += [f"#### {name}", ""]
        lines += [f"| | {' | '.join(f'batch {batch}' for batch in batches)} | weights | file | accuracy |"]
        lines += ["|---|" + "---:|" * (len(batches) + 3)]
        for way in dict.fromkeys(row.way for row in own):
            cells = {row.batch: row for row in own if row.way == way}
            first = next(iter(cells.values()))
            times = [cell(row) for _, row in sorted(cells.items())]
            file = "" if first.megabytes is None else f"{first.megabytes:.2f} MB"
            right = "" if first.accuracy is None else f"{first.accuracy:.2%}"
            lines += [f"| {way} | {' | '.join(times)} | {first.weights:,} | {file} | {right} |"]
        notes = dict.fromkeys(f"- {row.way}: {row.note}." for row in own if row.note)
        counted = [f"- accuracy: of the first {tested:,} test pictures."] if tested else []
        lines += ["", *notes, *counted, ""]
    return lines


def cell(row: Served) -> str:
    return f"{row.milliseconds:,.2f} ms<br>{row.pictures_per_second:,.0f}/s<br>×{row.ratio:.2f}"
