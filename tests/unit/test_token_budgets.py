"""Tokens of attempts with prompts counted: once for all attempts that share one, or for each attempt."""

import json
from collections.abc import Sequence

import handmade_programs as handmade
import pandas as pd
import pytest
from handmade import results_of

from arc_refinery.config import validate_experiment
from arc_refinery.evaluation.attempts import Results
from arc_refinery.evaluation.statistics import solved_within, spent_tokens
from arc_refinery.refining.config import Refining
from arc_refinery.reporting.tables import equal_tokens_tables, spending


def experiment() -> Refining:
    """Arm `independent` of 4 attempts, arm `refine` of 2 + 2."""
    content = json.loads(json.dumps(handmade.settings("training.jsonl", "rows.jsonl", "")))
    del content["training"], content["parts"], content["problems"]
    content["evaluation"] = {
        "sets": content["evaluation"]["sets"],
        "arms": [
            {"name": "independent", "turns": [{"n_predictions": 4}]},
            {"name": "refine", "turns": [{"n_predictions": 2}, {"n_predictions": 2}]},
        ],
    }
    return validate_experiment(content, "test", Refining)


def attempts(solving: dict[str, Sequence[int]], n: int, n_prompt_tokens: int) -> pd.DataFrame:
    """Attempts of 10 tokens, two per prompt; `solving`: which of them solve a task."""
    rows = [
        {"task_id": task_id, "sample": place, "solved": place in places}
        for task_id, places in solving.items()
        for place in range(n)
    ]
    return pd.DataFrame(rows).assign(
        n_tokens=10,
        tokens=10 + n_prompt_tokens / 2,
        tokens_unshared=10 + n_prompt_tokens,
        finish_reason="stop",
    )


@pytest.fixture
def results() -> Results:
    branches = {
        "turn1": attempts({"a": [3], "b": []}, 4, n_prompt_tokens=20),
        "refine-turn2": attempts({"a": [1], "b": [0]}, 2, n_prompt_tokens=60),
    }
    return results_of(experiment().arms, branches, "ab")


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_arms_are_limited_to_equal_tokens_of_each_sort(results: Results):
    generated, with_prompts = equal_tokens_tables(experiment(), results)
    # `a` is solved by the fourth attempt of both arms, `b` by the third of `refine`; both generate 40 tokens
    (row,) = cells(generated)
    assert row[:3] == ["`refine` − `independent`", "40 / 40", "2 − 1 of 2"]
    assert row[3].startswith("+50.0 [")
    # once: 4 x 20 tokens against 20 + 20 + 40 + 40, of which 80 pay for three attempts, so `a` is not refined in time
    # per attempt: 4 x 30 against 30 + 30 + 70 + 70, of which 120 pay for two attempts
    (row,) = cells(with_prompts)
    assert (row[1], row[2][:5], row[3], row[4][:6]) == ("120 / 80", "+0.0 ", "200 / 120", "−50.0 ")


def test_arms_spend_tokens_of_each_sort(results: Results):
    table, *_ = spending(results, experiment().arms, has_guesses=False)
    rows = cells(table)
    assert [row[4:6] for row in rows] == [["80", "120"], ["120", "200"]]


@pytest.mark.parametrize("n_sharing", [3, 7])
def test_an_arm_can_pay_for_all_of_its_attempts(n_sharing: int):
    """Shares of a prompt are fractions, whose sums depend on how they are added."""
    for n_attempts in range(2, 65):
        table = pd.DataFrame({"task_id": "a", "slot": range(n_attempts), "tokens": 5 + 100 / n_sharing})
        table = table.assign(solved=table["slot"] == n_attempts - 1)
        tokens = spent_tokens(table, ["a"], "tokens")
        assert solved_within(table, ["a"], tokens, "tokens").tolist() == [1.0]
        assert solved_within(table, ["a"], tokens - 1, "tokens").tolist() == [0.0]
