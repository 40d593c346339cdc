"""What a run's own JSON files say: checked once, where they are read, for all who use it."""

import math
import sys
from typing import Any

from vitlab.errors import BadInput
from vitlab.settings import from_json

COUNTED = frozenset(("count", "epoch", "epochs", "parameters", "peak_memory", "seed", "step"))  # whole, 0 or more
DESCRIBED = {"command": str, "device": str, "date": str, "threads": int}  # of an environment


class Facts(dict[str, Any]):
    """Facts by name; one that is missing is a fault of the file."""

    def __init__(self, content: Any, where: str):
        if not isinstance(content, dict):
            raise BadInput(f"{where} is damaged: it is no JSON object")
        super().__init__(content)
        self.where = where

    def __missing__(self, name: str) -> Any:
        raise BadInput(f"{self.where} is damaged: it lacks {name}")


def figures(content: Any, where: str) -> Facts:
    """Numbers by name: an epoch's, or a result's; those that count something are whole."""
    found = Facts(content, where)
    for name, value in found.items():
        number = type(value) in (int, float) and not abs(value) > sys.float_info.max
        if not number or (math.isnan(value) and found.get("count")):  # of no pictures at all, a mean is NaN
            raise BadInput(f"{where} is damaged: {name[:60]} is no number")
        if name in COUNTED and not (type(value) is int and value >= 0):
            raise BadInput(f"{where} is damaged: {name} is {value}, and should count something")
    return found


def described(content: Any, where: str) -> Facts:
    """Where a figure comes from: the device, versions, date and command."""
    found = Facts(content, where)
    for name, wanted in DESCRIBED.items():
        from_json(wanted, found[name], f"{where}: {name}")
    if not all(isinstance(number, str) for number in Facts(found["versions"], f"{where}: versions").values()):
        raise BadInput(f"{where} is damaged: versions are no texts")
    return found


def positive(content: Any, where: str, name: str) -> float:
    """One number above 0."""
    value: float = from_json(float, Facts(content, where)[name], f"{where}: {name}")
    if not value > 0:
        raise BadInput(f"{where} is damaged: {name} is {value}, and should be above 0")
    return value
