"""The page of all reproductions in Markdown with its charts, and the summary for the README."""

import io
import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vitlab.engine.storage import make_folder, read_json, write
from vitlab.reproduce import charts, words
from vitlab.reproduce.figures import Row, missing, table, verdict
from vitlab.reproduce.plan import Reproduction, Variant

REPORTS = {
    "R0": "a ViT on MNIST, kinds of attention, several scales",
    "R1": "a shallow ViT on MNIST",
    "R2": "a ViT on MNIST: width, patch size, depth, pretrained weights, and what the report names as the way on",
    "R3": "one-head attention on a bag of patches",
    "R4": "a ViT on CIFAR-10",
}
MEASURES = {
    "accuracy": "Training accuracy",
    "validation_accuracy": "Validation accuracy",
    "loss": "Training loss",
}
TEST = "Test accuracy"
MENDED = ("all repairs", "mended", "all mended")  # the variant that stands for the whole of the repairs
TABLES = ((100, 16, 10), (1000, 160, 1))  # positions, width, pixels per value: report R2's two pictures
SMALL = "**Small version: fewer pictures and epochs, to see that it runs. Its figures say nothing of the report.**"
BEST = "Where no variant holds all repairs, the highest mean stands for it; picked afterwards, it flatters a little."

OPENING = """# The reports, as written and mended
{small}
Written by `scripts/update_reports.py` from the records in {records}; change the code, not this page.

Five students' reports build a Vision Transformer from parts and train it on small pictures. They are good reading, and
four have mistakes that are easy to make and hard to see: the code runs, the loss falls, only the accuracy stays low. If
yours stays low too, look for your own code in the first column of the tables. Every experiment is run here **as
written**, mistakes included, and then with **one repair at a time**, so that a mistake shows what it costs.

- *ours* is the mean test accuracy over seeds ± its 95 % interval (Student's t). The interval tells how far the mean
  moves from seed to seed; it does not tell how other test pictures would turn out. Each run is tested once, after its
  last epoch.
- A difference is given in percentage points ± its 95 % interval (Welch's t). It is **bold** where the interval leaves
  out 0. Else it is no clear difference, whatever its sign. Of twenty comparisons between equals, one looks clear by
  chance.
- A report's claim is *confirmed* where its favourite is clearly ahead of every rival, and *refuted* where a rival is
  clearly ahead of it, by intervals that allow for the number of rivals. Else these seeds do not settle it.
- *training* is the share right of the batches while they were learned, changed pictures and dropout included, on
  average since the measurement before; it can lie below the test accuracy. Below a variant's name stand the settings
  that differ from the recipe, as the command line takes them.
"""


def load(records: Path, name: str) -> dict[str, Any] | None:
    """The record of a reproduction, where it has been run."""
    path = records / f"{name}.json"
    return read_json(path) if path.exists() else None


def write_page(reproductions: Mapping[str, Reproduction], records: Path, page: Path) -> None:
    """Write the page and, in the folder beside it that has its name, its pictures."""
    pictures = page.with_suffix("")
    make_folder(pictures)
    found = {name: load(records, name) for name in reproductions}
    back = Path(os.path.relpath(records, page.parent)).as_posix()
    opening = OPENING.format(records=f"[{records.name}]({back})", small=_small(found))
    lines = [opening, _provenance(reproductions, found), ""]
    lines += ["## At a glance", "", BEST, "", _glance(reproductions, found, ""), "", "## Contents", ""]
    for report in _reports(reproductions):
        lines.append(f"- [{report}](#{report.lower()}): {REPORTS.get(report, '')}".rstrip(": "))
        lines += [f"  - [{plan.title}](#{name})" for name, plan in reproductions.items() if plan.report == report]
    for report in _reports(reproductions):
        lines += ["", f'<a id="{report.lower()}"></a>', "", f"## {report}: {REPORTS.get(report, '')}".rstrip(": ")]
        for name, plan in reproductions.items():
            if plan.report == report:
                lines += ["", *_experiment(name, plan, found[name], pictures, back)]
        if report == "R2":
            lines += ["", *_sinusoids(pictures)]
    write(page, ("\n".join(lines) + "\n").encode())


def _reports(reproductions: Mapping[str, Reproduction]) -> list[str]:
    return sorted({plan.report for plan in reproductions.values()})


