"""Figures of a step of GRPO, counted by hand."""

import pytest

from arc_refinery.training.rewards import ScoredCompletion, ngram_repetition, step_metrics, unique_token_ratio


@pytest.mark.parametrize(("ids", "expected"), [([], 1.0), ([7], 1.0), ([7, 7, 7, 7], 1 / 4), ([1, 2, 1, 3], 3 / 4)])
def test_unique_tokens(ids: list[int], expected: float):
    assert unique_token_ratio(ids) == expected


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], 0.0),
        ([5, 5, 5], 0.0),  # too short for a 4-gram
        ([5, 5, 5, 5], 0.0),  # one, and nothing before it
        ([5, 5, 5, 5, 5], 1 / 2),
        ([1, 2, 3, 4, 5, 6, 7, 8], 0.0),
        ([1, 2, 3, 4, 1, 2, 3, 4], 1 / 5),  # 1234 2341 3412 4123 1234
    ],
)
def test_repeated_4_grams(ids: list[int], expected: float):
    assert ngram_repetition(ids) == pytest.approx(expected)


FAILURES = ("no_code", "error", "invalid_output", "timeout", "memory", "crash", "protocol")
STEP = [
    ScoredCompletion([1, 2, 3, 4, 5], False, 10.0, "ok", True),
    ScoredCompletion([1, 2, 3, 4, 5], False, 1.0, "ok", False),
    ScoredCompletion([7, 7, 7, 7, 7], True, 0.0, "no_code", False),
    ScoredCompletion([1, 1, 2, 2], False, 0.0, "timeout", False),
]


def test_figures_of_a_step():
    metrics = step_metrics(STEP, 2, FAILURES)
    expected = {
        "reward/max": 10.0,
        "reward/min": 0.0,
        "reward/truncated": 0.0,
        "reward/finished": 11 / 3,
        "share/solved": 1 / 4,
        "share/zero_variance": 1 / 2,  # rewards 10, 1 and 0, 0
        "share/truncated": 1 / 4,
        "share/no_code": 1 / 4,
        "share/error": 0.0,
        "share/invalid_output": 0.0,
        "share/timeout": 1 / 4,
        "share/memory": 0.0,
        "share/crash": 0.0,
        "share/protocol": 0.0,
        "unique_tokens/truncated": 1 / 5,
        "unique_tokens/finished": (1 + 1 + 1 / 2) / 3,
        "repetition/truncated": 1 / 2,
        "repetition/finished": 0.0,
        "repetition": 1 / 8,
    }
    assert metrics == pytest.approx(expected)


def test_refining_logs_the_share_of_every_failure():
    from arc_refinery.refining import scoring

    assert sorted(scoring.FAILURES) == sorted(FAILURES)


def test_no_group_of_four_has_equal_rewards():
    assert step_metrics(STEP, group_size=4)["share/zero_variance"] == 0.0


@pytest.mark.parametrize(("truncated", "absent"), [(False, "truncated"), (True, "finished")])
def test_figures_of_no_completions_are_absent(truncated: bool, absent: str):
    metrics = step_metrics([completion for completion in STEP if completion.truncated is truncated], 1, FAILURES)
    missing = {f"{what}/{absent}" for what in ("reward", "unique_tokens", "repetition")}
    assert missing.isdisjoint(metrics)
    assert len(metrics) == 19 - len(missing)


@pytest.mark.parametrize("n", [0, 3])
def test_broken_groups_are_refused(n: int):
    with pytest.raises(ValueError, match=f"{n} completions do not form groups of 2"):
        step_metrics(STEP[:n], group_size=2)
