"""Exponents, crossings and peak memory against cases worked out by hand; the page from made-up records."""

import json
import re
from pathlib import Path
from statistics import stdev
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from vitlab.bench import attention
from vitlab.bench.attention import EXPLICIT, FUSED, LINFORMER, AttentionCosts, Limits, expected, mixers
from vitlab.bench.fit import crossing, fit
from vitlab.bench.growth import AXES, BASES, Size, measure_growth
from vitlab.bench.memory import peak_bytes
from vitlab.bench.page import write_page
from vitlab.bench.parts import Attention, Growth
from vitlab.bench.plots import decades
from vitlab.bench.points import Point, curves
from vitlab.bench.sections import crossing_words, fit_words, memory_words, time_words
from vitlab.model.attention import Attention as Kinds
from vitlab.model.layout import Grid, Layout
from vitlab.sample import Sample
from vitlab.settings import kinds_of

CPU = torch.device("cpu")
SIZES = [2**power for power in range(6, 15)]
DOT = "{http://www.w3.org/2000/svg}circle"


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_an_exponent_is_found_again(power: float) -> None:
    found = fit({size: 3e-4 * size**power for size in SIZES})
    assert found is not None
    assert found.exponent == pytest.approx(power)
    assert found.margin == pytest.approx(0, abs=1e-9)
    assert (found.low, found.high, found.flat) == (1024, 16384, False)


def test_overhead_is_left_out_of_a_fit() -> None:
    found = fit({size: 1.0 if size < 4096 else (size / 2048) ** 2 for size in SIZES})
    assert found is not None
    assert (found.low, found.high, found.flat) == (4096, 16384, False)
    assert found.exponent == pytest.approx(2)
    level = fit({size: 1 + size * 1e-6 for size in SIZES})
    assert level is not None
    assert level.flat
    assert level.exponent < 0.1
    assert fit({64: 1.0, 128: 2.0}) is None
    assert fit({}) is None


def test_the_interval_of_an_exponent_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        found = fit({size: size**1.5 * float(np.exp(random.normal(0, 0.1))) for size in SIZES[-5:]})
        assert found is not None
        held += abs(found.exponent - 1.5) <= found.margin
    assert held / 400 == pytest.approx(0.95, abs=0.03)


def test_curves_cross_where_they_are_equal() -> None:
    linear, square = {n: 100.0 * n for n in SIZES}, {n: 0.1 * n * n for n in SIZES}
    found = crossing(linear, square)
    assert found is not None
    assert found.size == pytest.approx(1000)  # 100 n = 0.1 n²; between two sizes both are straight lines
    never, always = crossing(square, {n: 1.0 for n in SIZES}), crossing({n: 1.0 for n in SIZES}, square)
    assert never is not None
    assert always is not None
    assert (never.size, never.always, never.high) == (None, False, 16384)
    assert (always.size, always.always, always.low) == (None, True, 64)
    back_and_forth = crossing({1: 1.0, 2: 3.0, 4: 1.0}, {1: 2.0, 2: 2.0, 4: 2.0})
    assert back_and_forth is not None
    assert 2 < (back_and_forth.size or 0) < 4  # for good, not the first time
    assert crossing({1: 1.0}, {1: 2.0}) is None


def test_peak_memory_counts_what_is_alive_at_once() -> None:
    """e = exp x is kept for the backward (4 MB); beside it 2e (4 MB), then the gradients of 2e and of e (4 MB each)."""
    numbers = torch.ones(1000, 1000, requires_grad=True)

    def call() -> None:
        (numbers.exp() * 2).sum().backward()
        numbers.grad = None

    call()
    assert peak_bytes(call, CPU) == pytest.approx(12_000_000, abs=100)
    assert peak_bytes(lambda: [torch.ones(1000) for _ in range(3)], CPU) == 12_000
    assert peak_bytes(lambda: [torch.ones(1000).sum().item() for _ in range(3)], CPU) < 4_100


