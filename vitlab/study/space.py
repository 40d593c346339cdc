"""What a study varies: `width=16,32,64` names values, `learning_rate=1e-4..1e-2` a range."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_origin

from vitlab.errors import BadInput, shorten
from vitlab.experiment import Experiment
from vitlab.settings import field_types, find, is_settings, override, read_value

SAME = "all points must be judged by the same held-out pictures"
FIXED = {
    "seed": "train each point with several seeds by --seeds",
    "data.source": SAME,
    "data.source.test": SAME,
    "data.classes": SAME,
    "data.validation": SAME,
    "objective": "all points must learn from labels",
}


@dataclass(frozen=True)
class Choices:
    """A setting and the values it takes, as written on the command line."""

    name: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}={','.join(self.values)}"


@dataclass(frozen=True)
class Range:
    """A setting and the least and the most that it takes; on a logarithmic scale where it spans ten times or more."""

    name: str
    low: float
    high: float
    whole: bool

    @property
    def log(self) -> bool:
        return self.low > 0 and self.high >= 10 * self.low

    def __str__(self) -> str:
        return f"{self.name}={self.low!r}..{self.high!r}"


Dimension = Choices | Range


def read_space(words: str, base: Experiment) -> tuple[Dimension, ...]:
    """The dimensions of a space, each checked against the experiment that it changes."""
    if not words.split():
        raise BadInput('the space is empty: write for example --space "width=16,32,64 patch=4,7"')
    found: dict[tuple[str, ...], Dimension] = {}
    for word in words.split():
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise BadInput(f"'{shorten(word)}' is no part of a space: write name=value,value or name=least..most")
        path = find(base, name)
        if path in found:
            raise BadInput(f"the space names {'.'.join(path)} twice: give all its values at once")
        reason = FIXED.get(".".join(path))
        if reason:
            raise BadInput(f"{name} cannot be part of a space: {reason}")
        found[path] = _read_range(name, path, values, base) if ".." in values else _read_choices(name, values, base)
    return tuple(found.values())


def _read_choices(name: str, values: str, base: Experiment) -> Choices:
    texts = tuple(text for text in values.split(",") if text)
    if len(texts) < 2:
        raise BadInput(f"the space gives {name} one value: set it for all trials by {name}={values}, outside the space")
    seen: dict[Experiment, str] = {}
    for text in texts:
        changed = override(base, [f"{name}={text}"])
        if changed in seen:
            raise BadInput(f"{name} takes '{seen[changed]}' and '{text}', which are the same")
        seen[changed] = text
    return Choices(name, texts)


def _read_range(name: str, path: tuple[str, ...], values: str, base: Experiment) -> Range:
    wanted = type_of(base, path)
    if wanted not in (int, float):
        raise BadInput(f"{name} is no number, so it has no range: list its values as {name}=value,value")
    bounds = [read_value(wanted, text, name) for text in values.split("..", 1)]
    for bound in bounds:
        override(base, [f"{name}={bound}"])
    low, high = bounds
    if low >= high:
        raise BadInput(f"the range {name}={shorten(values)} is empty: write the least first, then the most")
    return Range(name, low, high, wanted is int)


def type_of(settings: Any, path: Sequence[str]) -> Any:
    """The type of the setting at a path; a list or a part has none that is a number."""
    for name in path[:-1]:
        settings = getattr(settings, name)
    own: type = type(settings)
    wanted = field_types(own)[path[-1]]
    return None if is_settings(wanted) or get_origin(wanted) is tuple else wanted


def assignments(point: Mapping[str, str]) -> list[str]:
    """A point as changes to an experiment."""
    return [f"{name}={value}" for name, value in point.items()]


def called(point: Mapping[str, str]) -> str:
    """A point in words: width 64, patch 7."""
    return ", ".join(f"{name} {short(value)}" for name, value in point.items())


def short(value: str) -> str:
    """A value with no more than four significant figures."""
    number = as_number(value)
    return value if number is None or number == int(number) else f"{number:.4g}"


def as_number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
