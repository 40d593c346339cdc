"""The benchmark compares like with like, and leaves a record and a page; how fast anything is, no test says."""

import json
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from PIL import Image

import vitlab
from vitlab.bench import bench, measure
from vitlab.bench.contenders import CONTENDERS, Contender
from vitlab.bench.measure import Timing, take_turns
from vitlab.bench.parts import All, Attention, Common, Data, Growth, Inference, Peers, Roofline, Scale
from vitlab.bench.pipeline import Steps, crop, flip, noise, one_by_one, to_tensor
from vitlab.bench.record import Row, fastest_other, missing
from vitlab.bench.reports import Loading, loader
from vitlab.bench.roofline import Bound, kind_of, of_whole_pictures
from vitlab.bench.runners import LOOP, Runner, choose, lean, optimiser_of
from vitlab.bench.settings import Setting, candidates, training_of
from vitlab.bench.shapes import SHAPES, Work
from vitlab.data.prepared import Normalise, describe, unit
from vitlab.engine.compiler import compiler_trouble
from vitlab.engine.cost import flops
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
    best = optimiser_of(contender, model, "best")
    assert isinstance(best, torch.optim.AdamW)
    assert all(group["fused"] for group in best.param_groups)


@pytest.mark.parametrize("name", ["R1", "R4", "tiny"])
def test_lean_blocks_make_the_same_products_with_fewer_weights(name) -> None:
    work = SHAPES[name]
    plain, spare = (model.build(work.picture, work.classes) for model in (work.settings(), lean(work.settings())))
    assert flops(spare) == flops(plain)
    weights = [sum(parameter.numel() for parameter in network.parameters()) for network in (plain, spare)]
    blocks = 4 * work.width + 3 * work.width + work.width + work.hidden + work.width  # norms, then biases
    assert weights[0] - weights[1] == work.depth * blocks + 2 * work.width


def test_a_tiny_run_leaves_records_and_a_page(tmp_path, capsys) -> None:
    page = tmp_path / "docs" / "performance.md"
    common = {"rounds": 1, "threads": 1, "device": "cpu", "out": tmp_path / "bench", "page": page}
    threads = torch.get_num_threads()
    bench(Peers(shapes=("R1",), settings=("users",), pictures=64, **common))
    bench(Data(pictures=64, **common))
    assert torch.get_num_threads() == threads
    records = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "bench").iterdir()}
    assert records.keys() == {"peers-r1-users-cpu", "data-cpu"}
    peers = records["peers-r1-users-cpu"]
    assert peers.keys() == {"name", "command", "device", "date", "versions", "config", "runs"}
    assert {"vitlab", "torch", "torchvision", *LIBRARIES} <= peers["versions"].keys()
    assert peers["config"]["settings"]["R1"]["width"] == 32
    rows = [Row(**run) for record in records.values() for run in record["runs"]]
    assert {row.contender for row in rows if row.part == "training"} == {LOOP, *BY_NAME}
    assert {row.contender for row in rows if row.part == "epoch"} == {LOOP, *BY_NAME} - {"vitlab"}
    assert {row.part for row in rows} == {"training", "data, plain", "data, crop and flip", "epoch"}
    measured = [row for row in rows if row.ratio is not None]
    assert all(row.milliseconds > 0 and row.ratio > 0 and row.pictures_per_second > 0 for row in measured)
    base = {"training": "vitlab", "epoch": LOOP}
    assert all(row.ratio == 1.0 for row in measured if row.contender == base.get(row.part, "vitlab"))
    text, printed = page.read_text(encoding="utf-8"), capsys.readouterr().out
    for row in rows:
        assert f"| {row.contender} | " in text
        assert row.cells()[2] in text
    assert "nn.TransformerEncoder" in printed
    assert str(page.name) in printed
    for name in LIBRARIES:
        absent = f"not installed (pip install {name})"
        assert (absent in printed) == (absent in text) == (not BY_NAME[name].installed)


def test_a_library_that_is_not_there_is_listed(tmp_path, monkeypatch, capsys) -> None:
    nobody = Contender(
        "nobody", BY_NAME["vitlab"].build, BY_NAME["vitlab"].optimise, lambda work: "", "no-such-library"
    )
    for module in (".peers", ""):
        monkeypatch.setattr(f"vitlab.bench{module}.CONTENDERS", (CONTENDERS[0], nobody))
    page = tmp_path / "bench.md"
    users = Peers(1, "cpu", tmp_path / "bench", page, rounds=1, shapes=("R1",), settings=("users",), pictures=64)
    bench(users)
    assert "nobody: not installed (pip install no-such-library)" in capsys.readouterr().out
    assert "not installed (pip install no-such-library) |" in page.read_text(encoding="utf-8")
    record = json.loads((tmp_path / "bench" / "peers-r1-users-cpu.json").read_text())
    assert record["versions"]["no-such-library"] == "not installed"


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        (Peers(rounds=0), "rounds"),
        (All(threads=0), "threads"),
        (Peers(pictures=63), "pictures"),
        (Peers(shapes=("small",), pictures=1000), "from 1024"),
        (Peers(settings=()), "users, best"),
        (Data(pictures=63), "pictures"),
        (Attention(tokens=(1, 64)), "tokens"),
        (Attention(heads=3), "3 heads"),
        (Attention(memory=0.0), "memory"),
        (Growth(doublings=0), "doublings"),
        (Growth(device="abacus"), "abacus"),
        (Scale(kinds=("wide", "wide")), "2 kinds or more"),
        (Scale(exchanged=0.001), "0.017 MB"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path, monkeypatch, part: Common, complaint: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=complaint):
        bench(part)
    assert not list(tmp_path.iterdir())