def costs(counts: tuple[int, ...], seconds: float = 20.0, memory: float = 1e9) -> AttentionCosts:
    return AttentionCosts(counts, 1, 16, 4, 1, Limits(seconds, memory), CPU)


def peak(kind: str, count: int) -> int:
    call = costs(()).call(mixers(16, 4)[kind], count)
    call()
    return peak_bytes(call, CPU)


def test_only_written_out_weights_and_masks_take_squares_of_memory() -> None:
    # The weights, their gradient before the softmax and after: each 4 heads × n² × 4 bytes.
    assert peak(EXPLICIT, 1024) == pytest.approx(3 * 4 * 1024**2 * 4, rel=0.06)
    assert peak(EXPLICIT, 1024) > 3.8 * peak(EXPLICIT, 512)
    assert peak("locality", 4096) > 10 * peak("locality", 1024)
    assert peak(FUSED, 4096) < 4.4 * peak(FUSED, 1024)
    for kind in (LINFORMER, "uniform"):
        assert 3.5 < peak(kind, 4096) / peak(kind, 1024) < 4.4


def test_every_kind_of_the_union_is_measured() -> None:
    found = [point for points in costs((64, 128)).measure() for point in points]
    assert {point.series for point in found} == {FUSED, EXPLICIT, *kinds_of(Kinds)} - {"softmax"}
    assert all(point.milliseconds > 0 and point.memory > 0 and not point.note for point in found)


def test_written_out_softmax_gives_what_the_fused_one_gives() -> None:
    made = [mixers(16, 4)[name](Layout(0, (Grid(8, 8),))) for name in (FUSED, EXPLICIT)]
    made[1].load_state_dict(made[0].state_dict())
    tokens = torch.randn(2, 64, 16)
    torch.testing.assert_close(made[0](tokens), made[1](tokens))


def test_a_point_beyond_the_limits_is_left_out_and_says_so() -> None:
    first, second, third = costs((128, 256, 512), memory=5e6).measure()
    reasons = [{point.series: point.note for point in points} for points in (first, second, third)]
    assert not any(reasons[0].values())
    assert "GB allowed" in reasons[2][EXPLICIT]
    assert not reasons[2][LINFORMER]
    (slow,) = (point for point in third if point.series == EXPLICIT)
    assert (slow.milliseconds, slow.memory) == (None, None)
    history = [Point("x", 64, 1000.0, 1.0, 100), Point("x", 128, 4000.0, 1.0, 200)]
    assert expected(history, 512) == (64.0, 800)
    assert "64 s a call expected, 20 s allowed" in costs((64,)).excess(history, 512)


def test_slow_calls_get_fewer_rounds(monkeypatch) -> None:
    asked = []

    def turns(calls: dict, rounds: int, repeats: int, device: torch.device) -> dict:
        asked.append(rounds)
        return {name: SimpleNamespace(seconds=(4.0,)) for name in calls}

    monkeypatch.setattr(attention, "take_turns", turns)
    many = AttentionCosts((64,), 1, 16, 4, 50, Limits(20, 1e9), CPU)
    assert many.time({"x": print}, {"x": 0.001})["x"].seconds == (4.0 / 20,)  # twenty calls in a burst
    assert many.time({"x": print}, {"x": 2.0})["x"].seconds == (4.0,)
    many.time({"x": print}, {"x": 19.0})
    assert asked == [50, 10, 3]


def test_growth_doubles_one_thing_at_a_time() -> None:
    base = Size(pictures=32, tokens=4, width=8, depth=1, batch=16)
    points = measure_growth(base, 1, 1, CPU)
    assert [(p.series, p.size) for p in points] == [
        ("pictures", 32), ("pictures", 64), ("tokens", 4), ("tokens", 8),
        ("width", 8), ("width", 16), ("depth", 1), ("depth", 2),
    ]  # fmt: skip
    assert len({p.milliseconds for p in points if p.size == getattr(base, p.series)}) == 1  # the base is timed once
    for tokens in (4, 8, 512):
        size = Size(8, tokens, 16, 1, 4)
        model = size.trained().model.build(size.picture, 10)
        assert model.layout.tokens == tokens


