"""Estimates against enumeration of all cases, and the sentence that must not claim too much."""

import math
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np
import pandas as pd
import pytest
from messages import Wording

from arc_refinery.evaluation.intervals import detectable, estimate, estimate_difference
from arc_refinery.evaluation.power import SHARED, Plan
from arc_refinery.evaluation.statistics import (
    Comparison,
    budget_curve,
    compare,
    correct,
    holm,
    mcnemar,
    pass_at_k,
    pass_at_k_scores,
    solved_at_k,
    solved_within,
    spent_tokens,
    two_guess_scores,
    two_guesses_solve,
)
from arc_refinery.reporting.markdown import verdict_sentence


def flags(text: str) -> np.ndarray:
    return np.array([letter == "1" for letter in text])


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 6), (7, 0, 4), (4, 4, 1), (8, 3, 5), (8, 3, 6)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(n: int, c: int, k: int):
    subsets = list(combinations(range(n), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(min(subset) < c for subset in subsets) / len(subsets))


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)])
def test_pass_at_k_refuses_what_cannot_be(n: int, c: int, k: int):
    with pytest.raises(ValueError, match=f"n={n}, c={c}, k={k}"):
        pass_at_k(n, c, k)


def test_solved_at_k_is_pass_at_k_where_each_attempt_has_a_prompt_of_its_own():
    assert solved_at_k(flags("0100100000"), np.arange(10), 4) == pytest.approx(pass_at_k(10, 2, 4))


@pytest.mark.parametrize(
    ("sizes", "k"), [(sizes, k) for sizes in ((2, 2, 2, 2), (3, 3, 2), (4, 4)) for k in range(1, 9)]
)
def test_attempts_are_spent_prompt_by_prompt(sizes: tuple[int, ...], k: int):
    """Against all orders of the prompts, and all orders within each."""
    right = flags("11000010")
    prompts = np.repeat(np.arange(len(sizes)), sizes)
    solved = []
    for order in permutations(range(len(sizes))):
        for within in product(*(permutations(np.flatnonzero(prompts == prompt)) for prompt in order)):
            spent = [attempt for attempts in within for attempt in attempts][:k]
            solved.append(right[spent].any())
    assert solved_at_k(right, prompts, k) == pytest.approx(np.mean(solved))


def test_attempts_on_one_prompt_that_are_alike_solve_less_than_others():
    assert solved_at_k(flags("11110000"), np.repeat([0, 1], 4), 4) == 0.5  # 1 - 1 / C(8, 4) = 0.986 if drawn singly


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (1, 0), (6, 0), (5, 1), (3, 3), (2, 8)])
def test_mcnemar_is_the_share_of_sign_patterns_at_least_as_uneven(only_first: int, only_second: int):
    n = only_first + only_second
    uneven = [abs(2 * sum(signs) - n) >= abs(only_first - only_second) for signs in product((0, 1), repeat=n)]
    assert mcnemar(only_first, only_second) == pytest.approx(np.mean(uneven))


def sides(differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two sides' flags with these differences, which are -1, 0 or 1."""
    table = np.atleast_2d(differences)
    return (table > 0).astype(float), (table < 0).astype(float)


def compared(a: np.ndarray, b: np.ndarray) -> Comparison:
    return compare("new", "old", [a], [b])


def test_compare_counts_tasks():
    c = compared(flags("1110010000"), flags("1100001000"))
    assert (c.n_first, c.n_second, c.only_first, c.only_second) == (4, 3, 2, 1)
    assert c.difference.mean == pytest.approx(0.1)
    assert (c.p_value, c.is_exact) == (1.0, True)


def test_the_sentence_does_not_claim_what_the_evidence_does_not_support(wording: Wording):
    # 6 more tasks of 400, 30 against 24 discordant: the size of the published difference
    a, b = flags("1" * 71 + "0" * 329), flags("1" * 41 + "0" * 30 + "1" * 24 + "0" * 305)
    sentence = verdict_sentence(compared(a, b))
    for fact in ("`new` solved 71 of 400 tasks (17.8 %)", "`old` 65 (16.2 %)", "+1.5 points", "30 solved", " 24 by "):
        assert fact in sentence
    conclusion = sentence.partition("**")[2]
    assert conclusion and "`" not in conclusion  # it names no better arm
    wording(sentence)


def test_the_sentence_names_the_better_arm_where_interval_and_test_agree(wording: Wording):
    sentence = verdict_sentence(compared(flags("0" * 60), flags("1" * 12 + "0" * 48)))
    assert "−20.0 points" in sentence
    assert "p < 0.001" in sentence  # 2 / 2^12 = 0.0005
    conclusion = sentence.partition("**")[2]
    assert 0 < conclusion.find("`old`") < conclusion.find("`new`")
    wording(sentence)


@pytest.mark.parametrize(("only_first", "only_second", "n"), [(20, 5, 200), (60, 40, 400)])
def test_a_detectable_difference_is_found_in_four_experiments_of_five(only_first: int, only_second: int, n: int):
    differences = np.repeat([1.0, -1.0, 0.0], [only_first, only_second, n - only_first - only_second])
    smallest = detectable(estimate_difference(*sides(differences)))
    centred = differences - differences.mean() + smallest
    samples = np.random.default_rng(0).choice(centred, size=(4000, n))
    z = samples.mean(axis=1) / (samples.std(axis=1, ddof=1) / np.sqrt(n))
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.8, abs=0.03)


