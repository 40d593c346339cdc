"""The model of step time against hand-worked cases, a ring that is played through, and figures it must find again."""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from vitlab.bench import bench
from vitlab.bench.forecast import Cluster, Job, forecast, model_of, on_imagenet
from vitlab.bench.measure import Neighbours
from vitlab.bench.pair import Pair, Timed
from vitlab.bench.parts import Scale
from vitlab.bench.scale import APART, CPU, KINDS, MEMORY, ONE, TWO, Kind, Took, cells, plan_in
from vitlab.bench.scale_page import Scaled, fill_scale
from vitlab.bench.settings import Setting
from vitlab.bench.steptime import (
    Fitted,
    Line,
    Link,
    buckets,
    exposed,
    fit,
    fit_line,
    fit_link,
    held_out,
    ring,
    two_rings,
)
from vitlab.engine.team import ALONE, Team
from vitlab.errors import BadInput
from vitlab.marks import filled
from vitlab.model import Shape

ROOT = Path(__file__).resolve().parent.parent
MIB = 2**20


def played(count: int, size: float, link: Link) -> float:
    """Seconds of a ring all-reduce, message by message; the sums are checked on the way."""
    own = np.random.default_rng(0).integers(0, 100, (count, count))  # one number stands for each n-th of the bytes
    held, taken = own.copy(), 0.0
    for turn in range(2 * (count - 1)):
        sent = [(rank, (rank - turn) % count, held[rank, (rank - turn) % count]) for rank in range(count)]
        for rank, part, value in sent:
            right = (rank + 1) % count
            held[right, part] = value + held[right, part] if turn < count - 1 else value
        taken += link.latency + size / count / link.bandwidth
    assert (held == own.sum(axis=0)).all()
    return taken


@pytest.mark.parametrize("count", [2, 3, 8])
def test_a_ring_takes_what_its_messages_take(count: int) -> None:
    link = Link(2e-5, 3e9)
    assert ring(count, 1e8, link) == pytest.approx(played(count, 1e8, link))
    assert ring(1, 1e8, link) == 0


def test_two_rings_by_hand() -> None:
    inside, between = Link(1e-6, 100e9), Link(1e-5, 10e9)
    # 8 in a node: 14/8 of 0.8 GB at 100 GB/s and 14 µs; 4 nodes: 6/4 of an eighth at 10 GB/s and 60 µs.
    assert two_rings(8, 0.8e9, inside, between) == pytest.approx(0.014 + 14e-6)
    assert two_rings(32, 0.8e9, inside, between) == pytest.approx(0.014 + 14e-6 + 0.015 + 60e-6)