def test_figures_are_written_in_units_that_suit() -> None:
    assert [time_words(ms) for ms in (0.0123, 4.567, 999.9, 12345.0)] == ["12.3 µs", "4.57 ms", "1 s", "12.3 s"]
    assert [memory_words(count) for count in (500, 2.5e6, 3.21e9)] == ["0.5 kB", "2.5 MB", "3.21 GB"]
    assert decades(0.3, 20) == [0.2, 0.5, 1, 2, 5, 10, 20]
    assert decades(0.3, 4000) == [0.1, 1, 10, 100, 1000, 10000]


def record(name: str, config: dict, runs: list[dict]) -> dict:
    return {
        "name": name, "command": f"vitlab bench {name}", "device": "a made-up device",
        "date": "2026-11-16T10:00:00+00:00", "versions": {"vitlab": "0.1.0"},
        "config": {"threads": 2, "rounds": 5} | config, "runs": runs,
    }  # fmt: skip


def made_up_attention() -> list[Point]:
    linear = [Point(LINFORMER, n, 0.1 * n, 0.1 * n, 1000 * n) for n in SIZES]
    square = [Point(FUSED, n, 1e-4 * n * n, 1e-4 * n * n, 2000 * n) for n in SIZES]
    return [*linear, *square[:-1], Point(FUSED, 16384, note="left out: about 30 s a call expected, 20 s allowed")]


def page_of(tmp_path: Path, *records: dict) -> str:
    bench = tmp_path / "results" / "bench"
    bench.mkdir(parents=True, exist_ok=True)
    for one in records:
        (bench / f"{one['name']}.json").write_text(json.dumps(one))
    write_page(bench, tmp_path / "docs" / "performance.md")
    return (tmp_path / "docs" / "performance.md").read_text()


def test_the_page_says_what_made_up_records_say(tmp_path) -> None:
    config = {"batch": 1, "width": 64, "heads": 4, "precision": "float32"}
    runs = [vars(point) for point in made_up_attention()]
    sizes = vars(BASES["cpu"])
    grown = [vars(Point(axis, sizes[axis] * 2**i, 10.0 * 2**i, 9.0)) for axis in AXES for i in range(5)]
    growth = {"base": sizes, "words": "a small base", "setting": "float32 eager"}
    text = page_of(tmp_path, record("attention-cpu", config, runs), record("growth-cuda", growth, grown))
    assert "Linformer overtakes fused softmax at about 1,000 tokens." in text
    assert "In memory, Linformer is below fused softmax from 64 tokens on" in text
    assert "| linformer | 1.00 ± 0.00 (1,024 … 16,384) | 1.00 ± 0.00 (1,024 … 16,384) |" in text
    assert "| softmax, fused | 2.00 ± 0.00 (512 … 8,192) | 1.00 ± 0.00 (512 … 8,192) |" in text
    assert "| 16,384 | 1.64 s<br>16.4 MB | left out |" in text
    assert "softmax, fused at 16,384 tokens was left out: about 30 s" in text
    assert "### On a GPU (a made-up device)" in text
    assert "| width | 32: 10 ms | 64: 20 ms | 128: 40 ms | 256: 80 ms | 512: 160 ms | 1.00 ± 0.00 (64 … 512) |" in text
    assert text.count("Nothing is recorded yet.") == 5  # recipes, peers, roofline, data, inference
    charts = {path.name for path in (tmp_path / "docs/performance").iterdir()}
    assert charts == set(re.findall(r"\]\(performance/([^)]+)\)", text)) == {"attention-cpu.svg", "growth-cuda.svg"}
    drawn = ElementTree.parse(tmp_path / "docs/performance/attention-cpu.svg")
    assert len(drawn.findall(f".//{DOT}")) == 2 * (2 * len(SIZES) - 1)