def _small(found: Mapping[str, dict[str, Any] | None]) -> str:
    names = [f"`{name}`" for name, record in found.items() if record and record["small"]]
    return f"\n**Small versions, whose figures say nothing of the reports: {words.listed(names)}.**\n" if names else ""


def _provenance(reproductions: Mapping[str, Reproduction], found: Mapping[str, dict[str, Any] | None]) -> str:
    """Devices, versions and dates of all that was run."""
    rows = [row for name, plan in reproductions.items() for row in table(plan, found[name] or {"variants": []})]
    if not rows:
        return "Nothing has been run yet."
    devices = words.listed(sorted({row.device for row in rows}))
    dates = " to ".join(sorted({min(row.date for row in rows), max(row.date for row in rows)}))
    versions = sorted({f"{name} {version}" for row in rows for name, version in row.versions.items()})
    counts = sorted({row.accuracy.count for row in rows})
    seeds = " to ".join(map(str, sorted({counts[0], counts[-1]})))
    runs, seconds = sum(row.accuracy.count for row in rows), sum(row.seconds for row in rows)
    return (
        f"{runs:,} run{'s' * (runs > 1)}, {seeds} seed{'s' * (counts[-1] > 1)} a variant, {words.duration(seconds)} of "
        f"training in all, on {devices}, {dates} ({', '.join(versions)}). Below each experiment stands the command "
        "that makes it again."
    )


def _experiment(name: str, plan: Reproduction, record: dict[str, Any] | None, pictures: Path, back: str) -> list[str]:
    """One experiment: what it is, table, charts, reading, claims, and where the figures come from."""
    lines = [f'<a id="{name}"></a>', "", f"### {plan.title}", "", plan.reading, ""]
    rows = table(plan, record) if record else []
    if record is None or not rows:
        return [*lines, f"*Not run yet:* `vitlab reproduce {name}`"]
    if record["small"]:
        lines += [SMALL, ""]
    groups = _groups(plan)
    for group in groups:
        members = [row for row in rows if row.group == group]
        if members:
            lines += [*([f"**{group}**", ""] if len(groups) > 1 else []), *_table(members), ""]
    lines += _absent(plan, record, rows)
    for picture, (drawing, describe) in _charts(name, plan, record, rows).items():
        write(pictures / picture, drawing.encode())
        lines += [f"![{describe}]({pictures.name}/{picture})", ""]
    for group in groups:
        found = words.reading([row for row in rows if row.group == group])
        if found:
            lines += [*([f"**{group}**", ""] if len(groups) > 1 else []), *(f"- {one}" for one in found), ""]
    if plan.claims:
        lines += ["What the report concludes, and what these runs say to it:", ""]
        lines += [f"- {words.judged(verdict(claim, rows))}" for claim in plan.claims] + [""]
    return [*lines, _made_by(record, rows, f"{back}/{name}.json")]


def _absent(plan: Reproduction, record: Mapping[str, Any], rows: list[Row]) -> list[str]:
    """Variants that wait to be run, and those of the record that the plan no longer has."""
    lines = []
    waiting = [f"*{variant.name}*" + f" ({variant.group})" * bool(variant.group) for variant in missing(plan, rows)]
    if waiting:
        lines += [f"Not run yet: {words.listed(waiting)}.", ""]
    known = {(variant.group, variant.name) for variant in plan.variants}
    stale = [f"*{entry['name']}*" for entry in record["variants"] if (entry["group"], entry["name"]) not in known]
    if stale:
        lines += [f"The record also has {words.listed(stale)}, no longer part of the experiment.", ""]
    return lines


def _groups(plan: Reproduction) -> list[str]:
    return list(dict.fromkeys(variant.group for variant in plan.variants))


