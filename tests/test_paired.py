"""The paired test against enumeration, published examples and the likelihood itself; its words against its numbers."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

from vitlab.engine.evaluation import Evaluation
from vitlab.report.paired import Paired, pair, points, probability, sentence

Z = 1.959964


def counts(gained: int, lost: int, count: int) -> Paired:
    return Paired(both=count - gained - lost, gained=gained, lost=lost, neither=0, differing=gained + lost)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (3, 1), (2, 2), (0, 6), (7, 1), (4, 9)])
def test_p_is_the_share_of_coin_flips_at_least_as_uneven(gained: int, lost: int) -> None:
    """Each picture on which only one is right falls to either side by a fair coin, if the two are equally good."""
    flips = list(itertools.product((1, -1), repeat=gained + lost))
    uneven = sum(abs(sum(flip)) >= abs(gained - lost) for flip in flips)
    assert Fraction(counts(gained, lost, 20).p_value) == Fraction(uneven, len(flips))


def test_p_of_many_pictures_is_not_rounded_away() -> None:
    gained, lost = 2600, 2400
    tail = sum(Fraction(math.comb(gained + lost, k), 2 ** (gained + lost)) for k in range(lost + 1))
    assert counts(gained, lost, 10_000).p_value == pytest.approx(float(2 * tail), rel=1e-12)
    assert 0 < counts(1000, 0, 1000).p_value < 1e-300


def test_a_published_example() -> None:
    """Airway hyper-responsiveness of 21 children, 1 and 7 of whom changed (Bentur et al., 2009).

    Fagerland, Lydersen and Laake (2013, 2014) give p = 0.070 for the exact test and −0.517 to −0.026 for Tango's
    interval of the other sign.
    """
    found = Paired(both=1, gained=7, lost=1, neither=12, differing=8)
    assert found.p_value == pytest.approx(0.0703, abs=5e-5)
    assert found.interval == pytest.approx((0.026, 0.517), abs=5e-4)
    assert found.sign == 0, "the interval leaves 0 out, but the exact test is not sure: the careful answer is no"


def test_of_several_comparisons_at_once_each_must_be_as_much_surer() -> None:
    alone = counts(20, 7, 500)
    assert 0.01 < alone.p_value < 0.025
    assert alone.sign == 1
    assert [replace(alone, among=count).sign for count in (1, 2, 5)] == [1, 1, 0]
    assert "one of 5 comparisons may show as much by chance" in sentence(replace(alone, among=5), "a", "b")
    clear = counts(60, 7, 500)
    assert replace(clear, among=5).sign == 1
    assert sentence(replace(clear, among=5), "a", "b") == sentence(clear, "a", "b")


@pytest.mark.parametrize(
    ("gained", "lost", "count"), [(31, 12, 2000), (0, 5, 40), (9, 9, 50), (1, 0, 10), (300, 100, 500)]
)
def test_the_ends_of_the_interval_are_where_the_score_test_refuses(gained: int, lost: int, count: int) -> None:
    """At each end, with the likeliest share of `lost` found by search, the statistic is z itself."""
    found = counts(gained, lost, count)
    for end, sign in zip(found.interval, (1, -1), strict=True):
        shares = np.linspace(max(0.0, -end), (1 - end) / 2, 2_000_001)[1:-1]
        likelihood = (
            gained * np.log(shares + end)
            + lost * np.log(shares)
            + (count - gained - lost) * np.log(1 - 2 * shares - end)
        )
        share = shares[likelihood.argmax()]
        statistic = (gained - lost - count * end) / math.sqrt(count * (2 * share + end - end * end))
        assert statistic == pytest.approx(sign * Z, abs=2e-3)
    assert found.interval[0] < found.difference < found.interval[1]
    assert found.interval == pytest.approx(tuple(-end for end in counts(lost, gained, count).interval[::-1]))


@pytest.mark.parametrize("count", [1, 10, 2000])
def test_equal_answers_still_leave_room_for_a_difference(count: int) -> None:
    """With nothing between them the ends are ± z² / (n + z²)."""
    room = Z**2 / (count + Z**2)
    assert counts(0, 0, count).interval == pytest.approx((-room, room), abs=1e-6)
    assert counts(0, 0, count).sign == 0


def test_the_whole_of_one_sided_flips_stays_within_bounds() -> None:
    low, high = counts(10, 0, 10).interval
    assert 0 < low < 1
    assert high == pytest.approx(1, abs=1e-6)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Every outcome of 30 pictures with its probability: 95 % of them should have an interval that holds the truth."""
    count, gain, loss = 30, 0.2, 0.1
    covered = 0.0
    for gained in range(count + 1):
        for lost in range(count + 1 - gained):
            rest = count - gained - lost
            ways = math.comb(count, gained) * math.comb(count - gained, lost)
            weight = ways * gain**gained * loss**lost * (1 - gain - loss) ** rest
            if weight > 1e-9:
                low, high = counts(gained, lost, count).interval
                covered += weight * (low <= gain - loss <= high)
    assert 0.94 < covered < 0.965


def test_pictures_are_counted_by_who_is_right() -> None:
    random = np.random.default_rng(0)
    labels, one, two = random.integers(0, 4, (3, 500))
    evaluations = [
        Evaluation(torch.nn.functional.one_hot(torch.from_numpy(guesses), 4).float(), torch.from_numpy(labels))
        for guesses in (one, two)
    ]
    found = pair(*evaluations)
    assert found.gained == sum(a != t == b for a, b, t in zip(one, two, labels, strict=True))
    assert found.lost == sum(a == t != b for a, b, t in zip(one, two, labels, strict=True))
    assert found.both == sum(a == b == t for a, b, t in zip(one, two, labels, strict=True))
    assert found.differing == (one != two).sum()
    assert found.count == 500
    assert found.difference == pytest.approx((two == labels).mean() - (one == labels).mean())


def said(found: Paired) -> str:
    return sentence(found, "A", "B").replace("\u202f", " ")


def test_the_sentence_says_what_was_found_and_no_more() -> None:
    better = counts(31, 12, 2000)
    low, high = (100 * bound for bound in better.interval)
    assert said(better) == (
        "B is right on 31 pictures that A gets wrong and wrong on 12 that A gets right: +0.95 points "
        f"(95 % interval +{low:.2f} to +{high:.2f}), p = 0.005; B is better than A on these pictures."
    )
    assert "B is worse than A" in said(counts(12, 31, 2000))
    assert said(counts(13, 12, 2000)).endswith("; the two cannot be told apart on these 2,000 pictures.")
    assert said(counts(1, 0, 50)).startswith("B is right on 1 picture that A")
    assert said(counts(0, 0, 50)) == "B gives the same answer as A to each of the 50 pictures."
    twins = Paired(both=40, gained=0, lost=0, neither=10, differing=3)
    assert "p = 1.00; the two cannot be told apart" in said(twins)


def test_figures_in_words() -> None:
    assert [points(share) for share in (0.0095, -0.012, 0.0, -0.00001)] == ["+0.95", "−1.20", "0.00", "0.00"]
    shown = [probability(value).replace("\u202f", " ") for value in (1.0, 0.25, 0.0496, 0.00099)]
    assert shown == ["= 1.00", "= 0.25", "= 0.050", "< 0.001"]