def test_a_chart_without_a_record_goes(tmp_path) -> None:
    config = {"batch": 1, "width": 64, "heads": 4, "precision": "float32"}
    page_of(tmp_path, record("attention-cpu", config, [vars(point) for point in made_up_attention()]))
    (tmp_path / "results/bench/attention-cpu.json").unlink()
    assert "attention-cpu.svg" not in page_of(tmp_path)
    assert not list((tmp_path / "docs/performance").iterdir())


def test_what_others_put_beside_the_charts_stays(tmp_path) -> None:
    charts = tmp_path / "docs/performance"
    charts.mkdir(parents=True)
    for name in ("logo.svg", "attention-tpu.svg", "growth-tpu.svg"):
        (charts / name).write_text("drawn before")
    config = {"batch": 1, "width": 64, "heads": 4, "precision": "float32"}
    page_of(tmp_path, record("attention-cpu", config, [vars(point) for point in made_up_attention()]))
    assert {path.name for path in charts.iterdir()} == {"logo.svg", "attention-cpu.svg"}
    assert (charts / "logo.svg").read_text() == "drawn before"


def test_recipes_are_shown_with_their_spread(tmp_path) -> None:
    accuracies = [0.9410, 0.9425, 0.9380]
    runs = [
        {"seed": i, "test_accuracy": a, "train_seconds": 100.0 + i, "compile_seconds": 7.0, "epochs": 9,
         "images_per_second": 2000.0}
        for i, a in enumerate(accuracies)
    ]  # fmt: skip
    mirrored = [run | {"mirrored_accuracy": run["test_accuracy"] + 0.005} for run in runs]
    (tmp_path / "results/records").mkdir(parents=True)
    for name, objective, kept in (
        ("cifar10-fast", "supervised", mirrored), ("one-seed", "supervised", runs[:1]), ("unlabelled", "mae", runs)
    ):  # fmt: skip
        config = {"objective": {"kind": objective}}
        (tmp_path / f"results/records/{name}.json").write_text(json.dumps(record(name, config, kept)))
    text = page_of(tmp_path)
    assert "unlabelled" not in text
    sample = Sample(tuple(100 * a for a in accuracies))
    assert (
        f"| `cifar10-fast` | 3 | **94.05 ± {sample.margin:.2f} %** | {stdev(sample.values):.2f} | 93.80 % | 94.10 % "
        "| 94.55 % | 9 | 101.0 s | 7 s | 2,000 | a made-up device | 2026-11-16 |"
    ) in text
    assert "| `one-seed` | 1 | **94.10 %** |  | 94.10 % | 94.10 % |  |" in text


def test_small_runs_of_attention_and_growth_leave_their_records(tmp_path, monkeypatch, capsys) -> None:
    from vitlab.bench import bench  # noqa: PLC0415 (the verb, not its modules)

    monkeypatch.setitem(BASES, "cpu", Size(pictures=32, tokens=4, width=8, depth=1, batch=16))
    common = {"threads": 1, "device": "cpu", "out": tmp_path / "results/bench", "page": tmp_path / "performance.md"}
    bench(Attention(rounds=1, tokens=(64, 8, 16), width=8, heads=2, **common))
    bench(Growth(rounds=1, doublings=2, **common))
    kept = json.loads((tmp_path / "results/bench/attention-cpu.json").read_text())
    assert kept["config"]["tokens"] == [8, 16, 64]
    assert (kept["config"]["batch"], kept["config"]["precision"]) == (1, "float32")
    assert {run["series"] for run in kept["runs"]} == set(mixers(8, 2))
    assert len(json.loads((tmp_path / "results/bench/growth-cpu.json").read_text())["runs"]) == 12
    text, printed = (tmp_path / "performance.md").read_text(), capsys.readouterr().out
    points = [Point(**run) for run in kept["runs"]]
    assert crossing_words(points) in text
    assert crossing_words(points) in printed
    assert f"exponent of time {fit_words(curves(points, 'milliseconds')['uniform'])}" in printed
