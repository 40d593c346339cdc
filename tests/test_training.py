"""Settings of training that change what is written down, or how fast it goes, and not what is learned."""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kinds import refusal
from loops import loop_of, pictures_of, small, stop_after, trained
from safetensors.torch import load_file

import vitlab
from vitlab.data import DataSet, Part
from vitlab.data.prepared import Normalise, Prepared, describe, unit
from vitlab.engine.compiler import compiler_trouble
from vitlab.engine.loop import Diverged, Loop, Stopped
from vitlab.engine.progress import Progress
from vitlab.engine.storage import read_tensors
from vitlab.lab import train_in

EPOCHS = "epochs=5"
CPU = torch.device("cpu")


def same_weights(one: vitlab.Run, other: vitlab.Run) -> bool:
    ours, theirs = load_file(one.weights), load_file(other.weights)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture(scope="module")
def each_epoch(tmp_path_factory) -> vitlab.Run:
    """A run of five epochs, each measured."""
    run = trained(small(EPOCHS, "block.dropout=0.1", "seed=3"), tmp_path_factory.mktemp("each"), tested=50)
    assert [line["epoch"] for line in run.metrics()] == [1, 2, 3, 4, 5]
    return run


@pytest.mark.parametrize(
    ("every", "spans"), [(2, [(1, 2), (3, 4), (5,)]), (3, [(1, 2, 3), (4, 5)]), (9, [(1, 2, 3, 4, 5)])]
)
def test_a_measurement_is_the_mean_over_the_epochs_since_the_last(tmp_path, each_epoch, every, spans) -> None:
    run = trained(small(EPOCHS, "block.dropout=0.1", "seed=3", f"measure={every}"), tmp_path, tested=50)
    single = {line["epoch"]: line for line in each_epoch.metrics()}
    assert [line["epoch"] for line in run.metrics()] == [span[-1] for span in spans]
    for line, span in zip(run.metrics(), spans, strict=True):
        for name in ("loss", "accuracy"):
            mean = sum(single[epoch][name] for epoch in span) / len(span)
            assert line[name] == pytest.approx(mean, rel=1e-12)
        last = single[span[-1]]
        for name in ("step", "learning_rate", "validation_loss", "validation_accuracy"):
            assert line[name] == last[name], "what is of a moment is of the last epoch's end"
    assert same_weights(run, each_epoch)
    assert run.result["test_loss"] == each_epoch.result["test_loss"]


@pytest.mark.parametrize("steps", [3, 4, 8, 14])
def test_a_run_stopped_between_two_measurements_still_means_over_both_sides(tmp_path, steps: int) -> None:
    experiment = small(EPOCHS, "measure=2")
    whole = trained(experiment, tmp_path / "whole", tested=50)
    stop_after(steps, loop_of(experiment, tmp_path / "stopped", tested=50))
    stopped = trained(experiment, tmp_path / "stopped", tested=50)
    assert same_weights(stopped, whole)
    for name in ("epoch", "step", "loss", "accuracy", "validation_loss"):
        assert [line[name] for line in stopped.metrics()] == [line[name] for line in whole.metrics()]


def test_a_graph_changes_nothing_on_the_cpu(tmp_path, each_epoch) -> None:
    run = trained(small(EPOCHS, "block.dropout=0.1", "seed=3", "graph=yes"), tmp_path, tested=50)
    assert run.experiment.training.graph
    assert same_weights(run, each_epoch)
    assert [line["loss"] for line in run.metrics()] == [line["loss"] for line in each_epoch.metrics()]


def test_tf32_gives_the_bits_of_float32_on_the_cpu(tmp_path, each_epoch) -> None:
    plain = trained(small(EPOCHS, "block.dropout=0.1", "seed=3", "precision=float32"), tmp_path / "plain", tested=50)
    rounded = trained(small(EPOCHS, "block.dropout=0.1", "seed=3", "precision=tf32"), tmp_path / "tf32", tested=50)
    assert same_weights(plain, rounded)
    assert same_weights(plain, each_epoch), "auto is float32 there"
    assert rounded.result["test_loss"] == plain.result["test_loss"]


