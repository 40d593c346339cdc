"""The benchmark compares like with like, and leaves a record and a page; how fast anything is, no test says."""

import json
from importlib.util import find_spec

import pytest
import torch
from PIL import Image

from vitlab.bench import bench
from vitlab.bench.contenders import CONTENDERS, Contender
from vitlab.bench.measure import Timing, take_turns
from vitlab.bench.pipeline import Steps, crop, flip, one_by_one, to_tensor
from vitlab.bench.record import Row, fastest_other, missing
from vitlab.bench.reports import loader
from vitlab.bench.shapes import SHAPES, Work
from vitlab.bench.training import noise
from vitlab.data.prepared import Normalise, describe, unit
from vitlab.errors import BadInput

BY_NAME = {contender.name: contender for contender in CONTENDERS}
LIBRARIES = ("timm", "transformers", "vit-pytorch")


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def stated_difference(name: str, work: Work) -> int:
    """Parameters that a contender has beyond vitlab's, by what its note says."""
    no_bias = -3 * work.width * work.depth
    if name == "vit-pytorch":  # norms before and after the patch embedding
        return no_bias + 2 * work.pixels + 2 * work.width
    if name == "the reports' style":
        return no_bias
    if name == "transformers" and not work.class_token:  # the token and its position
        return 2 * work.width
    return 0


@pytest.mark.parametrize("work", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.name)
def test_contenders_do_the_same_work(contender: Contender, work: Work) -> None:
    if not contender.installed:
        pytest.skip(f"{contender.package} is not installed")
    model = contender.build(work)
    assert count(model) == count(BY_NAME["vitlab"].build(work)) + stated_difference(contender.name, work)
    pictures = torch.randn(2, work.picture.channels, work.picture.height, work.picture.width)
    logits = model.train()(pictures)
    assert logits.shape == (2, work.classes)
    logits.square().sum().backward()
    # A library that reads one token may leave a bias that no gradient reaches at 0, but it never leaves it out.
    assert all(parameter.grad is not None for parameter in model.parameters())
    optimiser = contender.optimise(model)
    held = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    assert held == {id(parameter) for parameter in model.parameters()}
    optimiser.step()


def test_a_tiny_run_leaves_a_record_and_a_page(tmp_path, capsys) -> None:
    page = tmp_path / "docs" / "bench.md"
    threads = torch.get_num_threads()
    bench("all", rounds=1, shapes=("R1",), pictures=64, threads=1, device="cpu", out=tmp_path / "bench", page=page)
    assert torch.get_num_threads() == threads
    record = json.loads((tmp_path / "bench" / "all-cpu.json").read_text())
    assert record.keys() == {"name", "command", "device", "date", "versions", "config", "runs"}
    assert {"vitlab", "torch", "torchvision", *LIBRARIES} <= record["versions"].keys()
    assert record["config"]["settings"]["R1"]["width"] == 32
    rows = [Row(**run) for run in record["runs"]]
    names = [row.contender for row in rows if row.part == "training"]
    assert names == [*BY_NAME, "vitlab, whole loop step"]
    assert {row.part for row in rows} == {"training", "data, plain", "data, crop and flip", "epoch"}
    measured = [row for row in rows if row.ratio is not None]
    assert all(row.milliseconds > 0 and row.ratio > 0 and row.pictures_per_second > 0 for row in measured)
    assert [row.ratio for row in measured if row.contender == "vitlab"] == [1.0] * 4
    text = page.read_text(encoding="utf-8")
    for row in rows:
        assert f"| {' | '.join(row.cells())} |" in text
    printed = capsys.readouterr().out
    assert "nn.TransformerEncoder" in printed
    assert str(page.name) in printed
    for name in LIBRARIES:
        absent = f"not installed (pip install {name})"
        assert (absent in printed) == (absent in text) == (not BY_NAME[name].installed)


