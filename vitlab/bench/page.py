"""docs/performance.md, written anew from all the records, with its charts in the folder beside it."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from vitlab.bench.inference import Served, inference_tables
from vitlab.bench.points import Point
from vitlab.bench.record import Row, fastest_other, groups, markdown, others, rival, title
from vitlab.bench.roofline import KIND_NAMES, Bound
from vitlab.bench.runners import LOOP
from vitlab.bench.sections import FITTED, attention_lines, attention_section, growth_lines, growth_section, time_words
from vitlab.bench.settings import MANNERS
from vitlab.bench.tables import where
from vitlab.engine.storage import make_folder, read_json, write
from vitlab.sample import Sample

Record = dict[str, Any]
NOTHING = "Nothing is recorded yet."

OPENING = """# Performance

Written by `vitlab bench` and `scripts/update_performance.py` from the records in
{bench} and {records}; change the code, not this page.

How well the recipes do and how long they take, how fast a training step is beside other libraries, what each kind of
attention costs as tokens grow, and what an epoch costs as pictures, tokens, width or depth grow. Every figure has a
record with its command, device, versions and date. To measure on your own machine:

```
vitlab bench peers        # a training step and an epoch against timm, vit-pytorch, transformers, nn.TransformerEncoder
vitlab bench attention    # time and memory of every kind of attention, 64 to 16,384 tokens
vitlab bench growth       # an epoch, while one thing is doubled again and again
vitlab bench data         # the data path alone
vitlab bench roofline     # what bounds a recipe's step
vitlab bench scale        # a step in one process and in two: docs/scale.md
vitlab bench inference    # a trained model: torch, compiled, onnxruntime, 8-bit weights, timm
```

Times from different tables are not comparable: machines differ, and one machine's speed drifts. Ratios within a table
are: its contenders were measured by turns, in one run.
"""

RECIPES = """## Recipes