def test_all_passes_on_what_it_is_told(tmp_path) -> None:
    parts = All(1, "cpu", tmp_path, tmp_path / "page.md", rounds=10).parts()
    assert [type(part) for part in parts] == [Peers, Attention, Growth, Data, Roofline, Scale, Inference]
    assert {(part.threads, part.device, part.out, part.page) for part in parts} == {
        (1, "cpu", tmp_path, tmp_path / "page.md")
    }
    assert [part.rounds for part in parts] == [10, 5, 2, 2, 2, 2, 2]


CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def ring_of(work: Work) -> SimpleNamespace:
    return SimpleNamespace(work=work, device=CPU)


def test_the_fastest_setting_is_chosen_and_a_failure_is_told(monkeypatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def work_for(setting: Setting) -> None:
        clock.now += seconds[setting]

    seconds = {Setting(): 0.003, Setting("bfloat16"): 0.001, Setting("float32", True): None}

    def make(setting: Setting, manner: str) -> Runner:
        if seconds[setting] is None:
            raise RuntimeError("no compiler\nand a long story")
        return Runner("x", manner, setting, 1, "", partial(work_for, setting), lambda _: print)

    chosen, words = choose(make, tuple(seconds), ring_of(SHAPES["R4"]))
    assert chosen.setting == Setting("bfloat16")
    assert "float32 eager 3" in words
    assert "float32 compiled: fails (no compiler and a long story)" in words
    with pytest.raises(BadInput, match="no compiler"):
        choose(make, (Setting("float32", True),), ring_of(SHAPES["R4"]))
    seconds |= {Setting("bfloat16", True, True): None, Setting("bfloat16", True): 0.0001}
    chosen, words = choose(make, (Setting("bfloat16"), Setting("bfloat16", True, True)), ring_of(SHAPES["R4"]))
    assert chosen.setting == Setting("bfloat16", True), "compiled, though it cannot be recorded"
    assert "bfloat16 compiled + CUDA graph: fails" in words


def test_without_a_compiler_nothing_compiled_is_tried(monkeypatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("No working C++ compiler found\nin 3 places")

    monkeypatch.setattr(torch, "compile", broken)
    assert compiler_trouble.__wrapped__("cpu") == "No working C++ compiler found in 3 places"
    for trouble, tried in ((None, 4), ("none", 2)):
        monkeypatch.setattr("vitlab.bench.settings.compiler_trouble", lambda device, trouble=trouble: trouble)
        assert len(set(candidates(CPU, loop=False))) == tried
    assert candidates(CUDA, loop=False) == (Setting("bfloat16"),)
    assert candidates(CUDA, loop=True) == (Setting("bfloat16"), Setting("bfloat16", recorded=True))


def test_a_setting_becomes_vitlabs_own() -> None:
    training = training_of(32, Setting("bfloat16", compiled=True), 7)
    assert (training.batch, training.epochs, training.precision) == (32, 7, "bfloat16")
    assert (training.compile, training.graph) == (True, False)
    assert training_of(32, Setting(recorded=True), 7).graph


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
    pictures, _ = next(iter(loader(data.train, one_by_one(card, augmented=False), 20, Loading())))
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


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("nvjet_sm90_tst_192x192_64x4_1x2_h_bz_coopB_TNN", "products"),
        ("void cublasLt::splitKreduce_kernel<32, 16>", "products"),
        ("aten::addmm", "products"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16", "attention"),
        ("void cudnn::fusion::compute_dot_do_o_specialized<true, 64>", "attention"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "convolutions"),
        ("aten::mkldnn_convolution", "convolutions"),
        ("triton_red_fused_convolution_backward_native_group_norm_5", "memory"),
        ("void at::native::vectorized_elementwise_kernel<8>", "memory"),
    ],
)
def test_kernels_are_told_apart_by_their_names(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind


def test_a_roofline_is_of_whole_pictures() -> None:
    """Its arithmetic is counted for these, so that a step of parts would look faster than the device is."""
    plain = vitlab.recipe("digits")
    assert of_whole_pictures(vitlab.override(plain, ["window=0.5"])) == plain
    assert of_whole_pictures(vitlab.recipe("digits-dino")) == vitlab.recipe("digits-dino")


def test_the_roofline_of_a_recipe_is_kept_and_shown(tmp_path) -> None:
    settings = ("width=16", "depth=1", "patch=14", "tokens=conv-patches", "batch=50", "limit=200", "rotate=0")
    bench(Roofline(recipe="digits", settings=settings, rounds=2, out=tmp_path, page=tmp_path / "page.md", device="cpu"))
    (path,) = tmp_path.glob("*.json")
    (run,) = json.loads(path.read_text())["runs"]
    bound = Bound(**run)
    assert bound.pictures_per_second == pytest.approx(50 / bound.milliseconds * 1e3, rel=1e-3)
    assert bound.step_flops == 3 * bound.flops
    assert bound.rate == pytest.approx(bound.step_flops * bound.pictures_per_second / 1e12, rel=1e-3)
    assert 0 < bound.share < 1
    assert sum(bound.kernels.values()) > 0.2 * bound.fastest
    assert 0 < sum(taken for _, _, taken in bound.longest) <= 1.001 * sum(bound.kernels.values())
    assert [taken for _, _, taken in bound.longest] == sorted((row[2] for row in bound.longest), reverse=True)
    assert bound.longest[0][0] in (tmp_path / "page.md").read_text()
    assert bound.recipe in (tmp_path / "page.md").read_text()
    with pytest.raises(BadInput, match="no recipe"):
        bench(Roofline(recipe="digitz", out=tmp_path, page=tmp_path / "page.md", device="cpu"))
