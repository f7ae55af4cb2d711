"""Intervals against scipy's, against published values, and against the definition of crossed random effects."""

import numpy as np
import pytest
from hall import wider_ends
from scipy.stats import binom, binomtest, t, ttest_1samp

from arc_refinery.evaluation.intervals import Estimate, detectable, estimate, estimate_difference

RNG = np.random.default_rng(0)


def ends(value: Estimate) -> tuple[float, float]:
    return value.low, value.high


@pytest.mark.parametrize(("k", "n"), [(0, 10), (1, 10), (14, 51), (51, 51)])
def test_a_share_of_tasks_has_wilsons_interval(k: int, n: int):
    share = estimate([np.repeat([1, 0], [k, n - k])])
    wanted = binomtest(k, n).proportion_ci(method="wilson")
    assert ends(share) == pytest.approx((wanted.low, wanted.high))
    assert share.mean == k / n


def test_a_mean_over_tasks_has_the_wider_ends_of_student_and_hall_and_students_p():
    values = np.append(RNG.random(14), [0.0, 0.0, 0.0, 2.0, 4.0, 6.0])  # skewed to the right
    mean, wanted = estimate([values]), ttest_1samp(values, 0)
    student, (low, high) = wanted.confidence_interval(), wider_ends(values)
    assert ends(mean) == pytest.approx((low, high))
    assert low == pytest.approx(student.low) and high > 1.2 * student.high
    assert ends(estimate([-values])) == pytest.approx((-high, -low))
    assert mean.p_value == pytest.approx(wanted.pvalue)


def test_values_without_skewness_have_students_interval():
    values = np.concatenate([1 + (deviations := RNG.random(10)), 1 - deviations])
    student = ttest_1samp(values, 0).confidence_interval()
    assert ends(estimate([values])) == pytest.approx((student.low, student.high))


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
    table = RNG.random((4, 25)) + np.array([[0.0], [0.1], [0.2], [0.3]])  # runs differ by more than noise
    value = estimate(table)
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    between_runs = 25 * ((rows - mean) ** 2).sum() / 3
    between_tasks = 4 * ((columns - mean) ** 2).sum() / 24
    rest = ((table - rows[:, None] - columns + mean) ** 2).sum() / (3 * 24)
    assert value.standard_error**2 == pytest.approx((between_runs + between_tasks - rest / 2) / 100)
    runs, tasks = 8 * (between_runs - rest / 2) / 100, between_tasks / 100
    degrees = (runs + tasks) ** 2 / (runs**2 / 3 + tasks**2 / 24)
    assert value.degrees == pytest.approx(max(3.0, degrees))
    assert ends(value) == pytest.approx(wider_ends(columns, value.standard_error, value.degrees))
    assert value.runs == pytest.approx(tuple(rows))


def test_p_and_interval_agree():
    for shift in np.linspace(-0.6, 0.6, 25):
        values = RNG.normal(0, 1, (3, 20))
        value = estimate(np.concatenate([shift + values, shift - values], axis=1))  # no skewness
        assert value.supports_difference == (value.p_value < 0.05) == (value.low > 0 or value.high < 0)


def test_runs_that_are_not_paired_have_the_variances_of_both_sides():
    """Welch's variance and degrees of freedom over runs, beside the variance over tasks; noise is known to be 0."""
    tasks = RNG.normal(0, 1, 30)
    a, b = (tasks + np.array(runs)[:, None] for runs in ([0.0, 3.0, 9.0], [1.0, 2.0, 6.0, 9.0, 7.0]))
    difference = estimate_difference(a, b, is_paired=False)
    first, second = np.var([0, 3, 9], ddof=1) / 3, np.var([1, 2, 6, 9, 7], ddof=1) / 5
    assert difference.mean == pytest.approx(4 - 5)
    assert difference.standard_error**2 == pytest.approx(first + second)  # all tasks differ by as much
    assert difference.degrees == pytest.approx((first + second) ** 2 / (first**2 / 2 + second**2 / 4))
    half = t.ppf(0.975, difference.degrees) * difference.standard_error
    assert ends(difference) == pytest.approx((-1 - half, -1 + half))
    assert difference.runs == ()


@pytest.mark.parametrize("is_paired", [True, False])
def test_two_runs_have_a_mean_and_no_interval(is_paired: bool):
    """Both sides from the same chances: an interval of these two would have been [+0.2, +21.5] points."""
    rng = np.random.default_rng(0)
    chances = rng.random(60)
    draws = [rng.binomial(1, chances) for _ in range(10)]
    a, b = np.array([draws[0], draws[1]]), np.array([draws[5], draws[6]])
    difference = estimate_difference(a, b, is_paired)
    assert difference.mean == pytest.approx((a - b).mean())
    assert not difference.has_interval and np.isnan(difference.p_value)
    assert not difference.supports_difference and np.isinf(detectable(difference))
    assert not estimate(a).has_interval


@pytest.mark.parametrize(("n_changed", "supported"), [(4, False), (5, False), (6, True)])
def test_averaged_rows_need_six_changed_tasks_as_mcnemars_test_does(n_changed: int, supported: bool):
    """Some of ten tasks 1 against 0.875; a sign test of n equal signs has p = 2 / 2^n."""
    a = np.repeat([1.0, 0.0], [n_changed, 10 - n_changed])
    difference = estimate_difference([a], [0.875 * a])
    assert difference.low > 0
    assert difference.p_value >= binomtest(n_changed, n_changed).pvalue
    assert difference.supports_difference == supported
    assert np.isfinite(detectable(difference)) == supported


@pytest.mark.parametrize(("n", "only_first"), [(27, 0), (27, 1), (100, 0), (400, 2)])
def test_no_difference_is_detectable_that_cannot_change_six_tasks(n: int, only_first: int):
    a = np.repeat([1, 0], [only_first, n - only_first])
    smallest = detectable(estimate_difference([a], [np.zeros(n)]))
    enough = 1 - binom.cdf(5, n, smallest)  # chance that six tasks or more change
    assert enough == pytest.approx(0.8)
    assert smallest == pytest.approx(7.9 / n, rel=0.06)


def test_a_single_task_says_nothing_about_others():
    for value in (estimate([[0.5], [1.0]]), estimate([[0.75]]), estimate_difference([[1]], [[0.25]])):
        assert value.mean == 0.75
        assert not value.has_interval and np.isnan(value.p_value) and not value.supports_difference


def test_runs_that_are_all_alike_count_as_one():
    nothing = np.zeros((3, 15))
    value = estimate_difference(nothing, nothing)
    assert (value.low, value.high) == pytest.approx((-1.96 / 17, 1.96 / 17), abs=1e-4)  # sqrt(1 / 17) / sqrt(17)
    assert value.runs == (0.0, 0.0, 0.0)
    one, three = estimate([[1, 0, 1, 1]]), estimate([[1, 0, 1, 1]] * 3)
    assert (three.low, three.high) == (one.low, one.high)


@pytest.mark.parametrize(("n", "supported"), [(2, False), (5, False), (6, True), (20, True)])
def test_values_that_are_all_alike_have_the_sign_test_as_those_that_nearly_are(n: int, supported: bool):
    alike, nearly = (
        estimate_difference([np.repeat([0.75 + more, 0.75], [1, n - 1])], [np.full(n, 0.5)]) for more in (0, 1e-7)
    )
    assert (alike.mean, alike.p_value) == (0.25, binomtest(n, n).pvalue)
    assert nearly.p_value == pytest.approx(alike.p_value)
    assert alike.supports_difference == nearly.supports_difference == supported


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one value"):
        estimate([[]])