@pytest.fixture(params=["highest", "medium"])
def set_before(request) -> Iterator[str]:
    """What the caller had chosen for products of float32 matrices."""
    original = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    yield request.param
    torch.set_float32_matmul_precision(original)


class Watched(Progress):
    """Notes the precision of products at each step, and presses Ctrl-C at one of them."""

    def __init__(self, interrupt_at: int | None = None):
        super().__init__(epochs=2, quiet=True)
        self.interrupt_at = interrupt_at
        self.seen: set[str] = set()

    def step(self, step: int, measure: Callable[[], object]) -> None:
        self.seen.add(torch.get_float32_matmul_precision())
        if step == self.interrupt_at:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(("precision", "used"), [("tf32", "highest"), ("float32", "highest")])
@pytest.mark.parametrize("ending", ["finished", "stopped", "diverged"])
def test_the_precision_of_products_is_put_back_however_a_run_ends(
    tmp_path, set_before: str, precision: str, used: str, ending: str
) -> None:
    extra = ("learning_rate=1e30", "clip=0", "warmup=0") if ending == "diverged" else ()
    experiment = small(f"precision={precision}", *extra)
    begun = loop_of(experiment, tmp_path, tested=50)
    watched = Watched(interrupt_at=3 if ending == "stopped" else None)
    loop = Loop(begun.run, experiment, begun.data, CPU, watched)
    if ending == "finished":
        loop.train()
    else:
        with pytest.raises(Stopped if ending == "stopped" else Diverged):
            loop.train()
    assert watched.seen == {used}
    assert torch.get_float32_matmul_precision() == set_before


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("steps", [None, 3, 14])
def test_the_seconds_never_fall_and_end_in_the_result(tmp_path, every: int, steps: int | None) -> None:
    experiment = small(EPOCHS, f"measure={every}")
    started = time.monotonic()
    if steps is not None:
        stop_after(steps, loop_of(experiment, tmp_path, tested=50))
    run = trained(experiment, tmp_path, tested=50)
    passed = time.monotonic() - started
    seconds = [line["seconds"] for line in run.metrics()]
    assert len(seconds) == {1: 5, 2: 3}[every]
    assert seconds[0] > 0
    assert seconds == sorted(seconds)
    assert seconds[-1] == pytest.approx(run.result["train_seconds"], abs=0.0015), "two roundings to a thousandth"
    assert run.result["train_seconds"] <= passed + 0.0015


def test_a_dropped_last_batch_is_missing_from_the_test_part_only(tmp_path) -> None:
    words = (EPOCHS, "at_once=64")
    every = trained(small(*words), tmp_path / "every")
    dropped = trained(small(*words, "drop_last=yes"), tmp_path / "dropped")
    assert same_weights(every, dropped)
    data = pictures_of(dropped.experiment)
    assert (every.result["count"], dropped.result["count"]) == (2000, 1984), "31 batches of 64, and 16 pictures left"
    assert len(data.validation) % 64, "there is a partial batch to drop"
    for name in ("validation_loss", "validation_accuracy"):
        assert [line[name] for line in dropped.metrics()] == [line[name] for line in every.metrics()]

    def right(part: Part) -> torch.Tensor:
        """Which pictures are named rightly, normalised by the card's figures and read all at once."""
        mean, deviation = torch.tensor(data.card.mean), torch.tensor(data.card.deviation)
        with torch.inference_mode():
            guesses = dropped.model().logits((part.pictures / 255 - mean) / deviation).argmax(dim=-1)
        return (guesses == part.labels).double()

    assert dropped.metrics()[-1]["validation_accuracy"] == pytest.approx(float(right(data.validation).mean()))
    assert dropped.result["test_accuracy"] == pytest.approx(float(right(data.test)[:1984].mean()))
    assert vitlab.evaluate(dropped).count == 1984


def test_a_validation_part_smaller_than_a_batch_is_counted_although_the_last_is_dropped(tmp_path) -> None:
    run = trained(small("at_once=1000", "drop_last=yes"), tmp_path)
    assert len(pictures_of(run.experiment).validation) < 1000
    assert all(0 <= line["validation_accuracy"] <= 1 for line in run.metrics())
    assert run.result["count"] == 2000


