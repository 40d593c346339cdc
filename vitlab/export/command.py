"""The verb export."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor
from tyro.conf import Positional

from vitlab.data.prepared import unit
from vitlab.errors import BadInput, choose
from vitlab.export import Answer, Format, Hub, Kept, Onnx, Subject, Target
from vitlab.export import export as write_and_prove
from vitlab.export.graph import BATCHES, step
from vitlab.export.hub import push as send
from vitlab.export.onnx import session_of
from vitlab.given import as_run, check_finished, tested_on
from vitlab.printed import Folder, out
from vitlab.settings import kinds_of

TESTED = 2000  # test pictures on which weights in 8 bits are judged


def export(
    run: Positional[Path],
    /,
    *,
    to: Annotated[str, tyro.conf.arg(metavar="|".join(sorted(kinds_of(Format))))] = "onnx",
    maps: bool = False,
    layers: bool = False,
    int8: bool = False,
    place: Annotated[Path | None, tyro.conf.arg(name="out", metavar="PATH", help_behavior_hint="")] = None,
    licence: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None,
    push: Annotated[str | None, tyro.conf.arg(metavar="USER/NAME", help_behavior_hint="")] = None,
    data: Folder = None,
) -> None:
    """Write ONNX, torch.export, timm or hub files, proven equal.

    The exported model takes pictures from 0 to 1 and normalises them itself. It is loaded again and run at several
    batch sizes, and heights and widths where the model allows them; where one answer differs, nothing is written.

    Args:
        run: The run's folder.
        to: The format.
        maps: Give the attention maps of every layer and head too.
        layers: Give the logits before the first block and after each too.
        int8: Keep the weights in 8 bits: a quarter of the file.
        place: Where to (default: model.onnx and the like in the run).
        licence: Licence of the weights, such as apache-2.0, to be named in the file.
        push: With --to hub, put it on the Hugging Face hub under this name; nothing is sent otherwise.
        data: Folder of the data sets, to judge weights in 8 bits (default: $VITLAB_DATA, or a folder in your cache).
    """
    opened = as_run(run)
    check_finished(opened)
    if not opened.card.labelled:
        raise BadInput(f"{opened.folder} knows no classes: teach it some by 'vitlab finetune {opened.folder}'")
    target = chosen(to, {"maps": maps, "layers": layers, "int8": int8})
    subject = Subject(opened, licence or ("apache-2.0" if opened.shipped else None))
    if push and not isinstance(target, Hub):
        raise BadInput(f"--push is for --to hub, not for --to {to}")
    kept = write_and_prove(subject, target, place)
    for line in (*told(kept), *(judged(subject, kept, data) if int8 else [])):
        out.print(line, markup=False)
    if push:
        out.print(f"pushed: {send(subject, push)}", markup=False)


def chosen(name: str, flags: dict[str, bool]) -> Target:
    """The format of that name, with the flags that are set; one that it has no use for is refused."""
    kind = kinds_of(Format)[choose(name, kinds_of(Format), "format")]
    wanted = [flag for flag, given in flags.items() if given]
    for flag in wanted:
        if flag not in {field.name for field in fields(kind)}:
            raise BadInput(f"--to {name} has no --{flag}: leave it out")
    made: Target = kind(**dict.fromkeys(wanted, True))
    return made


def told(kept: Kept) -> list[str]:
    form, shape = kept.form, kept.form.graph.network.shape
    tall, wide = step(form.graph.network)
    size = f"height a multiple of {tall}, width of {wide}, twice that or more"
    if form.fixed:
        size = f"{shape.height}×{shape.width} alone, since {form.fixed}"
    gap = f"at most {kept.gap:.0e} of the largest number from the model's" if kept.gap else "the model's own"
    asked = f"batches of {', '.join(map(str, BATCHES))}{'' if form.fixed else ' and other sizes'}"
    return [
        f"{kept.path}: {kept.size / 1e6:,.2f} MB; any batch; {size}",
        f"  loaded again and run at {asked}: its answers are {gap}",
    ]


@torch.no_grad()
def judged(subject: Subject, kept: Kept, data: Path | None) -> list[str]:
    """What 8 bits cost as onnxruntime runs them by itself: in logits on noise, in accuracy where there are pictures."""
    plain, answer = Onnx().form(subject), session_of(kept.path)
    noise = torch.rand(plain.sizes()[2], generator=torch.Generator().manual_seed(0))
    own, found = plain.answer(noise)["logits"], answer(noise)["logits"]
    apart, most = (own - found).abs().max(), own.abs().max()
    lines = [
        f"  8 bits as onnxruntime runs them: logits up to {apart:.3f} from the model's, whose largest is {most:.1f}"
    ]
    try:
        prepared = tested_on(subject.run, data)
    except BadInput as reason:
        return [*lines, f"  its accuracy is not known, since the test part is not at hand ({reason})"]
    stated = subject.run.evaluation
    count = min(TESTED, stated.count)
    if not count:
        return [*lines, "  its accuracy is not known, since there are no test pictures"]
    guesses = torch.cat([guessed(answer, part) for part in prepared.test.pictures[:count].split(250)])
    right, before = (int((each == stated.labels[:count]).sum()) for each in (guesses, stated.guesses[:count]))
    return [*lines, f"  accuracy {right / count:.2%} against {before / count:.2%} of {count:,} test pictures"]


def guessed(answer: Answer, pictures: Tensor) -> Tensor:
    return answer(unit(pictures))["logits"].argmax(dim=-1)
