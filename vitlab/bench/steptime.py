"""A model of step time, and how its few numbers are fitted to what was measured.

    step(n, b) = κ · (compute(b) + input(b)) + exposed
    exposed    = max(all − η · ⅔ compute(b), last)

n processes with b pictures each. compute and input are lines in b. κ is how much processes on one machine slow each
other down. `all` is the time to exchange the gradients of every bucket, `last` that of the last one, which can begin
only when the backward pass is over; η is the share of the backward pass, two thirds of computing, behind which the
others hide. In a step each byte takes γ times as long as in an exchange alone: it is copied to its bucket and back.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vitlab.bench.scale import APART, MEMORY, ONE, TWO, Took

BACKWARD = 2 / 3  # of computing: a backward pass has twice the products of a forward
FIRST, NEXT = 2**20, 25 * 2**20  # bytes of the first bucket of torch's DistributedDataParallel, and of the others
HANDLING, HIDDEN = (
    np.arange(1, 6.01, 0.1).tolist(),
    np.arange(0, 1.01, 0.05).tolist(),
)  # values of γ and η that are tried
Pairs = Sequence[tuple[int, float]]  # a size, and seconds


@dataclass(frozen=True)
class Line:
    """fixed + each · count, in seconds."""

    fixed: float
    each: float

    def at(self, count: float) -> float:
        return self.fixed + self.each * count


@dataclass(frozen=True)
class Link:
    """How processes reach each other: seconds before a message arrives, and bytes a second."""

    latency: float
    bandwidth: float


def ring(count: int, size: float, link: Link) -> float:
    """2(n − 1)/n · bytes/bandwidth + 2(n − 1) · latency: each passes on n-ths, once to add them, once to share sums."""
    return 2 * (count - 1) / count * size / link.bandwidth + 2 * (count - 1) * link.latency


def two_rings(count: int, size: float, inside: Link, between: Link, node: int = 8) -> float:
    """Rings inside the nodes; and where there are several, each GPU's part of the bytes around a ring of nodes."""
    if count <= node:
        return ring(count, size, inside)
    return ring(node, size, inside) + ring(count // node, size / node, between)


def buckets(size: int) -> list[int]:
    """Bytes of gradients that are exchanged together, in the order in which they are ready."""
    rest = size - min(size, FIRST)
    return [min(size, FIRST), *[NEXT] * (rest // NEXT), *([rest % NEXT] if rest % NEXT else [])]


def exposed(exchanges: Sequence[float], compute: float, hidden: float) -> float:
    """What of the exchanges, one for each bucket, does not hide behind the backward pass."""
    return max(sum(exchanges) - hidden * BACKWARD * compute, exchanges[-1])


def fit_line(points: Pairs) -> Line:
    """The line with the least squares of relative errors; neither of its parts is below 0."""
    sizes, seconds = (np.array(values, dtype=float) for values in zip(*points, strict=True))
    rows = np.stack([1 / seconds, sizes / seconds], axis=1)
    fixed, each = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)[0]
    if fixed < 0:
        fixed, each = 0.0, scale_of(sizes, seconds)
    if each < 0:
        fixed, each = scale_of(np.ones(len(points)), seconds), 0.0
    return Line(float(fixed), float(each))


def fit_link(points: Pairs, count: int = 2) -> Link:
    """Latency and bandwidth of a ring of so many processes from the bytes exchanged and the seconds that took."""
    line = fit_line(points)
    return Link(line.fixed / (2 * (count - 1)), 2 * (count - 1) / count / line.each if line.each else math.inf)


def scale_of(predicted: np.ndarray, measured: np.ndarray) -> float:
    """The factor f for which f · predicted has the least squares of relative errors."""
    ratio = predicted / measured
    return float(ratio.sum() / (ratio**2).sum())


@dataclass(frozen=True)
class Fitted:
    """The model's numbers."""

    compute: Mapping[str, Line]  # of each kind of model
    input: Mapping[str, Line]
    link: Link
    slowdown: float  # κ
    handling: float  # γ
    hidden: float  # η
    gradients: Mapping[str, int]  # bytes of each kind of model

    def alone(self, kind: str, count: int) -> float:
        """Seconds of a step in one process."""
        return self.compute[kind].at(count) + self.input[kind].at(count)

    def exchange(self, kind: str, count: int, processes: int = 2) -> float:
        """Seconds of the all-reduce that a step waits for."""
        each = [ring(processes, self.handling * size, self.link) for size in buckets(self.gradients[kind])]
        return exposed(each, self.compute[kind].at(count), self.hidden)

    def step(self, kind: str, way: str, count: int) -> float:
        """Seconds of a step with `count` pictures in each process."""
        if way == ONE:
            return self.alone(kind, count)
        return self.slowdown * self.alone(kind, count) + (self.exchange(kind, count) if way == TWO else 0.0)


def fit(found: Iterable[Took], gradients: Mapping[str, int], learn_from: Iterable[str] | None = None) -> Fitted:
    """Lines from one process; κ from two apart, γ and η from two together, of all kinds or of those to learn from."""
    found = list(found)
    inputs = {kind: fit_line(pairs(found, "input", kind, MEMORY)) for kind in gradients}
    compute = {
        kind: fit_line([(size, took - inputs[kind].at(size)) for size, took in pairs(found, "step", kind, ONE)])
        for kind in gradients
    }
    link = fit_link(pairs(found, "all-reduce", "", TWO))
    kinds = list(gradients if learn_from is None else learn_from)
    first = Fitted(compute, inputs, link, 1.0, 1.0, 0.0, gradients)
    apart = [(first.alone(kind, size), took) for kind in kinds for size, took in pairs(found, "step", kind, APART)]
    slowdown = scale_of(*(np.array(values) for values in zip(*apart, strict=True)))
    steps = [took for took in found if (took.part, took.way) == ("step", TWO)]
    tried = [replace(first, slowdown=slowdown, handling=more, hidden=share) for more in HANDLING for share in HIDDEN]
    return min(tried, key=lambda one: sum(error**2 for error in errors(one, steps, TWO, kinds)))


def pairs(found: Iterable[Took], part: str, work: str, way: str) -> list[tuple[int, float]]:
    return [
        (took.size, took.milliseconds / 1e3) for took in found if (took.part, took.work, took.way) == (part, work, way)
    ]


def errors(fitted: Fitted, found: Iterable[Took], way: str, kinds: Iterable[str]) -> list[float]:
    """(predicted − measured) / measured of each step of a way."""
    found = list(found)
    return [fitted.step(kind, way, size) / took - 1 for kind in kinds for size, took in pairs(found, "step", kind, way)]


def held_out(found: Iterable[Took], gradients: Mapping[str, int]) -> dict[str, list[float]]:
    """For each kind of model, how far its steps in two processes are from what the other kinds' κ and η predict."""
    found = list(found)
    return {
        kind: errors(fit(found, gradients, [other for other in gradients if other != kind]), found, TWO, [kind])
        for kind in gradients
    }