def test_the_expected_power_of_pass_rates_holds_where_its_assumptions_do():
    """Simulated experiments: rates around 3 %, true differences with a spread of 3.5 points, 64 attempts per arm."""
    rng, n_tasks = np.random.default_rng(0), 100
    difference = Plan(n_tasks, n_attempts=64).detects()
    noise = rng.normal(0, np.sqrt(2 * 0.03 * 0.97 / 64), (4000, n_tasks))
    observed = rng.normal(difference, 0.035, (4000, n_tasks)) + noise
    z = observed.mean(axis=1) / (observed.std(axis=1, ddof=1) / np.sqrt(n_tasks))
    assert np.mean(np.abs(z) > 1.96) == pytest.approx(0.8, abs=0.03)


def test_the_expected_power_of_tasks_solved_is_that_of_a_run_with_as_many_changes():
    differences = np.repeat([1.0, -1.0, 0.0], [26, 26, 348])  # 13 % of 400, in equal parts
    observed = detectable(estimate_difference(*sides(differences)))
    assert Plan(400).detects() == pytest.approx(observed)
    assert Plan(1600).detects() < 0.51 * Plan(400).detects()


def test_of_repeated_arms_the_means_are_compared_and_each_run_is_shown(wording: Wording):
    # shares solved: 1, 2/3, 1/3 against 0, 1/3, 2/3 -> differences 1, 1/3, -1/3
    c = compare("new", "old", [[1, 1, 0], [1, 0, 0], [1, 1, 1]], [[0, 1, 0], [0, 0, 1], [0, 0, 1]])
    assert (c.n_first, c.n_second) == pytest.approx((2.0, 1.0))
    assert (c.only_first, c.only_second, c.n_runs) == (2, 1, 3)
    assert c.difference.mean == pytest.approx(1 / 3)
    assert c.difference.runs == pytest.approx((1 / 3, 0.0, 2 / 3))
    assert not c.is_exact
    sentence = verdict_sentence(c)
    assert "`new` solved 2.0 of 3 tasks" in sentence
    assert "per training +33.3, +0.0, +66.7" in sentence
    wording(sentence)


def test_two_runs_are_no_evidence_and_are_not_counted_by_holm():
    two = compare("new", "old", [[1, 1, 0], [1, 0, 0]], [[0, 1, 0], [0, 0, 1]])
    assert (two.n_first, two.n_second, two.difference.has_interval, two.supports_difference) == (1.5, 1.0, False, False)
    assert "[" not in verdict_sentence(two)
    once = compared(flags("1" * 7 + "0" * 33), flags("0" * 40))
    assert [c.corrected for c in correct([two, once])] == [None, once.p_value]


def test_an_interval_without_zero_is_not_enough():
    # 5 discordant tasks, all for one arm: p = 2 / 2^5 = 0.0625
    comparison = compared(flags("1" * 5 + "0" * 35), flags("0" * 40))
    assert comparison.difference.low > 0
    assert comparison.p_value == pytest.approx(0.0625)
    assert not comparison.supports_difference


