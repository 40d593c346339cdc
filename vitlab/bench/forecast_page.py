"""The tables of docs/scale.md about GPUs: what is assumed of them, and what the model predicts."""

from dataclasses import replace
from typing import Any

from vitlab.bench.forecast import BYTES, PICTURES, Cluster, Job, forecast, on_imagenet, variants
from vitlab.bench.sections import time_words
from vitlab.bench.tables import long_time, share, table

GPUS, BATCHES, MODELS = (8, 64, 512), (1024, 4096), ("ViT-S/16", "ViT-B/16")


def predicted(cluster: Cluster, recipe: Job) -> dict[str, str]:
    """What the model says of GPUs."""
    return {
        "one GPU": one_gpu(recipe),
        "assumed": assumed(cluster),
        "forecast": forecasts(cluster),
        "worse": sensitivity(cluster),
        "recipe": recipe_forecasts(cluster, recipe),
    }


def recipe_job(record: dict[str, Any]) -> Job:
    runs = record["runs"]
    rate = sum(run["images_per_second"] for run in runs) / len(runs)
    return Job(record["name"], rate, runs[0]["parameters"], 50_000, 0)


def one_gpu(recipe: Job) -> str:
    jobs = [recipe, *map(on_imagenet, MODELS)]
    where = {
        recipe.name: f"measured ([record](../results/records/{recipe.name}.json)): compiled, recorded, batches of 500",
        "ViT-S/16": "computed: 241 of 794 TFLOP/s, as a ViT of width 384 and 256 tokens did",
        "ViT-B/16": "computed: 280 of 794 TFLOP/s, as a ViT of width 512 and 256 tokens did; wider ones do better",
    }
    rows = [[job.name, f"{job.parameters:,}", f"{job.rate:,.0f}", where[job.name]] for job in jobs]
    return table(("model", "weights", "pictures/s", "from"), rows, left=1, words=1)


def assumed(cluster: Cluster) -> str:
    link = "{:.0f} GB/s, {:.0f} µs".format
    size = PICTURES * BYTES
    rows = [
        ["NVLink, in a node", link(cluster.inside.bandwidth / 1e9, cluster.inside.latency * 1e6),
         "two thirds of the 450 GB/s each way in the maker's data sheet of the H200; the latency is a guess"],
        ["InfiniBand, between nodes", link(cluster.between.bandwidth / 1e9, cluster.between.latency * 1e6),
         "four fifths of 400 Gbit/s, one card for each GPU, as in a DGX H200; the latency is a guess"],
        ["GPUs of a node", str(cluster.node), "as in a DGX H200"],
        ["hidden (η)", f"{cluster.hidden:g}",
         "NCCL exchanges beside the backward pass; that this costs it nothing is a hope"],
        ["slowed (κ), handled (γ)", "1", "each GPU has memory of its own, which copies at TB/s"],
        ["host, per step", time_words(1e3 * cluster.launch),
         "the slowest step of a small model that was not recorded: results/tuning/2026-11-15-gpu-steps.txt"],
        ["host, gathering", f"{cluster.gathered / 1e9:.2f} GB/s a process",
         f"measured here, {cluster.gathered / BYTES:,.0f} pictures a second (the record above)"],
        ["pictures", f"{PICTURES:,} of 3×224×224",
         f"{size / 1e9:.0f} GB as a mapped file on every node; a DGX H200 has 2 TB of memory to cache it in"],
        ["host, gathering where it is not cached", f"{cluster.fetched / 1e9:.2f} GB/s a process",
         "measured here, on a virtual disk: one thread waits for page after page"],
        ["disk", f"{cluster.disk / 1e9:g} GB/s a node",
         f"a guess for local NVMe; to read the whole file into the cache takes {size / cluster.disk:.0f} s"],
    ]  # fmt: skip
    return table(("what", "taken as", "from"), rows, left=1, words=1)


def forecasts(cluster: Cluster) -> str:
    heads = (
        "model", "GPUs", "batch", "each", "compute", "exchange", "host", "step", "epoch", "90 epochs", "300 epochs",
        "efficiency", "bound by",
    )  # fmt: skip
    rows = []
    for name in MODELS:
        for batch in BATCHES:
            for gpus in GPUS:
                one = forecast(on_imagenet(name), gpus, batch, cluster)
                seconds = (one.compute, one.exchange, one.launch + one.gather, one.step)
                rows.append([
                    name, str(gpus), f"{batch:,}", f"{batch / gpus:g}", *(time_words(1e3 * value) for value in seconds),
                    long_time(one.epoch), long_time(90 * one.epoch), long_time(300 * one.epoch),
                    share(one.efficiency), one.bound,
                ])  # fmt: skip
    return table(heads, rows, left=1, words=1)


def sensitivity(cluster: Cluster) -> str:
    """An epoch with one assumption changed at a time."""
    changed = variants(cluster)
    rows = []
    for name in MODELS:
        for gpus in GPUS:
            cells = []
            for other in changed.values():
                one = forecast(on_imagenet(name), gpus, BATCHES[-1], other)
                cells.append(f"{long_time(one.epoch)} ({share(one.efficiency)})")
            rows.append([name, str(gpus), *cells])
    return table(("model", "GPUs", *changed), rows, left=1)


def recipe_forecasts(cluster: Cluster, job: Job) -> str:
    rows = []
    for words, gpus, batch, here in (
        ("1 GPU, recorded (measured)", 1, 500, replace(cluster, launch=0.0)),
        ("8 GPUs, the same batch", 8, 500, cluster),
        ("8 GPUs, 500 pictures each", 8, 4000, cluster),
        ("8 GPUs, 500 each, if it could be recorded", 8, 4000, replace(cluster, launch=0.0)),
    ):
        one = forecast(job, gpus, batch, here)
        rows.append(
            [words, f"{batch:,}", time_words(1e3 * one.step), long_time(one.epoch), share(one.efficiency), one.bound]
        )
    return table(("", "batch", "step", "epoch", "efficiency", "bound by"), rows, left=1, words=1)
