"""Which pictures a model takes, where nobody says so: their shape, and how many at once."""

import inspect
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vitlab.check.loaders import Loaders
from vitlab.check.subject import (
    SEED,
    Subject,
    answer_of,
    attributes_kept,
    device_of,
    dtype_of,
    first_line,
    rows,
    seeded,
)
from vitlab.engine.modes import modes_kept
from vitlab.errors import BadInput

Shape = tuple[int, int, int]

CHANNELS = (3, 1)
SIDES = (224, 28, 32, 64, 96, 48, 16, 8, 128, 256, 384, 12, 14, 20, 24, 40, 56, 160, 192, 240, 299)
USUAL = ((3, 32), (1, 28), *((channels, side) for side in SIDES for channels in CHANNELS))
NAMES = ("img_size", "image_size", "input_size", "imgsize", "image_width", "size")
COUNTS = (1, 4, 8, 16, 32, 64, 100, 128)  # batch sizes that people write into a model
SECONDS = 20.0  # for finding the shape


def subject_of(
    model: nn.Module,
    shape: Shape | None,
    loaders: Loaders | None = None,
    make: Callable[[], nn.Module] | None = None,
    classes: int | None = None,
) -> Subject:
    """A model that can be asked, or a refusal that says why it cannot."""
    if not isinstance(model, nn.Module):
        raise BadInput(f"a model is an nn.Module of (b, c, y, x) → (b, classes), not {type(model).__name__}")
    more = needs(model.forward, {})[1:]
    if more:
        raise BadInput(f"its forward needs {', '.join(more)} beside the pictures: a model is called with them alone")
    found = shape or find_shape(model)
    try:
        return Subject(model, found, make, loaders, classes, guessed=not shape and found[1:] not in stated_by(model))
    except RuntimeError as error:
        if count := built_in(model, found):
            raise BadInput(only_so_many(count, found, f"it raises {first_line(error)}")) from error
        raise


def find_shape(model: nn.Module) -> Shape:
    """The shape a model takes: what it says of itself, else the first usual one that it answers to.

    A patch that does not divide a picture may cut its edge off, so a shape whose edges are seen goes before.
    """
    cut: list[Shape] = []
    wrong: dict[Shape, str] = {}
    forms: dict[str, set[int]] = {}  # answers of another form, and the sizes of the pictures that were answered so
    started, late = time.monotonic(), False
    tried = deepcopy(model) if any(is_lazy(parameter) for parameter in model.parameters()) else model
    with modes_kept(tried), attributes_kept(tried):
        tried.eval()
        for shape in candidates(tried):
            late = time.monotonic() - started > SECONDS
            if late or any(len(sizes) > 1 for sizes in forms.values()):
                break
            try:
                outputs, pictures = ask(tried, shape)
                if len(outputs) != 2:
                    raise BadInput(rows(outputs))
                sees = sees_its_edges(tried, outputs, pictures)
                if sees or (sees is None and not cut):
                    return shape
                cut.append(shape)
            except BadInput as error:
                wrong[shape] = str(error)
                forms.setdefault(str(error), set()).add(shape[1] * shape[2])
            except Exception as error:  # whatever a stranger's model raises
                wrong[shape] = f"it raises {first_line(error)}"
    if cut:
        return cut[0]
    raise BadInput(refusal(tried, wrong, list(forms), late))


def refusal(model: nn.Module, wrong: dict[Shape, str], forms: list[str], late: bool) -> str:
    """Why no shape was found."""
    if forms:
        shape = next(shape for shape, why in wrong.items() if why == forms[0])
        return f"{forms[0]} (pictures of {'x'.join(map(str, shape))}; if it takes others, give the shape with --shape)"
    for shape in [shape for shape in wrong if shape[1] <= 64][:4] if not late else []:
        if count := built_in(model, shape):
            return only_so_many(count, shape, wrong[shape])
    if late:
        return f"no shape was found in {SECONDS:g} s: give it, such as --shape 1x28x28"
    shape = next((shape for shape in ((1, 28, 28), (3, 32, 32)) if shape in wrong), next(iter(wrong)))
    return (
        "no usual picture shape is answered with (batch, classes): give the shape, such as --shape 1x28x28; "
        f"for {'x'.join(map(str, shape))} {wrong[shape]}"
    )


def ask(model: nn.Module, shape: Shape, count: int = 2) -> tuple[Tensor, Tensor]:
    """The outputs for pictures of noise, and the pictures, which have a gradient."""
    with seeded(SEED, device_of(model)):
        pictures = torch.randn(count, *shape).to(device_of(model), dtype_of(model)).requires_grad_()
        return answer_of(model(pictures.clone())), pictures


def sees_its_edges(model: nn.Module, outputs: Tensor, pictures: Tensor) -> bool | None:
    """Whether the last row and column reach the output; none where nothing of the picture does."""
    gradient = None
    if outputs.requires_grad:
        generator = torch.Generator().manual_seed(SEED)
        direction = torch.randn(outputs.shape, generator=generator).to(outputs)
        try:
            (gradient,) = torch.autograd.grad((outputs * direction).sum(), pictures, allow_unused=True)
        except RuntimeError:  # some models can be differentiated only as a whole
            return True
    if gradient is not None and bool(gradient.any()):
        return bool(gradient[..., -1, :].any()) and bool(gradient[..., :, -1].any())

    def moves(place: tuple[Any, ...]) -> bool:
        changed = pictures.detach().clone()
        changed[place] = -changed[place] + 1
        with torch.no_grad(), seeded(SEED, device_of(model)):
            return not torch.equal(answer_of(model(changed)), outputs)

    return (moves((..., -1, slice(None))) and moves((..., slice(None), -1))) if moves((...,)) else None


def built_in(model: nn.Module, shape: Shape) -> int:
    """The batch size that a model answers where it does not answer two pictures; 0 where none is found."""
    with modes_kept(model), attributes_kept(model), torch.no_grad():
        model.eval()
        for count in COUNTS:
            try:
                outputs, _ = ask(model, shape, count)
            except Exception:  # whatever a stranger's model raises
                continue
            if len(outputs) == count:
                return count
    return 0


def only_so_many(count: int, shape: Shape, why: str) -> str:
    return (
        f"a batch of {count} pictures of {'x'.join(map(str, shape))} is answered, but one of 2 is not ({why}): the "
        "batch size is built into the model; take it from the input, len(x), in every reshape and expand"
    )


def candidates(model: nn.Module) -> Iterator[Shape]:
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d) and m.in_channels <= 4), None)
    channels = (first.in_channels,) if first is not None and first.in_channels else CHANNELS  # a lazy layer has 0
    stated = stated_by(model)
    yield from ((c, height, width) for height, width in stated for c in channels)
    yield from ((c, side, side) for c, side in dict.fromkeys(USUAL) if c in channels)
    yield from ((c, side, side) for side in SIDES for c in channels if c not in CHANNELS)


def stated_by(model: nn.Module) -> list[tuple[int, int]]:
    return list(dict.fromkeys(size for module in model.modules() for size in stated_sizes(module)))


def stated_sizes(module: nn.Module) -> Iterator[tuple[int, int]]:
    """The picture size that a module, or its configuration, names."""
    for owner in (module, getattr(module, "config", None)):
        for name in NAMES:
            value = getattr(owner, name, None)
            if isinstance(value, int) and 1 < value <= 1024:
                yield value, value
            elif isinstance(value, tuple | list) and len(value) >= 2 and all(isinstance(v, int) for v in value):
                yield value[-2], value[-1]


def needs(thing: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    """The arguments that have no default and were not given."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in plain and p.default is p.empty and p.name not in given]