def _table(rows: Sequence[Row]) -> list[str]:
    """The rows of one group as Markdown."""
    reported = any(row.reported is not None for row in rows)
    heads = ["variant", *(["the report"] * reported), "ours", f"against *{rows[0].base}*", "training", "weights"]
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for row in rows:
        against = words.points(row.difference) if row.difference else ""
        settings = " ".join(f"`{setting}`" for setting in row.settings)
        if row.first:
            settings = f"{settings}<br>first {' '.join(f'`{setting}`' for setting in row.first)}".removeprefix("<br>")
        about = f"**{row.name}**" + f": {row.variant.words}" * bool(row.variant.words)
        cells = [f"{about}<br>{settings}" if settings else about]
        if reported:
            cells.append(words.percent(row.reported) if row.reported is not None else "")
        cells += [words.accuracy(row.accuracy), f"**{against}**" if row.difference and row.difference.sign else against]
        cells += [words.percent(row.train_accuracy.mean), f"{row.parameters:,}"]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def _made_by(record: Mapping[str, Any], rows: Sequence[Row], link: str) -> str:
    seeds = words.listed([str(count) for count in sorted({row.accuracy.count for row in rows})])
    together = max(row.together for row in rows)
    at_once = f", {together} runs at a time" if together > 1 else ""
    compiling = sum(row.compile_seconds for row in rows)
    apart = f" and {words.duration(compiling)} of compiling" if compiling >= 1 else ""
    epochs = " or ".join(f"{count:,}" for count in sorted({row.epochs for row in rows}))
    devices = words.listed(sorted({row.device for row in rows}))
    firsts = {  # several variants may begin with the same
        tuple(entry["first"]["settings"]): sum(run["train_seconds"] for run in entry["first"]["runs"])
        / entry["together"]
        for entry in record["variants"]
        if entry.get("first", {}).get("runs")
    }
    if firsts:
        apart = f" after {words.duration(sum(firsts.values()))} of what is learned first{apart}"
    return (
        f"`{record['command']}`: {seeds} seed{'s' * (seeds != '1')} a variant, {epochs} epochs, "
        f"{words.duration(sum(row.seconds for row in rows))} of training{apart} on {devices}{at_once}, "
        f"{max(row.date for row in rows)} ([record]({link}))."
    )


def _charts(
    name: str, plan: Reproduction, record: Mapping[str, Any], rows: Sequence[Row]
) -> dict[str, tuple[str, str]]:
    """File → drawing and description: the test accuracies, then the course of training."""
    drawn = {f"{name}-accuracy.svg": (_accuracies(plan, rows), f"{plan.title}: test accuracy")}
    names = list(dict.fromkeys(variant.name for variant in plan.variants))
    entries = {(entry["group"], entry["name"]): entry["runs"] for entry in record["variants"]}
    panels = []
    for group in _groups(plan):
        lines = [
            _line(row.name, names.index(row.name), entries[group, row.name], plan.curve)
            for row in rows
            if row.group == group
        ]
        if any(lines):
            panels.append(charts.Panel(group, [line for line in lines if line]))
    if panels:
        drawing = charts.curves(panels, MEASURES[plan.curve], is_share=plan.curve != "loss")
        drawn[f"{name}-course.svg"] = (drawing, f"{plan.title}: {MEASURES[plan.curve].lower()} by epoch")
    return drawn


def _accuracies(plan: Reproduction, rows: Sequence[Row]) -> str:
    """Over the groups where they share their variants, along numbers where variants are numbers, else row by row."""
    samples = {(row.group, row.name): row.accuracy for row in rows}
    groups = _groups(plan)

    def mark(variant: Variant) -> charts.Mark:
        return charts.Mark(variant.name, samples.get((variant.group, variant.name)), variant.reported)

    marks = {(variant.group, variant.name): mark(variant) for variant in plan.variants}
    names = list(dict.fromkeys(variant.name for variant in plan.variants))
    if len(groups) > 1 and len(marks) == len(groups) * len(names):
        tracks = [charts.Track(name, [marks[group, name] for group in groups]) for name in names]
        return (charts.frames if charts.far_apart(tracks) else charts.study)(groups, tracks, TEST)
    if len(groups) == 1 and all(re.search(r"\d", name) for name in names) and sum(map(len, names)) < 90:
        return charts.study(names, [charts.Track("", list(marks.values()))], TEST)
    return charts.ranges([(group, one) for (group, _), one in marks.items()], TEST)


def _line(label: str, place: int, runs: Sequence[Mapping[str, Any]], key: str) -> charts.Line | None:
    """The course of one measure over the seeds, at the epochs where each has a value; one epoch is no course."""
    courses = [run["curve"] for run in runs if run["curve"].get(key)]
    if not courses:
        return None
    points = []
    for epoch, *values in zip(courses[0]["epoch"], *(course[key] for course in courses), strict=False):
        if all(value is not None and math.isfinite(value) for value in values):
            points.append((epoch, math.fsum(values) / len(values), min(values), max(values)))
    return charts.Line(label, place, *map(list, zip(*points, strict=True))) if len(points) > 1 else None