def test_buckets_and_what_they_hide() -> None:
    assert buckets(MIB // 2) == [MIB // 2]
    assert buckets(60 * MIB) == [MIB, 25 * MIB, 25 * MIB, 9 * MIB]
    assert buckets(26 * MIB) == [MIB, 25 * MIB]
    assert exposed([1.0, 2.0, 0.5], compute=3.0, hidden=0.0) == 3.5
    assert exposed([1.0, 2.0, 0.5], compute=3.0, hidden=0.5) == 2.5  # half of a backward pass of 2
    assert exposed([1.0, 2.0, 0.5], compute=30.0, hidden=1.0) == 0.5  # the last one never hides
    assert exposed([4.0], compute=30.0, hidden=1.0) == 4.0


def test_a_line_is_that_of_weighted_least_squares() -> None:
    random = np.random.default_rng(0)
    sizes = np.array([8, 16, 32, 64, 128])
    seconds = (0.03 + 0.002 * sizes) * random.normal(1, 0.05, 5)
    each, fixed = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    found = fit_line(list(zip(sizes.tolist(), seconds.tolist(), strict=True)))
    assert (found.fixed, found.each) == (pytest.approx(fixed), pytest.approx(each))
    assert fit_line([(1, 1.0), (2, 3.0), (4, 9.0)]).fixed == 0.0
    level = fit_line([(1, 3.0), (2, 2.0), (4, 1.0)])
    assert level.each == 0.0
    assert fit_link([(1, 3.0), (2, 2.0), (4, 1.0)]) == Link(level.fixed / 2, math.inf)
    again = fit_link([(size, ring(4, size, Link(1e-3, 1e9))) for size in (1000, 10**6, 10**9)], count=4)
    assert (again.latency, again.bandwidth) == (pytest.approx(1e-3), pytest.approx(1e9))


TRUE = Fitted(
    {"few": Line(0.01, 1e-3), "many": Line(0.05, 4e-3), "large": Line(0.02, 2e-3)},
    {"few": Line(0.0, 1e-5), "many": Line(0.0, 1e-5), "large": Line(0.001, 1e-3)},
    Link(1e-4, 2e9),
    1.15,
    1.5,
    0.2,
    {"few": 10**5, "many": 6 * 10**7, "large": 10**8},
)


def made_up(noise: float) -> list[Took]:
    """What a machine would show of which the model is true."""
    random = np.random.default_rng(1)
    steps = [
        ("step", kind, way, size, TRUE.step(kind, way, size))
        for kind in TRUE.compute for way in (ONE, APART, TWO) for size in (16, 32, 64)
    ]  # fmt: skip
    steps += [("input", kind, MEMORY, size, line.at(size)) for kind, line in TRUE.input.items() for size in (16, 64)]
    steps += [("all-reduce", "", TWO, size, ring(2, size, TRUE.link)) for size in (4096, 10**6, 6 * 10**7)]
    return [Took(*cell, 1e3 * took * random.normal(1, noise), 0.0, 0.0) for *cell, took in steps]


def test_what_made_the_figures_is_found_again() -> None:
    exact = fit(made_up(0.0), TRUE.gradients)
    assert exact.slowdown == pytest.approx(1.15)
    assert (exact.handling, exact.hidden) == (pytest.approx(1.5), pytest.approx(0.2))
    assert exact.link.bandwidth == pytest.approx(2e9)
    assert exact.compute["many"].each == pytest.approx(4e-3)
    assert max(abs(error) for errors in held_out(made_up(0.0), TRUE.gradients).values() for error in errors) < 1e-6
    noisy = fit(made_up(0.02), TRUE.gradients)
    assert noisy.slowdown == pytest.approx(1.15, rel=0.03)
    assert noisy.link.bandwidth == pytest.approx(2e9, rel=0.1)
    assert noisy.handling == pytest.approx(1.5, abs=0.5)
    assert noisy.hidden == pytest.approx(0.2, abs=0.25)


def test_what_is_held_out_is_not_learned_from() -> None:
    """Of a kind that two processes slow down twice as much as the others, the others know nothing."""
    odd = [
        Took(**asdict(took) | {"milliseconds": 2 * took.milliseconds})
        if took.work == "few" and took.way != ONE
        else took
        for took in made_up(0.0)
        if took.part == "step"
    ] + [took for took in made_up(0.0) if took.part != "step"]
    apart = held_out(odd, TRUE.gradients)
    assert apart["few"] == [pytest.approx(-0.5, abs=0.02)] * 3
    assert fit(odd, TRUE.gradients).slowdown == pytest.approx(1.2778, abs=1e-4)  # Σr / Σr² of 3 at 1/2.3, 6 at 1/1.15


JOB = Job("a model", rate=1000.0, parameters=25 * MIB // 4, pictures=10_000, bytes=1000)


def test_a_forecast_by_hand() -> None:
    cluster = Cluster(Link(1e-4, 1e9), Link(1e-3, 1e8), 8, 0.0, launch=0.01, gathered=1e6)
    alone = forecast(JOB, 1, 100, cluster)
    assert (alone.compute, alone.exchange, alone.gather) == (0.1, 0.0, 0.1)
    assert (alone.step, alone.bound) == (pytest.approx(0.11), "input")  # the host: 10 ms to launch, 100 ms to gather
    two = forecast(JOB, 2, 400, Cluster(Link(1e-4, 1e9), Link(1e-3, 1e8), 8, 0.0, launch=0.01, gathered=1e9))
    assert two.exchange == pytest.approx(25 * MIB / 1e9 + 4e-4)  # two buckets, each with a latency there and back
    assert two.step == pytest.approx(0.2 + two.exchange)
    assert two.epoch == pytest.approx(25 * two.step)
    assert two.efficiency == pytest.approx(0.2 / two.step)
    assert two.bound == "compute"
    assert forecast(JOB, 2, 4, cluster).bound == "exchange"
    assert forecast(JOB, 8, 8, Cluster(gathered=1e9)).bound == "batch too small"
    for fetched, taken in (
        (1e9, 0.8),
        (1e5, 1.0),
    ):  # the eight of a node share a disk; or one waits for pages
        cold = forecast(JOB, 16, 1600, Cluster(gathered=1e9, fetched=fetched, disk=1e6, cached=False))
        assert cold.gather == pytest.approx(taken)


def test_models_of_the_forecast_are_those_that_everybody_means() -> None:
    """The weights of timm's vit_small_patch16_224 and vit_base_patch16_224; 4.6 and 17.6 billion multiply-adds."""
    assert [model_of(name)[1] for name in ("ViT-S/16", "ViT-B/16")] == [22_050_664, 86_567_656]
    for name, published in (("ViT-S/16", 2 * 4.6e9), ("ViT-B/16", 2 * 17.6e9)):
        assert 0.9 < model_of(name)[0] / published < 1  # the last block works for one token alone
    assert on_imagenet("ViT-S/16").rate == pytest.approx(241e12 / 3 / model_of("ViT-S/16")[0])


def test_other_programs_are_noticed() -> None:
    """A process that is not ours keeps a core busy; what we use ourselves is not counted."""
    neighbours, before = Neighbours(), time.process_time()
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    time.sleep(0.6)
    own = time.process_time() - before
    busy.kill()
    busy.wait()
    assert neighbours.cores(own) > 0.3
    assert neighbours.cores(own + 1e6) == 0


def sums(plan: str, team: Team) -> dict[str, Timed]:
    """What each of a pair can be asked in the test below: it answers with figures that are no seconds."""
    kind, folder, loops = KINDS["small"], Path(plan) / str(team.rank), {}
    for name, batch, who in (("together", 2 * kind.least, team), ("alone", kind.least, ALONE)):
        torch.manual_seed(team.rank)  # each has pictures of its own
        loops[name] = kind.trained(batch).loop(Setting(), folder, CPU, who)

    def learned(name: str, repeats: int) -> float:
        loop = loops[name]
        for _ in range(repeats):
            loop.train_step(torch.arange(loop.batch)[loop.own])
        return sum(float(weight.detach().double().sum()) for weight in loop.session.parameters)

    return {
        "rank": lambda repeats: float(team.rank),
        "threads": lambda repeats: float(torch.get_num_threads()),
        "die": lambda repeats: os._exit(1),
        "together": lambda repeats: learned("together", repeats),
        "alone": lambda repeats: learned("alone", repeats),
    }


def test_a_pair_learns_together_and_apart_and_says_when_one_is_gone(tmp_path) -> None:
    with Pair(sums, str(tmp_path), tmp_path) as pair:
        pair.wait()
        assert pair.seconds("rank", (0, 1), 1, 1)[0] == 1.0
        assert pair.seconds("rank", (0,), 1, 1)[0] == 0.0
        assert pair.seconds("threads", (1,), 2, 1)[0] == 2.0
        for name, alike in (("together", True), ("alone", False)):
            for rank in (0, 1):
                pair.pipes[rank].send((name, 1, 2))
            (first, used), (second, _) = pair.answer(0), pair.answer(1)
            assert (first == second) == alike
            assert used > 0
        with pytest.raises(BadInput, match="has died"):
            pair.seconds("die", (1,), 1, 1)
        processes = pair.processes
    assert all(process.exitcode is not None for process in processes)


def test_a_tiny_run_leaves_a_record_and_fills_the_pages(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("vitlab.bench.scale.BURST", 0.001)
    kinds = {"small": Kind(Shape(1, 8, 8), 4, 8, 1, 4), "large-pictures": Kind(Shape(3, 16, 16), 4, 8, 1, 4)}
    for name, kind in kinds.items():
        monkeypatch.setitem(KINDS, name, kind)
    docs, results = tmp_path / "docs", tmp_path / "results"
    (results / "records").mkdir(parents=True)
    docs.mkdir()
    for path in ("docs/scale.md", "docs/tour.md", "results/records/cifar10-fast.json"):
        shutil.copy(ROOT / path, tmp_path / path)
    common = {"threads": 1, "device": "cpu", "out": results / "bench", "page": docs / "performance.md"}
    bench(Scale(rounds=1, kinds=tuple(kinds), exchanged=0.02, stored=0.1, **common))
    record = json.loads((results / "bench/scale-cpu.json").read_text())
    assert record.keys() == {"name", "command", "device", "date", "versions", "config", "runs"}
    found = [Took(**run) for run in record["runs"]]
    wanted = list(cells(plan_in(str(tmp_path), kinds, 20_000, 100_000)))
    assert [(one.part, one.work, one.way, one.size) for one in found] == [
        (one.part, one.work, one.way, one.size) for one in wanted
    ]
    assert all(0 < one.low <= one.milliseconds <= one.high for one in found)
    # Patches of 16 and of 48 numbers; 4 positions and 16; a block of 12·8² + 13·8 weights, the last norm, 10 classes.
    rest = 12 * 64 + 13 * 8 + 2 * 8 + 90
    weights = {"small": 16 * 8 + 8 + 4 * 8 + rest, "large-pictures": 48 * 8 + 8 + 16 * 8 + rest}
    assert {name: kind["gradients"] // 4 for name, kind in record["config"]["kinds"].items()} == weights
    fill_scale(results / "bench", docs)
    text, scaled = (docs / "scale.md").read_text(), Scaled.read(record)
    assert "other programs kept" in text
    for others, warned in ((0.1, False), (0.3, True)):
        config = record["config"] | {"others": others}
        assert ("measure again" in Scaled.read(record | {"config": config}).source()) == warned
    assert all(f"| {kind} | " in text for kind in kinds)
    assert "| wide | " not in text
    assert scaled.access() in (docs / "tour.md").read_text()
    assert (docs / "scale/steps.svg").read_text().count("<circle") == 2 * 3 + 2 * 2
    assert "two processes are" in capsys.readouterr().out


def test_marks_are_filled_and_never_missed() -> None:
    text = "a\n<!-- one -->\nold\n<!-- end of one -->\nb\n<!-- one more -->\n<!-- end of one more -->\n"
    assert filled(text, {"one": "new", "one more": "x\ny\n"}) == (
        "a\n<!-- one -->\nnew\n<!-- end of one -->\nb\n<!-- one more -->\nx\ny\n<!-- end of one more -->\n"
    )
    with pytest.raises(AssertionError, match="'two' are there 0 times"):
        filled(text, {"two": ""})
