"""What a study says of its figures: variance, intervals, fronts and recommendations, against sums by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from studies import tiny

from vitlab.study.advice import advise
from vitlab.study.effects import decompose, effects, shares, uneven
from vitlab.study.plan import Plan
from vitlab.study.results import Point, Ran, Results, front, log_odds
from vitlab.study.space import Choices


def grid(values: np.ndarray, **settings: tuple[str, ...]) -> Results:
    """Results of a full grid with these accuracies (k₁, …, seeds); a point's time grows with its place."""
    space = tuple(Choices(name, texts) for name, texts in settings.items())
    made = Plan("g", tiny(), space, seeds=values.shape[-1])
    rows = values.reshape(-1, values.shape[-1]).tolist()
    points = []
    for place, (point, row) in enumerate(zip(made.points(), rows, strict=True)):
        curves = [((1, 0.5 + place, p / 2), (2, 1.0 + place, p)) for p in row]
        runs = [Ran(k, p, 1.0 + place, 100, curves[k], "f", "d", None) for k, p in enumerate(row)]
        points.append(Point(point, tuple(runs)))
    return Results(made, tuple(points), (), (), {"complete": made.count})


def test_variance_is_taken_apart_as_by_hand():
    values = np.random.default_rng(0).random((3, 4, 5))  # two settings, five seeds
    found = decompose(values)
    whole, cells = values.mean(), values.mean(axis=2)
    rows, columns = cells.mean(axis=1), cells.mean(axis=0)
    interplay = cells - rows[:, None] - columns[None, :] + whole
    chance = np.mean([cell.var(ddof=1) for cell in values.reshape(12, 5)]) / 60  # of one degree of freedom
    seen = [np.mean((rows - whole) ** 2), np.mean((columns - whole) ** 2), np.mean(interplay**2)]
    for key, variance, freedom in zip([(0,), (1,), (0, 1)], seen, [2, 3, 6], strict=True):
        assert found[key] == pytest.approx(max(variance - freedom * chance, 0), abs=1e-15)
    assert sum(found.values()) == pytest.approx(values.var(), abs=1e-15)


def test_seeds_alone_are_not_counted_to_the_settings():
    """Over many grids without any effect, a setting of four values would have 3/59 of the variance by chance."""
    random = np.random.default_rng(0)
    shares = [
        (found[1,], sum(found.values())) for found in (decompose(random.normal(size=(3, 4, 5))) for _ in range(400))
    ]
    found, whole = np.sum(shares, axis=0)
    assert found / whole < 0.6 * 3 / 59, "a variance is no less than 0, so that a part of it stays"


def test_three_settings_add_up_and_what_does_nothing_has_no_share():
    first, second = np.random.default_rng(1).random((2, 3, 1, 1, 1))
    product = first * second.reshape(1, 3, 1, 1) + np.zeros((3, 3, 2, 4))
    found = decompose(product)
    assert sum(found.values()) == pytest.approx(product.var())
    quiet = {key for key, variance in found.items() if variance < 1e-30}
    assert quiet == {(2,), (0, 2), (1, 2), (0, 1, 2), (3,)}
    named = shares(grid(product / 2, width=("8", "16", "24"), depth=("1", "2", "3"), heads=("1", "2")))
    assert {each.name for each in named[:3]} == {"width", "depth", "width and depth together"}
    assert sum(each.share for each in named) == pytest.approx(1)


def test_the_front_is_what_brute_force_finds():
    costs = np.random.default_rng(2).integers(0, 6, (60, 3))  # with ties and doubles
    expected = [
        i for i in range(60)
        if not any((costs[j] <= costs[i]).all() and (costs[j] < costs[i]).any() for j in range(60))
    ]  # fmt: skip
    assert front([tuple(cost) for cost in costs.tolist()]) == expected
    assert len(expected) < 30


def test_intervals_are_of_the_pooled_spread_in_log_odds():
    values = np.array([[0.50, 0.60, 0.55], [0.95, 0.96, 0.97]])
    found = grid(values, width=("8", "16"))
    odds = np.log(values / (1 - values))
    assert found.freedom == 4
    assert found.deviation == pytest.approx(np.sqrt(odds.var(axis=1, ddof=1).mean()))
    p, t = values.mean(axis=1), 2.7764451
    margins = t * found.deviation * p * (1 - p) / np.sqrt(3)
    assert [found.margin(point) for point in found.points] == pytest.approx(margins, rel=1e-6)
    assert found.margin(*found.points) == pytest.approx(np.hypot(*margins) / 2, rel=1e-6)
    assert found.difference(*found.points).margin == pytest.approx(np.hypot(*margins), rel=1e-6)
    assert log_odds(1.0) == pytest.approx(-log_odds(0.0))
    assert log_odds(1.0) < 10
    means = effects(found, found.plan.space[0])
    assert [(each.value, each.runs) for each in means] == [("8", 3), ("16", 3)]
    assert [each.mean for each in means] == pytest.approx(p)