Test accuracy in a single view after the last epoch, over seeds: mean ± its 95 % interval (Student's t), the standard
deviation over seeds, the least and the median. *mirrored* is the mean accuracy where each picture is read together with
its mirror image: test-time augmentation, given apart. *training* is the mean time of a run without compilation, which
is given apart too.

**To train faster.** On a GPU add `compile=yes graph=yes`, as the recipes made for one do. On a CPU add `compile=yes`,
and `precision=bfloat16` where it has instructions for that (avx512_bf16 or amx in /proc/cpuinfo): the step becomes
one graph, with any optimiser and objective. Compiling takes 20 to 75 s, and a few seconds when it is done again, so it
pays for runs of some minutes. `window=0.75` shows parts of pictures first ([log](log.md)).
"""

PEERS = """## Against other libraries

The same shape and batch for all, in training mode without dropout. A *training step* is: zero the gradients, forward,
cross-entropy, backward, AdamW, on a batch that lies in memory. An *epoch* begins with stored pictures: the libraries
read a DataLoader with torchvision's transforms, as their users do, vitlab runs its loop. Colour pictures are also
cropped and flipped.

- *each as its users run it*: float32, not compiled, with the optimiser and the loader of the library's documents. (On a
  GPU vitlab's loop takes bfloat16 by itself.)
- *each at its best setting*: on a CPU the fastest of float32 and bfloat16, compiled and not; on a GPU bfloat16
  as it is, compiled, and with CUDA graphs. All are tried first, the note says what they took; then the fused AdamW, and
  the DataLoader with the number of workers that is fastest. Compilation is outside the clock.
- *ms* is the median over the rounds and *fastest* the best round. *ratio* is the median of the rounds' own ratios to
  vitlab: above 1 means slower than vitlab. *vitlab* is its model with its optimiser, doing the same step as the others;
  *vitlab, whole loop* is what `vitlab train` does, and *to the loop* the ratio to it; *lean* is the same shape with
  lean blocks (RMS norm without weights, no biases). *gradients* is the ratio for the step without its optimiser.
- A note tells where a library cannot do the very same work. Part of vitlab's lead is work it leaves out: the last
  block works only for the tokens that the head reads, which changes no output.
"""

ATTENTION = """## Attention by number of tokens

One attention layer: forward, and backward to its input and all of its weights. Softmax compares every token with every
other, so its time grows with the square of their number, however it is written. *Fused* softmax never writes the n × n
weights down, so its memory grows only with n; *explicit* softmax, as most first implementations have it, keeps them.
Linformer squeezes the n keys and values to 16 rows and *uniform* takes a mean: both grow with n. Locality is a fused
softmax with an n × n mask.

Peak memory is the most bytes of tensors alive at once during the call, above what lay there before (weights and input):
on a GPU by torch's own count, on a CPU by adding up every block that torch's allocator gave and took back. It is exact
and the same in every run; the process as a whole takes more.
"""

GROWTH = """## What an epoch costs as things grow

vitlab's own loop on random pictures. One of pictures, tokens, width and depth is doubled again and again while the
others stay. Expect 1 for pictures and depth. Width comes near 2, as the blocks' matrices have width² weights, but only
when it is large; small ones leave a processor idle. Tokens lie between 1 (the matrices) and 2 (attention).
"""

ROOFLINE = """## What bounds a recipe

A recipe's own training step, with its augmentation, optimiser and running mean. *of the matrix rate*: the arithmetic of
its products, attention and convolutions (three times a forward's) over its time, as a share of what one large matrix
product reaches on that device. Then where the time goes: what is neither a product, attention nor a convolution waits
for memory. *in blocks* is the share of the arithmetic that attention and MLP blocks do.
"""

DATA = """## The data path

From stored uint8 pictures to a normalised float batch on the device, without a model: vitlab's batches at once, against
a DataLoader that transforms picture by picture.
"""


INFERENCE = """## Inference

A trained model, from pictures in memory to logits, normalisation included: by torch as it is, compiled, by onnxruntime from the file
that `vitlab export` writes, by onnxruntime with weights in 8 bits, and timm's VisionTransformer of the same width, depth, heads, MLP and
patch by torch as it is. By turns; the median over the rounds: milliseconds for a batch, pictures a second, and × the median of the
rounds' own ratios to torch as it is: above 1 means slower.
"""  # noqa: E501


def write_page(bench: Path, page: Path) -> None:
    """Write the page and its charts; a chart that no record draws any more goes."""
    found = read_records(bench)
    recipes = [record for record in read_records(bench.parent / "records") if learned_from_labels(record)]
    charts = page.with_suffix("")
    links = {
        name: f"[{folder.parent.name}/{name}]({Path(os.path.relpath(folder, page.parent)).as_posix()})"
        for name, folder in (("bench", bench), ("records", bench.parent / "records"))
        if folder.exists()
    }
    opening = OPENING.format(**{name: links.get(name, f"{bench.parent.name}/{name}") for name in ("bench", "records")})
    lines = [opening, RECIPES, *recipe_table(recipes), "", PEERS, *peer_sections(kind(found, "peers"))]
    drawn: dict[str, str] = {}
    for heading, name, section in (
        (f"{ATTENTION}\n{FITTED}", "attention", attention_section),
        (GROWTH, "growth", growth_section),
    ):
        lines += [heading]
        records = kind(found, name)
        for record in records:
            made, chart = section(record, [Point(**run) for run in record["runs"]])
            drawn[f"{record['name']}.svg"] = chart
            picture = f"![{heading.splitlines()[0][3:]}, {place(record)}]({charts.name}/{record['name']}.svg)"
            lines += [f"### On {place(record)}", "", provenance(record), "", picture, "", *made]
        lines += [] if records else [NOTHING, ""]
    lines += [ROOFLINE, *roofline_table(kind(found, "roofline")), "", DATA, *data_sections(kind(found, "data"))]
    lines += [INFERENCE, *inference_sections(kind(found, "inference"))]
    make_folder(charts if drawn else page.parent)
    for path in (*charts.glob("attention-*.svg"), *charts.glob("growth-*.svg")):
        if path.name not in drawn:  # of a record that is gone
            path.unlink()
    for file, chart in drawn.items():
        write(charts / file, chart.encode())
    write(page, ("\n".join(lines).rstrip("\n") + "\n").encode())


def read_records(folder: Path) -> list[Record]:
    return [read_json(path) for path in sorted(folder.glob("*.json"))]


def learned_from_labels(record: Record) -> bool:
    """The others have a page of their own: their figures are a linear probe's."""
    return record["config"]["objective"]["kind"] == "supervised"


def kind(records: Sequence[Record], name: str) -> list[Record]:
    """The records of one part: its name comes first in theirs."""
    return [record for record in records if record["name"].partition("-")[0] == name]


def place(record: Mapping[str, Any]) -> str:
    return f"{'a GPU' if record['name'].endswith('cuda') else 'a CPU'} ({record['device']})"


def provenance(record: Mapping[str, Any]) -> str:
    config = record["config"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return (
        f"`{record['command']}`, {record['date'][:10]}, on {record['device']}, {config['threads']} threads, "
        f"{config['rounds']} rounds ({versions})."
    )


def recipe_table(records: Sequence[Record]) -> list[str]:
    """One line for each recipe that was trained."""
    if not records:
        return [NOTHING]
    heads = (
        "recipe", "seeds", "test accuracy", "deviation", "least", "median", "mirrored", "epochs", "training",
        "compiling", "pictures/s", "device", "date",
    )  # fmt: skip
    return [
        f"| {' | '.join(heads)} |",
        "|---|" + "---:|" * (len(heads) - 3) + "---|---|",
        *(f"| {' | '.join(recipe_cells(record))} |" for record in records),
    ]


def recipe_cells(record: Mapping[str, Any]) -> list[str]:
    runs = record["runs"]
    sample = Sample(tuple(100 * run["test_accuracy"] for run in runs))
    several = sample.deviation is not None
    return [
        f"`{record['name']}`",
        str(sample.count),
        f"**{sample.mean:.2f}{f' ± {sample.margin:.2f}' if several else ''} %**",
        f"{sample.deviation:.2f}" if several else "",
        f"{min(sample.values):.2f} %",
        f"{median(sample.values):.2f} %",
        f"{100 * mean_of(runs, 'mirrored_accuracy'):.2f} %" if "mirrored_accuracy" in runs[0] else "",
        str(runs[0]["epochs"]),
        f"{mean_of(runs, 'train_seconds'):,.1f} s",
        f"{max(run.get('compile_seconds', 0) for run in runs):,.0f} s",
        f"{mean_of(runs, 'images_per_second'):,.0f}",
        *where(record),
    ]


def mean_of(runs: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(run.get(name, 0.0) for run in runs) / len(runs)


def peer_sections(records: Sequence[Record]) -> list[str]:
    """A glance over all shapes, then each record."""
    if not records:
        return [NOTHING, ""]
    found = {record["name"]: groups(Row(**run) for run in record["runs"]) for record in records}
    lines = [
        "### At a glance",
        "",
        "The fastest of the others in each table, and how many times vitlab's time it takes. What is bold is a",
        "ratio of two medians.",
        "",
    ]
    lines += ["| shape | device | | step | its time is | epoch | its time is |", "|---|---|---|---|---:|---|---:|"]
    for record in records:
        lines += glance(record, found[record["name"]])
    for record in records:
        tables = found[record["name"]]
        lines += ["", f"### {', '.join(record['config']['shapes'])} on {place(record)}", "", provenance(record), ""]
        lines += [f"- {name}: {words}" for name, words in record["config"]["shapes"].items()]
        compiler = record["config"].get("compiler", "works")
        if compiler != "works":
            lines += [f"- compiled settings are not available there: {compiler}"]
        lines += tables_of(tables)
    return [*lines, ""]


def tables_of(tables: Mapping[tuple[str, str, str], list[Row]]) -> list[str]:
    lines = []
    for (part, work, manner), rows in tables.items():
        lines += ["", f"#### {title(part, work, manner)}", "", *markdown(rows), "", fastest_other(rows)]
    return lines


AGAINST_LOOP = {
    "users": "vitlab's loop at its best, the others as their users run them",
    "best": "vitlab's loop and the others at their best",
}


def glance(record: Mapping[str, Any], tables: Mapping[tuple[str, str, str], list[Row]]) -> list[str]:
    """One line for each manner of a shape."""
    lines = []
    for work in record["config"]["shapes"]:
        for manner, words in MANNERS.items():
            best = [rival(tables.get((part, work, manner), [])) for part in ("training", "epoch")]
            if any(best):
                cells = [cell for row in best for cell in ((row.contender, f"{row.ratio:.2f}") if row else ("", ""))]
                lines.append(f"| {work} | {record['device']} | {words} | {' | '.join(cells)} |")
        for manner, words in AGAINST_LOOP.items():
            found = [against_loop(tables, part, work, manner) for part in ("training", "epoch")]
            if all(found):
                cells = [cell for pair in found for cell in pair]
                lines.append(f"| {work} | {record['device']} | {words} | {' | '.join(cells)} |")
    return lines


def against_loop(
    tables: Mapping[tuple[str, str, str], list[Row]], part: str, work: str, manner: str
) -> tuple[str, ...]:
    """The fastest of the others in one manner, and its median time in those of vitlab's loop at its best."""
    loops = [row for row in tables.get((part, work, "best"), []) if row.contender == LOOP]
    rivals = others(tables.get((part, work, manner), []))
    if not loops or not loops[0].milliseconds or not rivals:
        return ()
    first = min(rivals, key=lambda row: row.milliseconds or 0.0)
    return first.contender, f"**{(first.milliseconds or 0.0) / loops[0].milliseconds:.2f}**"


def roofline_table(records: Sequence[Record]) -> list[str]:
    """One line for each recipe that was measured."""
    if not records:
        return [NOTHING]
    heads = (
        "recipe", "batch", "step", "pictures/s", "TFLOP/s", "of the matrix rate", *KIND_NAMES, "in blocks", "device",
        "date",
    )  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 3) + "---|---|"]
    for record in records:
        for run in record["runs"]:
            cells = [*bound_cells(Bound(**run)), *where(record)]
            lines.append(f"| {' | '.join(cells)} |")
    for record in records:
        for bound in (Bound(**run) for run in record["runs"]):
            if bound.longest:
                title = f"The longest of `{bound.recipe}` on {record['device']}: milliseconds, and times in a step."
                lines += ["", title, "", "```"]
                lines += [f"{taken:7.2f} {calls:5.0f} × {kernel}" for kernel, calls, taken in bound.longest]
                lines += ["```"]
    return lines


def bound_cells(bound: Bound) -> list[str]:
    whole = sum(bound.kernels.values())
    return [
        f"`{bound.recipe}`",
        str(bound.batch),
        time_words(bound.milliseconds),
        f"{bound.pictures_per_second:,.0f}",
        f"{bound.rate:.3g} of {bound.matrix_rate:.3g}",
        f"{bound.share:.0%}",
        *(f"{bound.kernels[kind] / whole:.0%}" for kind in KIND_NAMES),
        f"{bound.block_share:.0%}",
    ]


def data_sections(records: Sequence[Record]) -> list[str]:
    if not records:
        return [NOTHING, ""]
    lines = []
    for record in records:
        lines += [f"### The data path on {place(record)}", "", provenance(record)]
        lines += [*tables_of(groups(Row(**run) for run in record["runs"])), ""]
    return lines


def inference_sections(records: Sequence[Record]) -> list[str]:
    lines = []
    for record in records:
        lines += [f"### On {place(record)}", "", provenance(record), ""]
        busy = record["config"]["load"]
        if busy > 0.5:
            words = f"Other programs were at work, a load of {busy} before it began: times are too long, ratios fairer."
            lines += [words, ""]
        lines += [*(f"- {name}: {origin}" for name, origin in record["config"]["trained"].items()), ""]
        lines += [*inference_tables([Served(**run) for run in record["runs"]])]
    return lines or [NOTHING, ""]


def lines_of(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a record comes to, for the terminal."""
    if name.startswith("roofline"):
        heads = ("batch", "step", "pictures/s", "TFLOP/s", "of the matrix rate", *KIND_NAMES, "in blocks")
        return [
            f"{run['recipe']}: " + ", ".join(f"{head} {cell}" for head, cell in zip(heads, cells[1:], strict=True))
            for run in runs
            for cells in [bound_cells(Bound(**run))]
        ]
    if name.startswith("inference"):
        return []  # told as it was measured
    points = [Point(**run) for run in runs]
    return attention_lines(points) if name.startswith("attention") else growth_lines(points)