def test_a_library_that_is_not_there_is_listed(tmp_path, monkeypatch, capsys) -> None:
    nobody = Contender(
        "nobody", BY_NAME["vitlab"].build, BY_NAME["vitlab"].optimise, lambda work: "", "no-such-library"
    )
    for module in ("training", ""):
        monkeypatch.setattr(f"vitlab.bench.{module}".rstrip(".") + ".CONTENDERS", (CONTENDERS[0], nobody))
    page = tmp_path / "bench.md"
    bench("training", rounds=1, shapes=("R1",), threads=1, device="cpu", out=tmp_path / "bench", page=page)
    assert "nobody: not installed (pip install no-such-library)" in capsys.readouterr().out
    assert "not installed (pip install no-such-library) |" in page.read_text(encoding="utf-8")
    record = json.loads((tmp_path / "bench" / "training-cpu.json").read_text())
    assert record["versions"]["no-such-library"] == "not installed"


@pytest.mark.parametrize(
    ("given", "complaint"), [({"rounds": 0}, "rounds"), ({"threads": 0}, "threads"), ({"pictures": 63}, "pictures")]
)
def test_sizes_that_cannot_be_measured_are_refused(tmp_path, given: dict, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        bench("data", out=tmp_path, page=tmp_path / "bench.md", **given)
    assert not list(tmp_path.iterdir())


def test_a_ratio_compares_within_rounds() -> None:
    slow_machine_half_the_time = Timing((1.0, 10.0, 1.0, 10.0, 1.0))
    assert Timing((2.0, 20.0, 2.0, 20.0, 2.0)).ratio(slow_machine_half_the_time) == 2.0


def test_every_contender_gets_as_many_turns_and_each_begins() -> None:
    calls: list[str] = []
    timings = take_turns({name: lambda name=name: calls.append(name) for name in "abc"}, 3, 1, torch.device("cpu"))
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(timing.seconds) for name, timing in timings.items()} == {"a": 3, "b": 3, "c": 3}


def test_the_nearest_rival_is_named() -> None:
    rows = [Row("training", "R1", name, ratio=ratio) for name, ratio in (("vitlab", 1.0), ("x", 1.5), ("y", 0.9))]
    assert "y, at 0.90" in fastest_other([*rows, missing("training", "R1", "z", "z")])


@pytest.mark.parametrize("shape", ["R1", "R4"])
def test_both_data_paths_give_the_same_pictures(shape: str) -> None:
    work = SHAPES[shape]
    data = noise(work, 20)
    card = describe(data, data.train, data.test)
    ours = Normalise(card, torch.device("cpu"))(unit(data.train.pictures))
    pictures, _ = next(iter(loader(data.train, one_by_one(card, augmented=False), 20, 0)))
    # The loader shuffles; noise tells its pictures apart by any pixel.
    order = [int((ours - picture).abs().flatten(1).amax(dim=1).argmin()) for picture in pictures]
    assert sorted(order) == list(range(20))
    torch.testing.assert_close(pictures, ours[order])


def test_plain_transforms_crop_and_flip() -> None:
    picture = Image.fromarray(torch.arange(28 * 28).remainder(251).to(torch.uint8).view(28, 28).numpy())
    whole = to_tensor(picture)
    assert whole.shape == (1, 28, 28)
    seen = {tuple(Steps([flip, to_tensor])(picture).flatten()[:3].tolist()) for _ in range(50)}
    assert seen == {tuple(whole[0, 0, :3].tolist()), tuple(whole[0, 0].flip(0)[:3].tolist())}
    cropped = torch.stack([Steps([crop, to_tensor])(picture) for _ in range(20)])
    assert cropped.shape == (20, 1, 28, 28)
    assert not torch.equal(cropped[0], cropped[1:].mean(dim=0))


def test_torchvision_is_used_where_it_is_installed() -> None:
    work = SHAPES["R4"]
    data = noise(work, 10)
    transform = one_by_one(describe(data, data.train, data.test), augmented=True)
    assert type(transform).__module__.startswith("torchvision" if find_spec("torchvision") else "vitlab")