def test_holm_corrects_for_the_number_of_comparisons():
    # sorted: 3 x 0.01, 2 x 0.03, then 1 x 0.04, which cannot fall below the one before it
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_primary_comparison_is_not_corrected_and_does_not_count():
    one = compared(flags("1" * 6 + "0" * 34), flags("0" * 40))  # p = 2 / 2^6 = 0.03125
    primary, *others = correct([replace(one, is_primary=True), one, one])
    assert primary.supports_difference
    assert [other.corrected for other in others] == [pytest.approx(0.0625)] * 2
    assert not any(other.supports_difference for other in others)


@pytest.mark.parametrize(
    ("train", "test", "outputs", "solved"),
    [
        ("1111", "0001", "aabb", True),  # two each: a, b are the guesses
        ("11111", "00001", "aabbc", False),  # c has one vote, the third place
        ("111", "001", "abc", False),  # one vote each: the first two are guessed
        ("111", "010", "abc", True),
        ("0001", "1101", "aacb", True),  # only the last attempt votes
        ("0000", "1111", "aaaa", False),  # nobody votes, so nothing is guessed
    ],
)
def test_two_guesses(train: str, test: str, outputs: str, solved: bool):
    assert two_guesses_solve(flags(train), flags(train) & flags(test), list(outputs)) is solved


def attempts_table() -> pd.DataFrame:
    """Two first-turn and two later slots; `late` is solved by its last one, `none` had nothing to refine.

    Of `half`, the third attempt is right on what the prompt shows alone.
    """
    rows = [
        ("half", 0, True, True, 10.0),
        ("half", 1, False, False, 30.0),
        ("half", 2, True, False, 100.0),
        ("half", 3, False, False, 100.0),
        ("late", 0, False, False, 20.0),
        ("late", 1, False, False, 20.0),
        ("late", 2, False, False, 100.0),
        ("late", 3, True, True, 100.0),
        ("none", 0, False, False, 6.0),
        ("none", 1, False, False, 6.0),
    ]
    table = pd.DataFrame(rows, columns=["task_id", "slot", "shown_solved", "solved", "tokens"])
    return table.assign(fingerprint="x", prompt_id=[f"{task}/{slot}" for task, slot, *_ in rows])


def test_budget_curve_averages_over_orders_in_the_first_turn_and_counts_later_slots():
    curve = budget_curve(attempts_table(), ["half", "late", "none", "never tried"], 2, 4)
    # one of two attempts solves `half`
    assert curve["solved_tasks"].tolist() == pytest.approx([0.5, 1, 1, 2])
    assert curve["solved"].tolist() == pytest.approx([0.125, 0.25, 0.25, 0.5])
    # means of first turns: 20, 20, 6; later attempts cost 100 in two of the tasks
    assert curve["tokens"].tolist() == pytest.approx([46 / 4, 92 / 4, 292 / 4, 492 / 4])
    # two of four tasks solved at the end: Wilson's interval
    assert (curve["low"].iloc[-1], curve["high"].iloc[-1]) == (
        pytest.approx(0.15, abs=1e-3),
        pytest.approx(0.85, abs=1e-3),
    )


def test_attempts_count_until_a_task_has_generated_its_tokens():
    table = attempts_table().assign(n_tokens=10)
    task_ids = ["half", "late", "none", "never tried"]
    assert spent_tokens(table, task_ids).tolist() == [40, 40, 20, 0]
    # the fourth completion solves `late`
    assert solved_within(table, task_ids, np.array([40.0, 40.0, 20.0, 9.0])).tolist() == [1, 1, 0, 0]
    assert solved_within(table, task_ids, np.array([9.0, 39.0, 20.0, 9.0])).tolist() == [0, 0, 0, 0]


def test_pass_at_k_of_tasks_counts_a_task_without_attempts_as_unsolved():
    first = attempts_table()[lambda table: table["slot"] < 2]
    assert pass_at_k_scores(first, ["half", "never tried"], 1).tolist() == [0.5, 0.0]
    assert pass_at_k_scores(first, ["half", "never tried"], 64).tolist() == [1.0, 0.0]