def _sinusoids(pictures: Path) -> list[str]:
    """Report R2's pictures of the sinusoidal tables, drawn from the table that the model adds."""
    lines = [
        "### The sinusoidal tables",
        "",
        "What `positions=sinusoidal-1d` adds to the tokens, at the two sizes that the report shows: position from left "
        "to right, feature from top to bottom, −1 blue, 0 white, 1 red. The features come in pairs, sine and cosine, "
        "and each pair turns more slowly than the one above it.",
    ]
    for positions, width, factor in TABLES:
        picture, content = f"sinusoids-{positions}x{width}.png", io.BytesIO()
        charts.sinusoidal_table(positions, width, factor).save(content, "PNG", optimize=True)
        write(pictures / picture, content.getvalue())
        lines += ["", f"![Sinusoidal table of {positions} positions by {width} features]({pictures.name}/{picture})"]
        lines += ["", f"*{positions:,} positions × {width} features*"]
    return lines


def summary(reproductions: Mapping[str, Reproduction], records: Path, page_link: str) -> str:
    """The page's table at a glance, with links into the page."""
    return _glance(reproductions, {name: load(records, name) for name in reproductions}, page_link)


def _glance(
    reproductions: Mapping[str, Reproduction], found: Mapping[str, dict[str, Any] | None], page_link: str
) -> str:
    """One line an experiment: the report's figure, ours as written, ours mended, and the change that matters most."""
    lines = [
        "| | experiment | the report | ours, as written | ours, mended or best | what else differs most, points |",
        "|---|---|---:|---:|---:|---|",
    ]
    for name, plan in sorted(reproductions.items(), key=lambda pair: pair[1].report):
        record = found[name]
        rows = table(plan, record) if record else []
        title = f"[{plan.title}]({page_link}#{name})" + " **(small version)**" * bool(record and record["small"])
        shown = _headline_groups(rows)
        for group in shown:
            members = [row for row in rows if row.group == group]
            named = f"{title}, {group}" if group else title
            lines.append(f"| {plan.report} | {named} | {' | '.join(_headline(plan, members, group, rows))} |")
        if not shown:
            lines.append(f"| {plan.report} | {title} | | not run yet | | |")
    return "\n".join(lines)


def _headline_groups(rows: Sequence[Row]) -> list[str]:
    """The groups whose base has a reported figure; where there is none, the first group."""
    groups = list(dict.fromkeys(row.group for row in rows))
    told = [row.group for row in rows if row.name == row.base and row.reported is not None]
    return told or groups[:1]


def _headline(plan: Reproduction, rows: Sequence[Row], group: str, every: Sequence[Row]) -> list[str]:
    """Four cells: theirs, ours, ours mended (or else the highest), and the largest clear difference of one change."""
    base = next((row for row in rows if row.name == row.base), None)
    others = [row for row in rows if row is not base]
    mended = next((row for row in others if row.name in MENDED), None)
    final = mended or max(rows, key=lambda row: row.accuracy.mean)
    single = [(row.name, row.difference) for row in others if row is not mended and row.difference]
    clear = max((pair for pair in single if pair[1].sign), key=lambda pair: abs(pair[1].value), default=None)
    last = f"{clear[0]}: {words.points(clear[1])}" if clear else "no clear difference" if single else ""
    verdicts = Counter(verdict(claim, list(every)).word for claim in plan.claims if claim.group == group)
    if verdicts:
        counted = ", ".join(
            f"{count} {word.removesuffix(' by these seeds')}" for word, count in sorted(verdicts.items())
        )
        last = "<br>".join(filter(None, [last, f"the report's claims: {counted}"]))
    return [
        words.percent(base.reported) if base and base.reported is not None else "",
        _named(base, ("as written",)) if base else "not run yet",
        f"**{_named(final, MENDED)}**" if final is not base else "none is higher",
        last,
    ]


def _named(row: Row, silent: tuple[str, ...]) -> str:
    return words.accuracy(row.accuracy) + ("" if row.name in silent else f" ({row.name})")
