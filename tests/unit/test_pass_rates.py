"""Prompts to train on, chosen by how often they are answered right."""

from collections import Counter
from collections.abc import Iterator

import pytest
from factories import make_attempt, make_prompt, make_task, make_verdict

from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.refining.prompt_files import nothing_selected, with_pass_rate

RIGHT = {"none": "0000", "one": "0100", "half": "1010", "late": "0001", "all": "1111"}


def graded() -> Iterator[GradedAttempt]:
    """Attempts at a task each, 1 for a right one."""
    for task_id, letters in RIGHT.items():
        prompt = make_prompt(make_task(task_id), n_predictions=len(letters))
        for number, letter in enumerate(letters):
            attempt = make_attempt(prompt, attempt_id=f"{prompt.prompt_id}/{number:03d}")
            yield GradedAttempt(prompt, attempt, make_verdict(attempt, solved=letter == "1"))


@pytest.mark.parametrize(
    ("lowest", "highest", "n_considered", "kept", "counts"),
    [
        (0.0, 1.0, 4, ["none", "one", "half", "late", "all"], {}),
        (0.25, 0.5, 4, ["one", "half", "late"], {"n_below_min_pass_rate": 1, "n_above_max_pass_rate": 1}),
        (0.0, 0.0, 3, ["none", "late"], {"n_above_max_pass_rate": 3}),
    ],
)
def test_tasks_are_kept_whose_share_of_right_attempts_is_in_the_range(
    lowest: float, highest: float, n_considered: int, kept: list[str], counts: dict[str, int]
):
    counted: Counter[str] = Counter()
    attempts = list(with_pass_rate(graded(), lowest, highest, n_considered, counted))
    assert [attempt.attempt.task_id for attempt in attempts] == [name for name in kept for _ in range(4)]
    assert counted == counts


def test_a_share_on_the_edge_is_kept():
    # 7 of 100, for which 0.07 * 100 > 7 in floating-point numbers
    prompt = make_prompt(n_predictions=100)
    attempts = [make_attempt(prompt, attempt_id=f"{prompt.prompt_id}/{number:03d}") for number in range(100)]
    graded = [GradedAttempt(prompt, one, make_verdict(one, solved=n < 7)) for n, one in enumerate(attempts)]
    assert len(list(with_pass_rate(graded, 0.07, 0.07, 100, Counter()))) == 100


def test_it_is_said_what_left_no_prompt():
    counts: Counter[str] = Counter()
    assert not list(with_pass_rate(graded(), 0.6, 0.7, 4, counts))
    said = nothing_selected(counts)
    for words in ("4 tasks have fewer", "1 tasks have more"):
        assert words in said
    assert nothing_selected({"n_dropped": 2}) == ""
