"""Pairs of tasks with one text and two rules."""

import json
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from experiments import do

from arc_refinery import records
from arc_refinery.domains.code import two_rules
from arc_refinery.domains.code.config import Problems, TaskSet
from arc_refinery.domains.code.open_points import FIRST_HALF, SECOND_HALF
from arc_refinery.domains.code.tasks import CodeTask

N_PAIRS = 200
Pair = tuple[dict[str, Any], dict[str, Any]]


def pairs(n_pairs: int, seed: int) -> list[Pair]:
    rows = list(two_rules.rows(n_pairs, seed))
    return list(zip(rows[::2], rows[1::2], strict=True))


@pytest.fixture(scope="module")
def first_pairs() -> list[Pair]:
    return pairs(N_PAIRS, 0)


def passed(row: dict[str, Any], tests: list[str]) -> list[bool]:
    """Return which tests a row's own program passes."""
    namespace: dict[str, Any] = {}
    exec(row["reference"], namespace)
    outcomes = []
    for test in tests:
        try:
            exec(test, namespace)
            outcomes.append(True)
        except AssertionError:
            outcomes.append(False)
    return outcomes


def calls(tests: list[str]) -> list[str]:
    return [test.partition(") == ")[0] for test in tests]


def test_a_pair_has_one_text_and_two_ids(first_pairs: list[Pair]):
    assert len(first_pairs) == N_PAIRS
    assert len({row["task_id"] for pair in first_pairs for row in pair}) == 2 * N_PAIRS
    assert len({a["prompt"] for a, _ in first_pairs}) == N_PAIRS
    for a, b in first_pairs:
        assert a["task_id"].removesuffix("a") == b["task_id"].removesuffix("b")
        assert a["prompt"] == b["prompt"] and a["tests"] == b["tests"] and a["reference"] != b["reference"]


def test_only_tests_behind_the_shown_one_tell_which_rule_is_meant(first_pairs: list[Pair]):
    for pair in first_pairs:
        for own, other in (pair, pair[::-1]):
            telling = own["revealed_tests"] + own["hidden_tests"]
            assert passed(own, own["tests"] + telling) == [True] * 7, own["task_id"]
            assert passed(other, own["tests"]) == [True], own["task_id"]
            assert passed(other, telling) == [False] * 6, own["task_id"]


def test_a_pair_has_one_shown_two_revealed_and_four_hidden_inputs(first_pairs: list[Pair]):
    for a, b in first_pairs:
        of_a, of_b = ([calls(row[key]) for key in ("tests", "revealed_tests", "hidden_tests")] for row in (a, b))
        assert of_a == of_b
        assert list(map(len, of_a)) == [1, 2, 4]
        assert len({call for calls_of_kind in of_a for call in calls_of_kind}) == 7


def test_no_constant_passes_the_tests_behind_the_shown_one(first_pairs: list[Pair]):
    for row in (row for pair in first_pairs for row in pair):
        results = Counter(test.partition(") == ")[2] for test in row["revealed_tests"] + row["hidden_tests"])
        assert max(results.values()) <= 3, row["task_id"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_every_pair_can_be_made(seed: int):
    made = pairs(two_rules.n_pairs(seed), seed)
    assert len({a["prompt"] for a, _ in made}) == two_rules.n_pairs(seed) > 350
    assert all(a["tests"] == b["tests"] for a, b in made)


def test_rows_are_the_same_every_time():
    assert json.dumps(pairs(20, 0)) == json.dumps(pairs(20, 0))
    assert pairs(5, 0) == pairs(20, 0)[:5]
    by_id = {row["task_id"]: row for pair in pairs(50, 2) for row in pair}
    again = [row for pair in pairs(50, 0) for row in pair if row["task_id"] in by_id]
    assert again and all(row == by_id[row["task_id"]] for row in again)
    assert [a["task_id"] for a, _ in pairs(50, 0)] != [a["task_id"] for a, _ in pairs(50, 2)]


def test_an_even_and_an_odd_seed_have_other_functions():
    def functions(seed: int) -> Counter[str]:
        return Counter(a["prompt"].split("`")[1].partition("(")[0] for a, _ in pairs(60, seed))

    even, odd = functions(0), functions(1)
    assert not even.keys() & odd.keys()
    # the first pairs have a function each
    assert (len(even), len(odd)) == (len(FIRST_HALF), len(SECOND_HALF)) and max((even + odd).values()) == 2


def test_either_rule_is_the_first_one(first_pairs: list[Pair]):
    rules = {point.name: point.rules for point in FIRST_HALF}
    first = [a["reference"] for a, _ in first_pairs if "def longest_word(" in a["reference"]]
    assert rules["longest_word"] == ("words", "words[::-1]")
    assert 0 < sum("max(words[::-1], key=len)" in program for program in first) < len(first)


def test_a_step_before_and_a_step_after_are_in_the_text_and_in_the_program():
    (point,) = (point for point in SECOND_HALF if point.name == "sort_by_length")
    variant = two_rules.Variant(
        7, point, "", ("leave out the first word in `$x`", "$x[1:]"), ("reverse the resulting list", "$x[::-1]")
    )
    assert variant.text == (
        "Write a function `sort_by_length(words)` that sorts the words in a list by their length, shortest first. "
        "Before doing so, leave out the first word in `words`. Finally, reverse the resulting list."
    )
    assert variant.program("len") == (
        "def sort_by_length(words):\n"
        "    words = words[1:]\n"
        "    result = sorted(words, key=len)\n"
        "    return result[::-1]\n"
    )


@pytest.mark.parametrize(("first_row", "is_right"), [(0, True), (2, False)])
def test_more_pairs_than_there_are_is_an_error(first_row: int, is_right: bool):
    n_tasks = 2 * len({row["task_id"][:-2] for row in two_rules.rows(1000, 1)})
    wrong = nullcontext() if is_right else pytest.raises(ValueError, match=f"seed 1 has {n_tasks}; lower n_tasks")
    with wrong:
        TaskSet(name="test", source="two-rules", n_tasks=n_tasks, first_row=first_row)


@pytest.mark.slow
def test_rows_become_tasks_of_a_set_and_of_a_part(tmp_path: Path):
    evaluated, part = tmp_path / "test.parquet", tmp_path / "part1.parquet"
    task_set = TaskSet(name="test", source="two-rules", n_tasks=6, first_row=4)
    do("evaluation_tasks", {"domain": "code", "task_set": task_set.model_dump(), "sandbox": {}}, output=evaluated)
    problems = Problems(source="two-rules", n_tasks=4, seed=1)
    settings = {"domain": "code", "problems": problems.model_dump(), "sandbox": {}, "tasks_per_part": None}
    do("tasks", settings, output=[part])
    expected = [row["task_id"] for row in two_rules.rows(5, 1)]
    assert records.texts(evaluated, CodeTask, "task_id") == expected[4:]
    assert sorted(records.texts(part, CodeTask, "task_id")) == sorted(expected[:4])
    assert {task.origin for task in records.read(evaluated, CodeTask)} == {"two-rules"}
    assert not records.notes(evaluated)["problems_left_out"]