def test_dropping_every_test_picture_is_refused_before_there_is_a_folder(tmp_path) -> None:
    words = ("at_once=2001", "drop_last=yes")
    experiment = small(*words)
    said = refusal(lambda: vitlab.train(experiment, runs=tmp_path / "runs", quiet=True))
    assert "drop_last leaves none of 2000 test pictures" in said
    assert refusal(train_in, tmp_path / "run", experiment, pictures_of(experiment), CPU) == said
    assert not list(tmp_path.iterdir())


WANTED = small("block.dropout=0.1", "ema=0.9", "seed=3", "checkpoint=1000")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When each file of a folder was written, and what is in it."""
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in folder.iterdir()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> vitlab.Run:
    """What the public train makes of the wanted experiment."""
    return vitlab.train(WANTED, runs=tmp_path_factory.mktemp("whole"), quiet=True)


def test_a_run_trained_in_a_folder_is_an_ordinary_finished_run(tmp_path, whole) -> None:
    run = train_in(tmp_path / "deep" / "run", WANTED, pictures_of(WANTED), CPU, quiet=True)
    assert run.finished
    assert run.experiment == WANTED
    assert same_weights(run, whole)
    for name in ("test_accuracy", "test_loss", "count", "seed", "parameters"):
        assert run.result[name] == whole.result[name]
    assert [line["loss"] for line in run.metrics()] == [line["loss"] for line in whole.metrics()]
    again = vitlab.evaluate(run.folder, device="cpu")
    assert again.accuracy == run.result["test_accuracy"]
    assert torch.equal(again.logits, whole.evaluation.logits)


def test_training_in_a_finished_folder_changes_no_file(tmp_path) -> None:
    run = train_in(tmp_path / "run", WANTED, pictures_of(WANTED), CPU, quiet=True)
    before = contents(run.folder)
    assert "weights.safetensors" in before
    assert train_in(tmp_path / "run", WANTED, pictures_of(WANTED), CPU, quiet=True).finished
    assert contents(run.folder) == before


@pytest.mark.parametrize("steps", [1, 4, 7])
def test_training_in_a_folder_goes_on_where_it_was_stopped(tmp_path, whole, steps: int) -> None:
    stop_after(steps, loop_of(WANTED, tmp_path))
    assert not vitlab.open_run(tmp_path).finished
    run = train_in(tmp_path, WANTED, pictures_of(WANTED), CPU, quiet=True)
    assert run.finished
    assert same_weights(run, whole)
    assert [line["step"] for line in run.metrics()] == [4, 8]


def with_one_pixel_changed(data: Prepared) -> Prepared:
    pictures = data.train.pictures.clone()
    pictures[0, 0, 0, 0] ^= 1
    train = Part(pictures, data.train.labels)
    card = data.card
    card = describe(DataSet(card.name, card.classes, train, data.test), train, data.validation)
    return Prepared(card, train, data.validation, data.test)


@pytest.mark.parametrize("finished", [True, False])
def test_a_folder_of_other_settings_or_pictures_is_refused_by_its_name(tmp_path, finished: bool) -> None:
    data = pictures_of(WANTED)
    if finished:
        train_in(tmp_path, WANTED, data, CPU, quiet=True)
    else:
        stop_after(3, loop_of(WANTED, tmp_path))
    before = contents(tmp_path)
    for experiment, pictures in (
        (replace(WANTED, seed=4), data),
        (vitlab.override(WANTED, ["epochs=3"]), data),
        (WANTED, with_one_pixel_changed(data)),
    ):
        said = refusal(lambda e, p: train_in(tmp_path, e, p, CPU, quiet=True), experiment, pictures)
        assert str(tmp_path) in said
        assert "is a run of other" in said
    assert contents(tmp_path) == before


def test_reading_with_the_mirror_image_is_a_second_figure(tmp_path) -> None:
    plain = trained(small("epochs=3"), tmp_path / "plain", tested=200)
    both = trained(small("epochs=3", "mirror=yes"), tmp_path / "both", tested=200)
    assert "mirrored_accuracy" not in plain.result
    assert both.result["test_accuracy"] == plain.result["test_accuracy"]
    data, model = pictures_of(both.experiment, 200), both.model()
    pictures = Normalise(data.card, torch.device("cpu"))(unit(data.test.pictures))
    with torch.inference_mode():
        guesses = (model.logits(pictures) + model.logits(pictures.flip(-1))).argmax(dim=-1)
    assert both.result["mirrored_accuracy"] == (guesses == data.test.labels).double().mean().item()
    assert both.result["mirrored_accuracy"] != both.result["test_accuracy"]


@pytest.mark.parametrize("clip", [0, 1])
def test_a_gradient_that_is_no_number_is_noticed_before_its_weights_are_kept(tmp_path, clip: int) -> None:
    """The loss is a number still: that of the next step would not be."""
    loop = loop_of(small(f"clip={clip}", "checkpoint=0"), tmp_path)
    sound = loop.forward

    def at_the_edge(*batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss, measures = sound(*batch)
        edge = (loop.session.parameters[0].sum() * 0).sqrt()  # 0, with a slope of ∞·0
        return (loss + edge if loop.session.step == 2 else loss), measures

    loop.forward = at_the_edge
    with pytest.raises(Diverged, match=r"at step 2 \(epoch 1\); the last good checkpoint is step 2 "):
        loop.train_epoch(lambda: False)
    assert loop.session.step == (2 if clip else 3)  # where it is clipped, nothing counts as learned from it
    tensors, facts = read_tensors(loop.run.checkpoint)
    assert facts["step"] == 2
    assert all(tensor.isfinite().all() for tensor in tensors.values())


def test_the_running_mean_starts_short_and_grows_to_its_memory(tmp_path) -> None:
    """m ← k·m + (1 − k)·w after step t, k = min(ema, (1 + t) / (10 + t)), m at first the first weights."""
    loop = loop_of(small("ema=0.3"), tmp_path)
    of = [dict(each.named_parameters()) for each in (loop.session.learner, loop.session.average)]
    expected = {name: weight.detach().double() for name, weight in of[0].items()}
    for step in range(1, 6):  # the memory is short for two of them
        loop.train_step(torch.arange(16))
        keep = min(0.3, (1 + step) / (10 + step))
        expected = {name: keep * expected[name] + (1 - keep) * weight.detach() for name, weight in of[0].items()}
    for name, mean in of[1].items():
        torch.testing.assert_close(mean.double(), expected[name], rtol=1e-6, atol=1e-8)
    assert loop.session.evaluated is loop.session.average.network


def test_pictures_mirrored_by_turns_are_so_in_every_second_epoch(tmp_path) -> None:
    """What the model is given over two epochs is each picture once as it is and once mirrored."""
    loop = loop_of(small("epochs=4", "flip=yes", "by_turns=yes"), tmp_path)
    given: list[torch.Tensor] = []
    learn = loop.learn

    def watched(pictures: torch.Tensor, *others: torch.Tensor) -> None:
        given.append(pictures)
        learn(pictures, *others)

    loop.learn = watched
    for _ in range(4):
        loop.train_epoch(lambda: False)
    stored, steps = loop.normalise(unit(loop.data.train.pictures)), loop.session.steps_per_epoch
    epochs = [distinct(torch.cat(given[i * steps : (i + 1) * steps])) for i in range(4)]
    assert epochs[0] == epochs[2]
    assert epochs[1] == epochs[3]
    assert epochs[0] | epochs[1] == distinct(torch.cat([stored, stored.flip(-1)]))
    assert not epochs[0] & epochs[1]
    assert 10 < len(epochs[0] & distinct(stored)) < 54, "of 64"


def distinct(pictures: torch.Tensor) -> set[bytes]:
    return {picture.numpy().tobytes() for picture in pictures}


def test_where_nothing_can_be_compiled_one_line_says_so(tmp_path, monkeypatch) -> None:
    """A C++ compiler that is no program: what a machine without one does."""
    monkeypatch.setattr("torch._inductor.config.cpp.cxx", ("no-such-compiler",))
    monkeypatch.setattr("torch._inductor.config.force_disable_caches", True)
    torch.compiler.reset()
    compiler_trouble.cache_clear()
    text = refusal(lambda: trained(small("compile=yes"), tmp_path))
    compiler_trouble.cache_clear()
    assert "torch.compile does not work here" in text
    assert "compile=no" in text
    assert trained(small("compile=no"), tmp_path / "plain", tested=50).finished
