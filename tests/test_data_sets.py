"""Splits, subsets, statistics and the embedded sample."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import refusal

from vitlab.data import Mnist, Part, Sample, Source, data_folder, hold_out, statistics, take
from vitlab.data.dataset import DataSet, split_test
from vitlab.data.digits import SAMPLE, SAMPLE_DIGEST
from vitlab.data.prepared import Data, Normalise, copied, describe, prepare, unit
from vitlab.errors import BadInput

labels_lists = st.lists(st.integers(0, 5), min_size=1, max_size=120)


def numbered(labels: list[int]) -> Part:
    """A part whose pictures are their own numbers."""
    count = len(labels)
    pictures = torch.arange(count, dtype=torch.int32).view(torch.uint8).reshape(count, 1, 2, 2)
    return Part(pictures, torch.tensor(labels))


def numbers(part: Part) -> list[int]:
    return part.pictures.reshape(len(part), 4).view(torch.int32).flatten().tolist()


@settings(deadline=None)
@given(labels_lists, st.floats(0, 0.95), st.integers(0, 2**32 - 1))
def test_hold_out_is_disjoint_complete_ordered_and_stratified(labels: list[int], fraction: float, seed: int) -> None:
    part = numbered(labels)
    rest, held = hold_out(part, fraction, seed)
    assert sorted(numbers(rest) + numbers(held)) == list(range(len(labels)))
    for side in (rest, held):
        assert numbers(side) == sorted(numbers(side))
        assert side.labels.tolist() == [labels[number] for number in numbers(side)]
    for label in set(labels):
        total, out = labels.count(label), held.labels.tolist().count(label)
        assert total - out >= 1
        assert abs(out - fraction * total) <= 1
        assert fraction == 0 or total == 1 or out >= 1
    again = hold_out(part, fraction, seed)
    assert numbers(again[1]) == numbers(held)


def test_hold_out_depends_on_the_seed_and_is_frozen() -> None:
    part = numbered([number % 3 for number in range(30)])
    assert numbers(hold_out(part, 0.3, 1)[1]) != numbers(hold_out(part, 0.3, 2)[1])
    assert numbers(hold_out(part, 0.3, 0)[1]) == [4, 6, 8, 10, 11, 12, 16, 24, 26]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 7)), min_size=1, max_size=60), st.floats(0.05, 0.9))
def test_hold_out_keeps_copies_of_a_picture_on_one_side(drawn: list[tuple[int, int]], fraction: float) -> None:
    pictures = torch.tensor([8 * label + which for label, which in drawn], dtype=torch.uint8).view(-1, 1, 1, 1)
    part = Part(pictures, torch.tensor([label for label, _ in drawn]))
    rest, held = hold_out(part, fraction)
    sides = [Counter(side.pictures.flatten().tolist()) for side in (rest, held)]
    assert sum(sides, Counter()) == Counter(pictures.flatten().tolist())
    assert not sides[0].keys() & sides[1].keys()
    for label in part.labels.unique():
        own = [Counter({which: n for which, n in side.items() if which // 8 == label}) for side in sides]
        assert own[0]
        if len(own[0] + own[1]) > 1:  # no other share in whole pictures is nearer
            assert own[1]
            most = max((own[0] + own[1]).values())
            assert abs(own[1].total() - fraction * (own[0] + own[1]).total()) <= most + 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), min_size=1, max_size=60), st.floats(0.05, 0.9))
def test_hold_out_keeps_copies_in_other_classes_on_one_side(drawn: list[tuple[int, int]], fraction: float) -> None:
    part = Part(torch.tensor([[[[which]]] for _, which in drawn], dtype=torch.uint8), torch.tensor(drawn)[:, 0])
    rest, held = hold_out(part, fraction)
    ours, theirs = (set(side.pictures.flatten().tolist()) for side in (rest, held))
    assert not ours & theirs
    assert len(rest) + len(held) == len(part)
    assert set(rest.labels.tolist()) == set(part.labels.tolist())
    for label in {label for label, _ in drawn}:
        own = {which for own, which in drawn if own == label}
        clear = {which for which in own if len({other for other, found in drawn if found == which}) == 1}
        assert (label in held.labels) == bool(clear and len(own) > 1)
        assert not (own - clear) & theirs


def test_pictures_in_several_classes_are_told_apart_from_copies_of_one_class() -> None:
    def part(*pictures: tuple[int, int]) -> Part:
        return Part(
            torch.tensor([[[[which]]] for which, _ in pictures], dtype=torch.uint8), torch.tensor(pictures)[:, 1]
        )

    train = part((1, 0), (2, 0), (3, 1), (4, 1), (4, 0))
    high = "2 of the 3 test pictures are copies of training pictures, so the test accuracy will be too high"
    assert copied(train, part((1, 0), (4, 1), (9, 1))) == [
        high,
        "1 picture lies in two classes, so some labels are wrong",
    ]
    assert copied(train, part((1, 1), (2, 1), (9, 1))) == [
        "3 pictures lie in more than one class, so some labels are wrong"
    ]
    assert copied(part((1, 0), (2, 1)), part((3, 0))) == []


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_hold_out_refuses_impossible_shares(fraction: float) -> None:
    with pytest.raises(BadInput, match="held-out share"):
        hold_out(numbered([0, 1]), fraction)


@settings(deadline=None)
@given(labels_lists, st.data())
def test_take_is_exact_ordered_proportional_and_deterministic(labels: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(labels)))
    part = numbered(labels)
    taken = take(part, count, 3)
    assert len(taken) == count
    assert numbers(taken) == sorted(set(numbers(taken)))
    assert numbers(take(part, count, 3)) == numbers(taken)
    kinds = set(labels)
    if count >= len(kinds):
        assert set(taken.labels.tolist()) == kinds
    for label in kinds:
        assert abs(taken.labels.tolist().count(label) - count / len(labels) * labels.count(label)) <= len(kinds)


@pytest.mark.parametrize("count", [0, 4, -1])
def test_take_refuses_what_is_not_there(count: int) -> None:
    with pytest.raises(BadInput, match="choose from 1 to 3"):
        take(numbered([0, 1, 2]), count)


def test_split_test_notes_single_pictures_and_refuses_when_none_can_go() -> None:
    train, test, notes = split_test(numbered([0] * 10 + [1]), 0.2, ("many", "one"))
    assert (len(train), len(test)) == (9, 2)
    assert notes == ["2 of 11 pictures held out for testing, 20% of each class", "with one picture, so not tested: one"]
    twice = Part(numbered([0] * 6).pictures[[0, 0, 1, 2, 3, 4]], torch.tensor([0, 0, 1, 1, 1, 1]))
    assert split_test(twice, 0.2, ("copies", "many"))[2][1:] == ["with copies alone, so not tested: copies"]
    with pytest.raises(BadInput, match="no class has two pictures"):
        split_test(numbered([0, 1]), 0.2, ("a", "b"))
    with pytest.raises(BadInput, match="between 0 and 1"):
        split_test(numbered([0, 0]), 0.0, ("a",))


def test_some_classes_alone_are_numbered_anew_in_the_order_asked_for() -> None:
    whole = Sample().load(Path())
    some = prepare(Data(classes=("7", "3", "7"), validation=0.0), Path())
    assert some.card.classes == ("7", "3")
    for part, all_of_it in ((some.train, whole.train), (some.test, whole.test)):
        labels = all_of_it.labels.numpy()
        wanted = np.isin(labels, (7, 3))
        assert np.array_equal(part.pictures.numpy(), all_of_it.pictures.numpy()[wanted])
        assert np.array_equal(part.labels.numpy(), np.where(labels[wanted] == 3, 1, 0))
    for classes, expected in (
        (("7",), "to tell one class from another takes two"),
        (("7", "x"), "no class called 'x'"),
    ):
        assert expected in refusal(prepare, Data(classes=classes), Path())


def test_statistics_agree_with_numpy_in_float64() -> None:
    pictures = torch.randint(0, 256, (3000, 4, 7, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pictures[:, 2] = 77
    mean, deviation = statistics(Part(pictures, torch.zeros(3000, dtype=torch.int64)))
    reference = pictures.numpy().astype(np.float64) / 255
    np.testing.assert_allclose(mean, reference.mean(axis=(0, 2, 3)), rtol=1e-12)
    expected = reference.std(axis=(0, 2, 3))
    expected[2] = 1.0
    np.testing.assert_allclose(deviation, expected, rtol=1e-9)


def test_pictures_normalised_by_a_half_run_from_minus_one_to_one() -> None:
    prepared = prepare(Data(normalise="half"), Path("nowhere"))
    assert prepared.card.mean == prepared.card.deviation == (0.5,)
    pictures = prepared.train.pictures[:500]
    found = Normalise(prepared.card, torch.device("cpu"))(unit(pictures))
    np.testing.assert_allclose(found, pictures.numpy().astype(np.float64) / 127.5 - 1, atol=1e-6)
    assert (found.min(), found.max()) == (-1, 1)
    plain = prepare(Data(), Path("nowhere"))
    assert torch.equal(plain.train.pictures, prepared.train.pictures)
    assert (plain.card.mean, plain.card.deviation) == statistics(plain.train)


def test_every_channel_has_its_half() -> None:
    pictures = torch.randint(0, 256, (12, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    part = Part(pictures, torch.arange(12) % 2)
    card = describe(DataSet("own", ("a", "b"), part, part), part, part, "half")
    assert card.mean == card.deviation == (0.5, 0.5, 0.5)


def test_the_sample_is_the_stored_one() -> None:
    loaded = Sample().load(Path("nowhere"))
    total = hashlib.sha256()
    with np.load(SAMPLE, allow_pickle=False) as arrays:
        for name in ("train_pictures", "train_labels", "test_pictures", "test_labels"):
            assert arrays[name].dtype == np.uint8
            total.update(arrays[name].tobytes())
    assert total.hexdigest() == SAMPLE_DIGEST
    assert loaded.train.pictures.shape == (10_000, 1, 28, 28)
    assert loaded.test.pictures.shape == (2_000, 1, 28, 28)
    assert loaded.train.labels.dtype == torch.int64
    # MNIST's own training part has 5421 fives, the fewest, and 6742 ones, the most, among 60,000.
    counts = loaded.train.labels.bincount()
    assert abs(counts[5] - 904) <= 1
    assert abs(counts[1] - 1124) <= 1
    assert SAMPLE.stat().st_size <= 2_500_000
    assert (SAMPLE.parent / "README.md").is_file()


@pytest.mark.skipif(
    not Mnist.published.cache(data_folder()).exists(), reason="the full MNIST is not in the data folder"
)
def test_the_sample_is_taken_from_mnist() -> None:
    full, sample = Mnist().load(data_folder()), Sample().load(data_folder())
    for whole, kept in ((full.train, sample.train), (full.test, sample.test)):
        again = take(whole, len(kept))
        assert torch.equal(again.pictures, kept.pictures)
        assert torch.equal(again.labels, kept.labels)


def test_every_source_has_its_own_kind() -> None:
    kinds = [source.kind for source in get_args(Source)]
    assert kinds == ["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "folder", "npz", "none"]


def test_data_folder_is_the_given_one_or_the_variable_or_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITLAB_DATA", "somewhere")
    assert data_folder(Path("here")) == Path("here")
    assert data_folder() == Path("somewhere")
    monkeypatch.setenv("VITLAB_DATA", "")
    assert data_folder() == Path.home() / ".cache/vitlab/data"


def test_a_limit_beyond_what_is_left_to_learn_from_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match=r"limit asks for 9500 pictures, and validation 0.5 leaves \d+"):
        prepare(Data(validation=0.5, limit=9500), Path("nowhere"))