def test_the_cheapest_within_a_standard_error_of_the_best_is_recommended():
    values = np.array([[0.80, 0.82], [0.952, 0.962], [0.955, 0.965]])
    advice = advise(grid(values, width=("8", "16", "32")))
    assert (advice.chosen.name, advice.best.name) == ("width 16", "width 32")
    text = " ".join(advice.lines)
    assert text.startswith("Take width 16: validation accuracy 95.7 ± ")
    assert "It does not differ significantly from width 32, the highest with 96.0" in text
    assert "takes 1.5 times as long" in text
    assert "1 of 2 other points do not differ significantly from the best" in text
    assert "significantly below is width 8, 15 ± " in text
    assert "At equal time, 1.00 s, when the fastest run ended, width 8 leads with 81.0 %; " in text
    assert "; width 16 had not ended its first epoch." in text
    values[1] -= 0.003  # further below, though still not significantly
    further = advise(grid(values, width=("8", "16", "32")))
    assert further.chosen.name == "width 32"
    assert "1 of 2 other points do not differ significantly" in " ".join(further.lines)
    alone = advise(grid(values[:, :1], width=("8", "16", "32")))
    assert alone.chosen.name == "width 32"
    assert "With one seed a point, chance is not measured" in " ".join(alone.lines)


def test_points_that_are_alike_are_seldom_told_apart():
    """24 points of the same accuracy: of 200 studies 5 % may see a difference; pair by pair most would."""
    draw, wrong, by_pair = np.random.default_rng(0), 0, 0
    for _ in range(200):
        found = grid(draw.normal(0.97, 0.002, (24, 3)), width=tuple(map(str, range(8, 32))))
        best = max(found.points, key=lambda point: point.accuracy)
        others = [point for point in found.points if point is not best]
        wrong += any(found.difference(best, point).sign for point in others)
        by_pair += any(
            best.accuracy - each.accuracy > math.hypot(found.margin(best), found.margin(each)) for each in others
        )
    assert wrong <= 18  # 10 are expected at most; more than 18 have a chance of 1 in 200
    assert by_pair > 100


def test_a_value_is_not_flattered_by_where_it_failed():
    """At width 16 the high rate diverges, at width 64 it is worse: that its one mean is higher is the width's doing."""
    whole = grid(np.array([[[0.80], [0.10]], [[0.95], [0.93]]]), width=("16", "64"), rate=("1e-3", "1e-1"))
    rate = whole.plan.space[1]
    assert [each.mean for each in effects(whole, rate)] == pytest.approx([0.875, 0.515])
    assert uneven(whole, rate) == ""
    points = (whole.points[0], *whole.points[2:])
    failed = replace(whole, points=points, failed=((whole.points[1].name, "the loss is no longer a number"),))
    assert [each.mean for each in effects(failed, rate)] == pytest.approx([0.95, 0.93])
    assert "Of 3 points these are the 2" in uneven(failed, rate)
    unlike = replace(whole, points=(whole.points[0], whole.points[3]))
    assert [each.mean for each in effects(unlike, rate)] == pytest.approx([0.80, 0.93])
    assert "differ between these" in uneven(unlike, rate)


def test_settings_of_which_a_seed_failed_are_not_recommended():
    found = grid(np.array([[0.973, 0.974, 0.9735], [0.976, 0.977, 0.978]]), width=("8", "16"))
    assert advise(found).chosen.name == "width 16"
    broken = replace(found.points[1], runs=found.points[1].runs[:1])
    left = replace(found, points=(found.points[0], broken), failed=(("width 16", "the loss is no longer a number"),))
    advice = advise(left)
    assert advice.chosen.name == advice.best.name == "width 8"
    assert "Not to be trusted, as a seed of theirs failed: width 16." in advice.lines
    only = replace(left, points=(broken,))
    assert advise(only).chosen is broken, "where nothing else is there, it is said of it"


def test_settings_of_which_a_seed_failed_are_not_offered_for_less_nor_at_equal_time():
    found = grid(np.array([[0.90, 0.91], [0.70, 0.71], [0.97, 0.98]]), width=("8", "16", "32"))
    assert sum("width 8" in line for line in advise(found).lines) >= 2
    failed = replace(found, failed=(("width 8", "the loss is no longer a number"),))
    named = [line for line in advise(failed).lines if "width 8" in line]
    assert named == ["Not to be trusted, as a seed of theirs failed: width 8."]


def test_accuracy_at_a_time_is_that_of_the_last_epoch_that_had_ended():
    run = Ran(0, 0.9, 3.0, 1, ((1, 1.0, 0.5), (2, 2.0, 0.7), (3, 3.0, 0.9)), "f", "d", None)
    assert [run.at(seconds) for seconds in (0.5, 1.0, 2.9, 3.0)] == [None, 0.5, 0.7, 0.9]
