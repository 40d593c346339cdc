"""The model under check: lent to each probe in the state it needs, and put back as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from vitlab.check.loaders import Loaders
from vitlab.engine.modes import modes_kept
from vitlab.errors import BadInput, shorten

SEED = 20201022
# A difference between outputs that counts as none, as a share of how far two pictures' outputs lie apart. Rounding
# gives about 1e-13 in double precision and 1e-6 in single, what a model really uses gives 1e-4 and far more.
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 3e-3}


class NotFinite(ArithmeticError):
    """Some outputs are infinite or no numbers, so nothing can be compared."""


class Subject:
    """A model of (b, c, y, x) → (b, classes), the shape it takes, and how to build it again."""

    def __init__(
        self,
        model: nn.Module,
        shape: tuple[int, int, int],
        make: Callable[[], nn.Module] | None = None,
        loaders: Loaders | None = None,
        classes: int | None = None,
    ):
        self.model, self.shape, self.make, self.loaders = model, shape, make, loaders or Loaders()
        self.device = device_of(model)
        self.passes: dict[tuple[int, bool], Any] = {}  # what the probes of the loaders have read
        give_sizes(model, self)
        with self.lent(torch.float32), torch.no_grad():
            outputs = self.answer(self.pictures(2))
        if len(outputs) != 2:
            raise BadInput(rows(outputs))
        self.classes = outputs.shape[1]
        if classes and classes != self.classes:
            raise BadInput(f"the model gives {self.classes} outputs, not {classes}")
        self.precision = torch.float64 if self.works_in_double() else torch.float32
        self.tolerance = TOLERANCE[self.precision if self.precision == torch.float64 else outputs.dtype]

    @property
    def weights(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())

    def pictures(self, count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Pictures of noise, N(0, 1) as normalised pictures are."""
        generator = torch.Generator().manual_seed(SEED + seed)
        made = torch.randn(count, *self.shape, generator=generator, dtype=torch.float64)
        return made.to(self.device, dtype)

    def labels(self, count: int) -> Tensor:
        drawn = torch.randint(self.classes, (count,), generator=torch.Generator().manual_seed(SEED))
        return drawn.to(self.device)

    def call(self, pictures: Tensor, seed: int = 0) -> Any:
        """All that the model returns; every draw inside follows from the seed, so that two calls compare."""
        with seeded(SEED + seed, self.device):
            returned = self.model(pictures.clone())  # it may work in place, and a probe asks of the same ones again
        if not bool(torch.isfinite(answer_of(returned)).all()):
            raise NotFinite("the outputs are not all finite numbers")
        return returned

    def answer(self, pictures: Tensor, seed: int = 0) -> Tensor:
        """The outputs (b, classes) of a call."""
        return answer_of(self.call(pictures, seed))

    def works_in_double(self) -> bool:
        try:
            with self.lent(torch.float64):
                return self.answer(self.pictures(2, dtype=torch.float64)).dtype == torch.float64
        except Exception:  # whatever a stranger's model raises
            return False

    @contextmanager
    def lent(
        self, precision: torch.dtype | None = None, *, shaken: bool = False, training: bool = False
    ) -> Iterator[torch.dtype]:
        """The model in evaluation (or training) mode and the given precision, all its weights moved off their start
        if `shaken`; whatever a probe does to weights, buffers and modes is undone afterwards.

        Shaken weights show what the architecture can do: a table or scale that starts at 0 would look like none.
        """
        precision = precision or self.precision
        model = self.model
        tensors = [*model.parameters(), *model.buffers()]
        before = [(tensor, tensor.data, tensor.data.clone(), tensor.grad) for tensor in tensors]
        try:
            for tensor in tensors:
                if tensor.is_floating_point():
                    tensor.data = tensor.data.to(precision, copy=True)
                tensor.grad = None
            if shaken:
                shake(model)
            with modes_kept(model):
                model.train()  # some drop what they keep for evaluation only when they are told to train
                model.train(training)
                yield precision
        finally:
            for tensor, data, kept, gradient in before:
                data.copy_(kept)  # a probe in the model's own precision may have worked in place
                tensor.grad = None
                tensor.data = data
                tensor.grad = gradient

    def apart(self, outputs: Tensor, others: Tensor, among: Tensor | None = None) -> float:
        """The largest difference of two answers, as a share of how far pictures' outputs lie apart (in `among`)."""
        spread = self.spread(outputs if among is None else among)
        return float((outputs - others).abs().max()) / (spread or 1.0)

    def spread(self, outputs: Tensor) -> float:
        """How far the outputs of different pictures lie apart (root mean square); what changes are measured against."""
        return float((outputs - outputs.roll(1, 0)).square().mean().sqrt())


def give_sizes(model: nn.Module, subject: Subject) -> None:
    """Layers that take their size from the first picture get it."""
    if any(is_lazy(parameter) for parameter in model.parameters()):
        with torch.no_grad():
            model(subject.pictures(2))


def device_of(model: nn.Module) -> torch.device:
    return next((tensor.device for tensor in [*model.parameters(), *model.buffers()]), torch.device("cpu"))


