"""The model under check: lent to each probe in the state it needs, and put back as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
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


class AllAlike(ArithmeticError):
    """The output is the same for every picture, so there is nothing to measure a difference against."""


class Subject:
    """A model of (b, c, y, x) → (b, classes), the shape it takes, and how to build it again."""

    def __init__(
        self,
        model: nn.Module,
        shape: tuple[int, int, int],
        make: Callable[[], nn.Module] | None = None,
        loaders: Loaders | None = None,
        classes: int | None = None,
        *,
        guessed: bool = False,
    ):
        self.model, self.shape, self.make, self.loaders = model, shape, make, loaders or Loaders()
        self.guessed = guessed  # the shape is a usual one that the model answers to, and nobody's word
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
            with modes_kept(model), attributes_kept(model):
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
        among = outputs if among is None else among
        difference = float((outputs - others).abs().max())
        if not self.alike(among):
            return difference / self.spread(among)
        if difference > self.rounding(among):
            raise AllAlike("the output is the same for every picture, so there is nothing to compare with")
        return 0.0

    def alike(self, outputs: Tensor) -> bool:
        """Whether the outputs of different pictures differ by no more than rounding."""
        return not self.spread(outputs) > self.rounding(outputs)

    def rounding(self, outputs: Tensor) -> float:
        return max(self.tolerance, TOLERANCE.get(outputs.dtype, 0.0)) * float(outputs.abs().max())

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
    given = f"{len(outputs)} row{'s' * (len(outputs) != 1)} of {outputs.shape[1]}"
    return (
        f"2 pictures are answered with {given}, not one for each picture: look for x[0] where x[:, 0] is meant, and "
        "for reshapes that move the batch axis"
    )


def kept_attributes(module: nn.Module) -> Callable[[], None]:
    """What puts back the plain attributes that a module has now, for models that keep something between calls."""
    registered = set(registered_names(module))
    before = {name: (value, contents(value)) for name, value in vars(module).items() if name not in INSIDE}

    def put_back() -> None:
        if set(registered_names(module)) != registered:  # a layer was made at the first call: that is no state
            return
        for name in [name for name in vars(module) if name not in INSIDE and name not in before]:
            del vars(module)[name]
        for name, (value, kept) in before.items():
            vars(module)[name] = value
            if isinstance(value, list):
                value[:] = kept
            elif isinstance(value, dict | set):
                value.clear()
                value.update(kept)
            elif isinstance(value, Tensor) and kept is not None and value._version != kept[0]:
                value.data.copy_(kept[1])

    return put_back


INSIDE = frozenset(vars(nn.Module()))  # what torch itself keeps in each module


def registered_names(module: nn.Module) -> list[str]:
    return [*module._parameters, *module._buffers, *module._modules]


def contents(value: Any) -> Any:
    """What can be put back into a list, dict, set or plain tensor that was changed in place."""
    if isinstance(value, list | dict | set):
        return value.copy()
    if isinstance(value, Tensor) and not value.is_inference():
        return value._version, value.data.clone()
    return None


@contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """Afterwards every layer has the plain attributes that it had."""
    attributes = [kept_attributes(module) for module in model.modules()]
    try:
        yield
    finally:
        for put_back in attributes:
            put_back()


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
            positive = bool((parameter > 0).all())  # a width or a variance may have to stay so
            parameter.add_(noise.to(parameter))
            if positive:
                parameter.abs_()


def tensors_in(given: Any) -> Iterator[Tensor]:
    """Every tensor in what a model returns, however deep in lists, dicts and objects of logits."""
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, dict):
        yield from (tensor for value in given.values() for tensor in tensors_in(value))
    elif isinstance(given, tuple | list):
        yield from (tensor for value in given for tensor in tensors_in(value))
    elif is_dataclass(given):
        yield from (tensor for field in fields(given) for tensor in tensors_in(getattr(given, field.name)))
    elif hasattr(given, "logits"):
        yield from (value for value in vars(given).values() if isinstance(value, Tensor))


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


def first_line(error: BaseException) -> str:
    """An error as one line: its kind and the first line of what it says."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return shorten(f"{type(error).__name__}: {text}" if text else type(error).__name__, 160)
