"""Intervals against scipy's, against published values, and against the definition of crossed random effects."""

import numpy as np
import pytest
from scipy.stats import binomtest, t, ttest_1samp

from arc_refinery.evaluation.intervals import CAUTION, Estimate, estimate, estimate_difference

RNG = np.random.default_rng(0)


def ends(value: Estimate) -> tuple[float, float]:
    return value.low, value.high


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (14, 51), (51, 51)])
def test_a_share_of_tasks_has_wilsons_interval(k: int, n: int):
    share = estimate([np.repeat([1, 0], [k, n - k])])
    wanted = binomtest(k, n).proportion_ci(method="wilson")
    assert ends(share) == pytest.approx((wanted.low, wanted.high))
    assert share.mean == k / n


def test_a_mean_over_tasks_has_students_interval_and_p():
    values = RNG.random(20)
    mean, wanted = estimate([values]), ttest_1samp(values, 0)
    assert ends(mean) == pytest.approx((wanted.confidence_interval().low, wanted.confidence_interval().high))
    assert mean.p_value == pytest.approx(wanted.pvalue)


@pytest.mark.parametrize(("gained", "lost", "n"), [(0, 0, 50), (3, 1, 50), (30, 24, 400)])
def test_paired_shares_have_the_interval_of_agresti_and_min(gained: int, lost: int, n: int):
    differences = np.repeat([1.0, -1.0, 0.0], [gained, lost, n - gained - lost])
    difference = estimate_difference([np.maximum(differences, 0)], [np.maximum(-differences, 0)])
    # their formula: 0.5 added to each of the four cells of the table
    b, c, total = gained + 0.5, lost + 0.5, n + 2
    centre, error = (b - c) / total, np.sqrt(b + c - (b - c) ** 2 / total) / total
    assert ends(difference) == pytest.approx((centre - 1.959964 * error, centre + 1.959964 * error))
    assert difference.low < difference.high
    assert difference.mean == pytest.approx((gained - lost) / n)


def test_a_difference_that_is_never_negative_is_not_taken_for_a_share():
    gained = estimate_difference([np.array([1, 1, 0, 0])], [np.array([1, 0, 0, 0])])
    assert gained.low < 0


def test_runs_without_differences_count_as_one():
    values = RNG.random(30)
    once, thrice = estimate([values]), estimate([values] * 3)
    assert ends(thrice) == pytest.approx((once.low, once.high))


def test_the_variance_of_crossed_effects_is_that_of_mean_squares():
    table = RNG.random((4, 25)) + np.array([[0.0], [0.5], [1.0], [1.5]])  # runs differ by far more than noise
    value = estimate(table)
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    between_runs = 25 * ((rows - mean) ** 2).sum() / 3
    between_tasks = 4 * ((columns - mean) ** 2).sum() / 24
    rest = ((table - rows[:, None] - columns + mean) ** 2).sum() / (3 * 24)
    assert value.standard_error**2 == pytest.approx((between_runs + between_tasks - rest) / 100)
    runs, tasks = CAUTION * (between_runs - rest) / 100, between_tasks / 100
    degrees = (runs + tasks) ** 2 / (runs**2 / 3 + tasks**2 / 24)
    assert value.degrees == pytest.approx(max(3.0, degrees))
    half = t.ppf(0.975, value.degrees) * value.standard_error
    assert ends(value) == pytest.approx((mean - half, mean + half))
    assert value.runs == pytest.approx(tuple(rows))


def test_p_and_interval_agree():
    for shift in np.linspace(-0.6, 0.6, 25):
        value = estimate(RNG.normal(shift, 1, (3, 40)))
        assert value.excludes_zero == (value.p_value < 0.05)


def test_a_single_task_says_nothing_about_others():
    value = estimate([[0.5], [1.0]])
    assert (value.mean, *ends(value), value.p_value) == (0.75, 0.75, 0.75, 1.0)


def test_runs_that_are_all_alike_count_as_one():
    nothing = np.zeros((3, 15))
    value = estimate_difference(nothing, nothing)
    assert (value.low, value.high) == pytest.approx((-1.96 / 17, 1.96 / 17), abs=1e-4)  # sqrt(1 / 17) / sqrt(17)
    assert value.runs == (0.0, 0.0, 0.0)
    one, three = estimate([[1, 0, 1, 1]]), estimate([[1, 0, 1, 1]] * 3)
    assert (three.low, three.high) == (one.low, one.high)


def test_values_that_are_all_alike_exclude_nothing():
    alike = estimate_difference([[0.5, 0.5]], [[0.0, 0.0]])
    assert (alike.mean, alike.excludes_zero, alike.p_value) == (0.5, False, 1.0)
    assert not estimate_difference([[1]], [[0]]).excludes_zero


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        estimate([[]])