def dtype_of(model: nn.Module) -> torch.dtype:
    """The precision of the first weight."""
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def rows(outputs: Tensor) -> str:
    """What is wrong with an answer that has not one row for each of two pictures."""
    return (
        f"2 pictures are answered with {len(outputs)} rows of {outputs.shape[1]}, not one for each picture: "
        "look for x[0] where x[:, 0] is meant, and for reshapes that move the batch axis"
    )


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draws from torch's generators follow from the seed; afterwards they go on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@torch.no_grad()
def shake(model: nn.Module) -> None:
    """Add noise to every weight that is learned: half the size of a usual start for matrices, 0.1 for vectors."""
    generator = torch.Generator().manual_seed(SEED)
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.is_floating_point():
            size = 0.5 * max(prod(parameter.shape[1:]), 1) ** -0.5 if parameter.ndim > 1 else 0.1
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * size
            parameter.add_(noise.to(parameter))


def first_of(output: Any) -> Any:
    """The first of several outputs, or the only one."""
    return output[0] if isinstance(output, tuple | list) and output else output


def answer_of(output: Any) -> Tensor:
    """The logits in what a model returns: a tensor, an object with `logits`, or the first of several tensors."""
    found = getattr(output, "logits", output)
    if isinstance(found, dict):
        found = found.get("logits", next(iter(found.values()), None))
    found = first_of(found)
    if not isinstance(found, Tensor):
        raise BadInput(f"the model returns {type(output).__name__}, not a tensor of (batch, classes)")
    if found.ndim != 2:
        raise BadInput(f"the model returns a tensor of shape {tuple(found.shape)}, not (batch, classes)")
    return found


CHANNELS = (3, 1)
SIDES = (224, 28, 32, 64, 96, 48, 16, 8, 128, 256, 384, 12, 14, 20, 24, 40, 56, 160, 192, 240, 299)
USUAL = ((3, 32), (1, 28), *((channels, side) for side in SIDES for channels in CHANNELS))
NAMES = ("img_size", "image_size", "input_size", "imgsize", "image_width", "size")


def find_shape(model: nn.Module) -> tuple[int, int, int]:
    """The shape a model takes: what it says of itself, else the first usual one that it answers to.

    A patch that does not divide a picture may cut its edge off, so a shape whose last pixel is seen goes before.
    """
    cut: list[tuple[int, int, int]] = []
    others: list[str] = []
    errors: dict[tuple[int, int, int], str] = {}
    with modes_kept(model):
        model.eval()
        for shape in candidates(model):
            try:
                with seeded(SEED, device_of(model)):
                    pictures = torch.randn(2, *shape).to(device_of(model), dtype_of(model)).requires_grad_()
                    outputs = answer_of(model(pictures.clone()))
                    if len(outputs) == 2 and sees_the_last_pixel(outputs, pictures):
                        return shape
                if len(outputs) == 2:
                    cut.append(shape)
                else:
                    others.append(rows(outputs))
            except Exception as error:  # whatever a stranger's model raises
                errors[shape] = first_line(error)
    if cut:
        return cut[0]
    if others:
        raise BadInput(others[0])
    shape = next((shape for shape in ((1, 28, 28), (3, 32, 32)) if shape in errors), next(iter(errors)))
    size = "x".join(map(str, shape))
    raise BadInput(
        f"no usual picture shape is answered with (batch, classes): give the shape, such as --shape 1x28x28; "
        f"for {size} it raises {errors[shape]}"
    )


def sees_the_last_pixel(outputs: Tensor, pictures: Tensor) -> bool:
    if not outputs.requires_grad:
        return False
    try:
        (gradient,) = torch.autograd.grad((outputs * torch.randn_like(outputs)).sum(), pictures, allow_unused=True)
    except RuntimeError:  # some models can be differentiated only as a whole
        return True
    return gradient is not None and bool(gradient[..., -1, -1].any())


def candidates(model: nn.Module) -> Iterator[tuple[int, int, int]]:
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d) and m.in_channels <= 4), None)
    channels = (first.in_channels,) if first is not None else CHANNELS
    stated = dict.fromkeys(size for module in model.modules() for size in stated_sizes(module))
    yield from ((c, height, width) for height, width in stated for c in channels)
    yield from ((c, side, side) for c, side in dict.fromkeys(USUAL) if c in channels)
    yield from ((c, side, side) for side in SIDES for c in channels if c not in CHANNELS)


def stated_sizes(module: nn.Module) -> Iterator[tuple[int, int]]:
    """The picture size that a module, or its configuration, names."""
    for owner in (module, getattr(module, "config", None)):
        for name in NAMES:
            value = getattr(owner, name, None)
            if isinstance(value, int) and 1 < value <= 1024:
                yield value, value
            elif isinstance(value, tuple | list) and len(value) >= 2 and all(isinstance(v, int) for v in value):
                yield value[-2], value[-1]


def first_line(error: BaseException) -> str:
    """An error as one line: its kind and the first line of what it says."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__, 160)
