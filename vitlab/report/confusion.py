"""Which classes are taken for which: the matrix, the classes by accuracy, the pairs most often confused."""

import math
from dataclasses import dataclass

import numpy as np

LARGEST_MATRIX = 20
PAIRS = 6


@dataclass(frozen=True)
class Cell:
    """One count of the matrix and the strength of its colour, 0 … 1."""

    count: int
    strength: float


@dataclass(frozen=True)
class Row:
    """One true class: its cells, how many pictures it has, how many were right, and its commonest wrong answer."""

    truth: int
    cells: tuple[Cell, ...]
    count: int
    right: int
    rival: int | None

    @property
    def accuracy(self) -> float:
        return self.right / self.count if self.count else math.nan


@dataclass(frozen=True)
class Pair:
    """A class read as another, and how often the other way."""

    truth: int
    guess: int
    times: int
    of: int
    reverse: int


@dataclass(frozen=True)
class Confusion:
    """Rows in class order and worst first, and the pairs most often confused."""

    rows: tuple[Row, ...]
    ranking: tuple[Row, ...]
    pairs: tuple[Pair, ...]
    errors: int
    matrix: bool  # few enough classes to show them all against each other


def gather(counts: np.ndarray) -> Confusion:
    """Read a matrix of counts, rows truth and columns guess."""
    wrong = counts - np.diag(np.diag(counts))
    rows = tuple(_row(truth, counts[truth], wrong) for truth in range(len(counts)))
    seen = [row for row in rows if row.count]
    return Confusion(
        rows=rows,
        ranking=tuple(sorted(seen, key=lambda row: (row.accuracy, -row.count))),
        pairs=_pairs(counts, wrong),
        errors=int(wrong.sum()),
        matrix=len(counts) <= LARGEST_MATRIX,
    )


def _row(truth: int, line: np.ndarray, wrong: np.ndarray) -> Row:
    """Right answers are coloured by their share of the row, wrong ones by the root of their share of the worst cell."""
    total, worst = int(line.sum()), max(int(wrong.max()), 1)
    cells = [
        Cell(int(count), float(count / max(total, 1) if guess == truth else math.sqrt(count / worst)))
        for guess, count in enumerate(line)
    ]
    rival = int(wrong[truth].argmax()) if wrong[truth].any() else None
    return Row(truth, tuple(cells), total, int(line[truth]), rival)


def _pairs(counts: np.ndarray, wrong: np.ndarray) -> tuple[Pair, ...]:
    found = [
        Pair(int(truth), int(guess), int(wrong[truth, guess]), int(counts[truth].sum()), int(wrong[guess, truth]))
        for truth, guess in np.argwhere(wrong > 0)
    ]
    found.sort(key=lambda pair: (-pair.times, -pair.times / pair.of, pair.truth, pair.guess))
    return tuple(found[:PAIRS])
