"""What a person sees while a run trains."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from vitlab.console import terminal

SHOWN = {"accuracy": "accuracy", "validation_accuracy": "validation", "knn_accuracy": "k-NN", "spread": "spread"}


class Progress:
    """A live bar on a terminal, and one line per epoch everywhere; `quiet` shows neither."""

    def __init__(self, epochs: int, quiet: bool = False):
        self.epochs = epochs
        self.console = terminal(quiet)
        self.bar: Bar | None = None
        self.shown_at = 0.0

    @contextmanager
    def training(self, steps: int, done: int) -> Iterator[None]:
        columns = (
            TextColumn("epoch {task.fields[epoch]}/" + str(self.epochs)),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
        )
        with Bar(*columns, console=self.console, transient=True) as bar:
            self.task = bar.add_task("", total=steps, completed=done, epoch=1, text="")
            self.bar = bar
            yield
        self.bar = None

    def step(self, step: int, measure: Callable[[], Mapping[str, Any]]) -> None:
        """Move the bar; `measure` is called only when something is shown, since it may wait for the device."""
        if self.bar is None or not self.console.is_terminal or time.monotonic() - self.shown_at < 0.25:
            return
        now = measure()
        self.shown_at = time.monotonic()
        accuracy = f"accuracy {now['accuracy']:.1%}  " if "accuracy" in now else ""
        text = f"loss {now['loss']:.3f}  {accuracy}{now['images_per_second']:,.0f} pictures/s"
        self.bar.update(self.task, completed=step, epoch=now["epoch"], text=text)

    def epoch(self, line: Mapping[str, Any]) -> None:
        width = len(str(self.epochs))
        text = f"epoch {line['epoch']:{width}}/{self.epochs}  loss {line['loss']:.4f}"
        for name, words in SHOWN.items():
            if name in line:
                text += f"  {words} {line[name]:6.2%}"
        self.console.print(f"{text}  {line['images_per_second']:,.0f} pictures/s")
