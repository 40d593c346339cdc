"""The figures of docs/scale.md and of the tour, made from the record of `vitlab bench scale`."""

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitlab.bench.forecast import BYTES, Cluster
from vitlab.bench.forecast_page import predicted, recipe_job
from vitlab.bench.plots import Frame, log_log
from vitlab.bench.scale import ACCESSED, APART, CACHED, COLD, LARGE, LOUD, MEMORY, ONE, SMALL, THREADS, TWO, Took
from vitlab.bench.sections import memory_words, time_words
from vitlab.bench.steptime import Fitted, errors, fit, held_out, ring
from vitlab.bench.tables import mean_size, percent, share, spread, table
from vitlab.data.words import counted
from vitlab.engine.storage import make_folder, read_json, write
from vitlab.marks import filled

RECIPE = "cifar10-fast"
NOISY = 0.3  # share of a median that its quartiles may lie apart, before ratios to it say nothing
NOT_QUIET = (
    "**The cores were not free, so these times are too long, and what two processes gain is understated: measure again "
    "on a quiet machine.**"
)


def fill_scale(bench: Path, docs: Path) -> None:
    """Put the record's figures into the pages that are there."""
    path = bench / "scale-cpu.json"
    if not path.exists():
        return
    scaled = Scaled.read(read_json(path))
    page, tour = docs / "scale.md", docs / "tour.md"
    if page.exists():
        recipe = recipe_job(read_json(bench.parent / "records" / f"{RECIPE}.json"))
        write(page, filled(page.read_text("utf-8"), scaled.parts() | predicted(scaled.cluster(), recipe)).encode())
        make_folder(docs / "scale")
        write(docs / "scale" / "steps.svg", scaled.chart().encode())
    if tour.exists():
        write(tour, filled(tour.read_text("utf-8"), {"access": scaled.access()}).encode())


