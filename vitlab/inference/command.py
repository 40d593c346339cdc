"""The verbs predict and calibrate."""

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, get_args

import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from tyro.conf import Positional

from vitlab.data.words import shown
from vitlab.errors import BadInput, choose
from vitlab.given import as_run
from vitlab.inference import calibration
from vitlab.inference.answers import Prediction, Predictor, Unread, files
from vitlab.printed import Count, DataFolder, Device, Paths, out

Format = Literal["text", "csv", "jsonl"]
FEW = 3  # classes that text names


def predict(
    run: Positional[Path],
    pictures: Paths,
    /,
    *,
    top: Count = None,
    format: Annotated[str, tyro.conf.arg(metavar="{text,csv,jsonl}")] = "text",
    invert: bool = False,
    device: Device = "auto",
) -> None:
    """Classify your pictures: files or folders, as text, CSV or JSON.

    Exit status 1 where some files could not be read, 2 where none could.

    Args:
        run: The run's folder.
        pictures: Picture files, or folders of them, whatever lies in them; each is fitted to the size that was learned.
        top: How many classes to name for each picture (default: 3 as text, else all).
        format: text, csv (a column for each class) or jsonl (one JSON object a line).
        invert: Swap dark and light first: MNIST's digits are white on black.
    """
    choose(format, get_args(Format), "format")
    if not pictures:
        raise BadInput("no picture given: write vitlab predict RUN PICTURE…, or RUN FOLDER")
    if top is not None and top < 1:
        raise BadInput(f"top must be 1 or more, not {top}")
    predictor = Predictor(run, device, invert)
    folders = [path for path in pictures if path.is_dir()]
    show = WRITERS[format](predictor.card.classes, top)
    began, read, unread = time.perf_counter(), 0, 0
    for answer in followed(pictures, predictor.answers(files(pictures))):
        if isinstance(answer, Unread):
            unread += 1
            remark(answer.reason)
            continue
        if not read and predictor.seems_swapped:
            remark("dark and light seem swapped against the training pictures; try --invert")
        read += 1
        show(answer)
    sys.stdout.flush()
    if not read and not unread:
        raise BadInput(f"no picture in {', '.join(map(shown, folders))}")
    told = [summary(read, unread, time.perf_counter() - began)] if folders else []
    if read and predictor.temperature != 1:
        told.append(f"probabilities calibrated, temperature {predictor.temperature:.2f}")
    if told:
        remark("; ".join(told))
    if unread:
        sys.exit(1 if read else 2)


def calibrate(run: Positional[Path], /, data: DataFolder = None, device: Device = "auto") -> None:
    """Fit a temperature on held-out pictures: honest probabilities.

    Args:
        run: The run's folder; the temperature is saved in it.
    """
    opened = as_run(run)
    for line in calibration.describe(calibration.calibrate(opened, data, device), opened):
        out.print(line, markup=False)


def remark(words: str) -> None:
    """What is no answer goes to stderr."""
    print(f"vitlab: {words}", file=sys.stderr)


def summary(read: int, unread: int, seconds: float) -> str:
    words = f"{read:,} picture{'s' * (read != 1)} in {seconds:.1f} s, {read / seconds:,.0f} a second"
    return f"{words}; {unread:,} could not be read" if unread else words


@contextmanager
def bar(total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """How far it is, where somebody sits before the terminal and the answers go elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal or sys.stdout.isatty():
        yield lambda: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total())
        yield lambda: progress.advance(task)


def followed(pictures: Sequence[Path], answers: Iterable[Prediction | Unread]) -> Iterator[Prediction | Unread]:
    with bar(lambda: sum(1 for _ in files(pictures))) as advance:
        for answer in answers:
            yield answer
            advance()


def write_text(classes: tuple[str, ...], top: int | None) -> Callable[[Prediction], None]:
    def show(found: Prediction) -> None:
        named = list(zip(found.classes, found.probabilities, strict=True))[: top or FEW]
        print(f"{shown(found.picture)}: " + ", ".join(f"{label} ({share:.1%})" for label, share in named))

    return show


def write_csv(classes: tuple[str, ...], top: int | None) -> Callable[[Prediction], None]:
    """picture, guess, probability, then every class; or, of the likeliest alone, class and probability in turn."""
    table = csv.writer(sys.stdout, lineterminator="\n")
    pairs = [f"{word} {place + 1}" for place in range(min(top or 0, len(classes))) for word in ("class", "probability")]
    table.writerow(["picture", *(pairs or ["guess", "probability", *classes])])

    def show(found: Prediction) -> None:
        shares = [f"{share:.6f}" for share in found.probabilities]
        if top is None:
            of_class = dict(zip(found.classes, shares, strict=True))
            table.writerow([found.picture, found.classes[0], shares[0], *(of_class[label] for label in classes)])
        else:
            named = list(zip(found.classes, shares, strict=True))[:top]
            table.writerow([found.picture, *(word for pair in named for word in pair)])

    return show


def write_jsonl(classes: tuple[str, ...], top: int | None) -> Callable[[Prediction], None]:
    def show(found: Prediction) -> None:
        content = {
            "picture": found.picture, "classes": found.classes[:top], "probabilities": found.probabilities[:top],
        }  # fmt: skip
        print(json.dumps(content, ensure_ascii=False))

    return show


WRITERS: dict[str, Callable[[tuple[str, ...], int | None], Callable[[Prediction], None]]] = {
    "text": write_text,
    "csv": write_csv,
    "jsonl": write_jsonl,
}