def test_two_guess_scores_follow_the_order_of_the_tasks():
    assert two_guess_scores(attempts_table(), ["never tried", "half", "none"]).tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("n_tasks", "changed", "n_runs", "run_spread"),
    [
        (300, 0.2, 1, 0.0),
        (300, 0.2, 5, 0.0),
        (1000, 0.5, 3, 0.01),
        (400, 0.5, 10, 0.02),
    ],
)
def test_a_plan_detects_its_difference_in_four_simulated_experiments_of_five(
    n_tasks: int, changed: float, n_runs: int, run_spread: float
):
    """What all runs share of a task's change is what the plan assumes."""
    rng, plan = np.random.default_rng(0), Plan(n_tasks, changed=changed, run_spread=run_spread)
    difference = plan.detects(n_runs)
    found = []
    for _ in range(1500):
        means = difference + rng.normal(0, run_spread, (n_runs, 1))
        is_common = rng.random((n_runs, n_tasks)) < np.sqrt(SHARED)
        places = np.where(is_common, rng.random((1, n_tasks)), rng.random((n_runs, n_tasks)))
        by_first, by_second = places < (changed + means) / 2, places > 1 - (changed - means) / 2  # alone
        found.append(compare("a", "b", by_first.astype(float), by_second.astype(float)).supports_difference)
    assert np.mean(found) == pytest.approx(0.8, abs=0.04)


def test_one_task_shows_nothing_of_others():
    assert Plan(1).detects() == Plan(1, n_attempts=64).detects(3) == math.inf
    assert Plan(400, n_attempts=64).tasks_needed(0.9, 3) == 6  # fewer tasks cannot reach p < 0.05


@pytest.mark.parametrize(("n_tasks", "changed"), [(27, 0.13), (100, 0.02), (100, 0.07)])
def test_no_plan_detects_more_than_the_tasks_that_change(n_tasks: int, changed: float):
    """Even if one side gains all of these tasks, six of them rarely change, or the interval includes 0."""
    plan = Plan(n_tasks, changed=changed)
    assert plan.detects() == math.inf
    rng = np.random.default_rng(0)
    gains = (rng.random((500, n_tasks)) < changed).astype(float)
    found = [compared(gained, np.zeros(n_tasks)).supports_difference for gained in gains]
    assert np.mean(found) < 0.8
    needed = plan.tasks_needed(changed, 1)
    assert needed is not None and math.isfinite(replace(plan, n_tasks=needed).detects())
    assert math.isinf(replace(plan, n_tasks=needed - 1).detects())


def test_a_plan_of_code_expects_what_a_committed_experiment_measured():
    """code-trained: 2.2 and 2.8 points with one sampling of 361 tasks, 6.7 with three trainings."""
    plan = Plan.of("code", 361, 8)
    assert 2.2 < 100 * plan.detects() < 2.8
    assert 100 * plan.detects(3) == pytest.approx(6.7, abs=0.7)
    assert plan.detects(2) == math.inf


@pytest.mark.parametrize("scale", [1e-90, 1.0, 1e90])
def test_intervals_of_runs_do_not_depend_on_the_scale(scale: float):
    table = np.random.default_rng(0).normal(size=(3, 20)) + np.arange(3)[:, None]
    plain, scaled = estimate(table), estimate(table * scale)
    assert scaled.degrees == pytest.approx(plain.degrees)
    assert scaled.low / scale == pytest.approx(plain.low)


def test_a_large_score_hides_no_other_difference():
    a = np.append(np.linspace(0, 1, 19), 1e12)
    b = np.append(np.linspace(0, 1, 19) + 50, 1e12)
    compared = compare("a", "b", [a], [b])
    assert (compared.only_first, compared.only_second) == (0, 19)


def test_the_tasks_that_a_plan_needs_are_the_fewest():
    plan = Plan(100, run_spread=0.0)
    needed = plan.tasks_needed(0.03, 3)
    assert needed is not None
    assert replace(plan, n_tasks=needed).detects(3) <= 0.03 < replace(plan, n_tasks=needed - 1).detects(3)
    assert Plan(100, run_spread=0.02).tasks_needed(0.03, 3) is None  # 2.8 x 2 points / sqrt 3 is 3.2


def test_more_trainings_help_less_than_more_tasks():
    """(1.96 + 0.84) x sqrt(((0.13 n + 1) / (n + 2)^2) x (0.75 + 0.25 / runs)), by hand for n = 398.

    Five trainings take a little more: they seem to vary even if they do not.
    """
    plan = Plan(398, run_spread=0.0)
    assert plan.detects() == pytest.approx(2.8016 * (52.74 / 160_000) ** 0.5, rel=1e-4)
    assert 1 < plan.detects(5) / (2.8016 * (52.74 / 160_000 * 0.8) ** 0.5) < 1.05