@dataclass(frozen=True)
class Scaled:
    """A record, and the model that is fitted to it."""

    record: dict[str, Any]
    found: list[Took]
    fitted: Fitted

    @classmethod
    def read(cls, record: dict[str, Any]) -> "Scaled":
        found = [Took(**run) for run in record["runs"]]
        return cls(
            record, found, fit(found, {name: kind["gradients"] for name, kind in record["config"]["kinds"].items()})
        )

    def took(self, part: str, work: str, way: str, size: int) -> Took:
        wanted = (part, work, way, size)
        return next(one for one in self.found if (one.part, one.work, one.way, one.size) == wanted)

    def shared(self) -> Iterable[tuple[str, int]]:
        """Every kind and number of pictures that two processes got each."""
        return [(one.work, one.size) for one in self.found if (one.part, one.way) == ("step", TWO)]

    def of_batch(self, kind: str, size: int) -> tuple[Took, Took, Took]:
        """The same batch in one process, in one with several threads, and in two with `size` pictures each."""
        ways = ((ONE, 2 * size), (THREADS, 2 * size), (TWO, size))
        one, threads, two = (self.took("step", kind, way, count) for way, count in ways)
        return one, threads, two

    def cluster(self) -> Cluster:
        """Hosts that gather as fast as this one does."""
        gathered, fetched = (
            ACCESSED * BYTES / (self.took("access", str(LARGE), way, ACCESSED).milliseconds / 1e3)
            for way in (CACHED, COLD)
        )
        return Cluster(gathered=gathered, fetched=fetched)

    def parts(self) -> dict[str, str]:
        return {
            "source": self.source(),
            "models": "\n".join(f"- {name}: {kind['words']}" for name, kind in self.record["config"]["kinds"].items()),
            "measured": self.measured(),
            "gains": self.gains(),
            "input": self.inputs(),
            "exchanged": self.exchanged(),
            "fitted": self.numbers(),
            "checked": self.checked(),
        }

    def source(self) -> str:
        record = self.record
        versions = ", ".join(f"{name} {record['versions'][name]}" for name in ("vitlab", "python", "torch"))
        others = record["config"]["others"]
        warning = f" {NOT_QUIET}" if others > LOUD else ""
        said = (
            f"[The record](../results/bench/{record['name']}.json): `{record['command']}`, {record['date'][:10]}, "
            f"{record['device']}, {record['config']['rounds']} rounds ({versions}); "
            f"other programs kept {others:.2f} cores busy meanwhile.{warning}"
        )
        return textwrap.fill(said, 120, break_on_hyphens=False, break_long_words=False)

    def measured(self) -> str:
        """One line for each batch that two processes shared."""
        heads = (
            "model", "weights", "batch", "1 process", f"1 process, {self.record['config']['threads']} threads",
            "2 processes", "speed-up by threads", "speed-up by processes", "same share each",
        )  # fmt: skip
        rows = []
        for kind, size in self.shared():
            one, threads, two = self.of_batch(kind, size)
            half = self.took("step", kind, ONE, size)
            rows.append([
                kind, f"{self.fitted.gradients[kind] // 4:,}", f"{2 * size}", spread(one), spread(threads), spread(two),
                f"{one.milliseconds / threads.milliseconds:.2f}", f"**{one.milliseconds / two.milliseconds:.2f}**",
                share(half.milliseconds / two.milliseconds),
            ])  # fmt: skip
        return table(heads, rows, left=1)

    def gains(self) -> str:
        """The table in a sentence."""
        by: dict[str, list[float]] = {THREADS: [], TWO: []}
        noisy = 0
        for kind, size in self.shared():
            one, threads, two = self.of_batch(kind, size)
            if one.high - one.low > NOISY * one.milliseconds:
                noisy += 1
                continue
            by[THREADS].append(one.milliseconds / threads.milliseconds)
            by[TWO].append(one.milliseconds / two.milliseconds)
        by_threads, by_processes = (f"{min(values):.2f} to {max(values):.2f}" for values in by.values())
        left = f" ({counted(noisy, 'row')} left out: the single process took times too far apart.)" if noisy else ""
        return (
            f"So, for the same batch, two processes are **{by_processes} times** as fast as one; "
            f"{self.record['config']['threads']} threads are {by_threads} times as fast.{left}"
        )

    def inputs(self) -> str:
        """Memory against a file, in a sentence."""
        ratios = [
            self.took("input", one.work, CACHED, one.size).milliseconds / one.milliseconds
            for one in self.found
            if (one.part, one.way) == ("input", MEMORY)
        ]
        return (
            "Input from a mapped file that is in the system's cache takes "
            f"{min(ratios):.2f} to {max(ratios):.2f} times what it takes from memory."
        )

    def exchanged(self) -> str:
        rows = []
        for one in self.found:
            if one.part == "all-reduce":
                line = 1e3 * ring(2, one.size, self.fitted.link)
                rows.append(
                    [memory_words(one.size), spread(one), time_words(line), percent(line / one.milliseconds - 1)]
                )
        return table(("bytes", "measured", "the line", "off by"), rows)

    def numbers(self) -> str:
        fitted, link = self.fitted, self.fitted.link
        return "\n".join(
            [
                f"- latency {time_words(1e3 * link.latency)}, bandwidth {memory_words(link.bandwidth)}/s, as above;",
                f"- κ = {fitted.slowdown:.2f}: two processes side by side that exchange nothing, against one alone;",
                f"- γ = {fitted.handling:.1f}: how much longer a byte takes in a step than in an exchange alone;",
                f"- η = {fitted.hidden:.2f}: the share of the backward pass behind which the exchange hides.",
            ]
        )

    def checked(self) -> str:
        """Predicted and measured, step by step, and what the other models' steps would have predicted."""
        fitted, apart = self.fitted, held_out(self.found, self.fitted.gradients)
        heads = (
            "model", "pictures each", "compute", "input", "slowed by", "exchange", "predicted", "measured", "off by",
            "held out",
        )  # fmt: skip
        rows, places = [], dict.fromkeys(fitted.gradients, 0)
        for kind, size in self.shared():
            compute, read = fitted.compute[kind].at(size), fitted.input[kind].at(size)
            both, exchange = fitted.step(kind, TWO, size), fitted.exchange(kind, size)
            slowed = both - exchange - compute - read
            took = self.took("step", kind, TWO, size)
            rows.append([
                kind, str(size), *(time_words(1e3 * value) for value in (compute, read, slowed, exchange, both)),
                spread(took), percent(1e3 * both / took.milliseconds - 1), percent(apart[kind][places[kind]]),
            ])  # fmt: skip
            places[kind] += 1
        lines = [table(heads, rows, left=1), ""]
        alone, aside = (errors(fitted, self.found, way, fitted.gradients) for way in (ONE, APART))
        together = errors(fitted, self.found, TWO, fitted.gradients)
        others = [error for of_kind in apart.values() for error in of_kind]
        said = (
            f"On average the model is off by {mean_size(alone)} in one process, by {mean_size(aside)} in two that "
            f"exchange nothing, and by {mean_size(together)} in two together, at worst by "
            f"{share(max(map(abs, together)))}; for a model whose steps in two processes it has not seen, by "
            f"{mean_size(others)}, at worst by {share(max(map(abs, others)))}."
        )
        return "\n".join([*lines, textwrap.fill(said, 120)])

    def chart(self) -> str:
        """Measured steps over the model's lines."""
        frames = []
        for way in (ONE, TWO):
            dots: dict[str, dict[int, float]] = {}
            for one in self.found:
                if (one.part, one.way) == ("step", way):
                    dots.setdefault(one.work, {})[one.size] = one.milliseconds
            lines = {
                kind: {size: 1e3 * self.fitted.step(kind, way, size) for size in line} for kind, line in dots.items()
            }
            frames.append(Frame(f"{way}, 1 thread each" if way == TWO else f"{way}, 1 thread", dots, time_words, lines))
        about = f"{self.record['device']}; dots are measured, lines are the model"
        return log_log(frames, "A training step in one process and in two", about, "pictures of each process")

    def access(self) -> str:
        """A point of the tour's list."""
        words = []
        for picture in (SMALL, LARGE):
            memory, cached, cold = (
                time_words(self.took("access", str(picture), way, ACCESSED).milliseconds)
                for way in (MEMORY, CACHED, COLD)
            )
            words.append(
                f"{picture} in {cached} where the file is in the system's cache, {cold} where it is not, "
                f"{memory} from a tensor in memory"
            )
        text = (
            "- **Access**: a batch is gathered in the order of the file, then put in its own; for a GPU it is gathered "
            f"on the host, in pinned memory. Batches of {ACCESSED} at random, on {self.record['device']}: "
            f"{'; '.join(words)} ([record](../results/bench/{self.record['name']}.json))."
        )
        return textwrap.fill(text, 120, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def scale_lines(record: dict[str, Any]) -> list[str]:
    """What a record comes to, for the terminal."""
    scaled = Scaled.read(record)
    fitted, link = scaled.fitted, scaled.fitted.link
    lines = [
        f"{kind}, batch {2 * size}: two processes are {one.milliseconds / two.milliseconds:.2f} times as fast as one, "
        f"{record['config']['threads']} threads {one.milliseconds / threads.milliseconds:.2f} times"
        for kind, size in scaled.shared()
        for one, threads, two in [
            [scaled.took("step", kind, *at) for at in ((ONE, 2 * size), (THREADS, 2 * size), (TWO, size))]
        ]
    ]
    together = errors(fitted, scaled.found, TWO, fitted.gradients)
    lines.append(
        f"all-reduce: {time_words(1e3 * link.latency)} latency, {memory_words(link.bandwidth)}/s; slowed by "
        f"{fitted.slowdown:.2f} side by side; the model is off by {mean_size(together)} in two processes"
    )
    return lines
