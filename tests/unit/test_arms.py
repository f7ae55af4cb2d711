"""Figures of tasks, arms and turns, from tables of attempts that were made by hand."""

from typing import Any

import pandas as pd
import pytest
from handmade import results_of

from arc_refinery.domains.arc.domain import Domain
from arc_refinery.evaluation.attempts import (
    Results,
    n_tasks_with_budget_left,
    per_task,
    tasks_with_attempts,
    turns_of,
    with_outcomes,
)
from arc_refinery.evaluation.metrics import PROGRAMS, names
from arc_refinery.refining.config import Arm, Turn

INDEPENDENT = Arm(name="independent", turns=(Turn(n_predictions=4),))
BASE = Arm(name="refine-base", turns=(Turn(n_predictions=2), Turn(n_predictions=2)))
TRAINED = Arm(name="refine-trained", turns=(Turn(n_predictions=2), Turn(n_predictions=2, adapter="trained")))


def attempt(
    task_id: str,
    index: int,
    status: str,
    fingerprint: str = "",
    train: tuple[float, float] = (0.0, 0.0),
    test: tuple[float, float] = (0.0, 0.0),
) -> dict[str, Any]:
    """One row; `train` and `test` are (pixel score, share of correct grids)."""
    return {
        "attempt_id": f"{task_id}/{index}",
        "task_id": task_id,
        "sample": index,
        "has_closed_code": status == "ok",
        "status": status,
        "fingerprint": fingerprint,
        "train_pixel_score": train[0],
        "train_correct_grids": train[1],
        "test_pixel_score": test[0],
        "test_correct_grids": test[1],
        "solved": train[1] == test[1] == 1,
    }


def four_attempts() -> pd.DataFrame:
    return with_outcomes(
        Domain().derive(
            pd.DataFrame(
                [
                    attempt("mixed", 0, "ok", "A", train=(0.5, 0.25), test=(0.5, 0)),
                    attempt("mixed", 1, "ok", "A", train=(0.5, 0.25), test=(0.5, 0)),
                    attempt("mixed", 2, "ok", "B", train=(1, 1), test=(0.75, 0.5)),
                    attempt("mixed", 3, "error"),
                    attempt("dumb", 0, "no_code"),
                    attempt("dumb", 1, "timeout"),
                    attempt("split", 0, "ok", "C", train=(1, 1), test=(0, 0)),
                    attempt("split", 1, "ok", "D", train=(0, 0), test=(1, 1)),
                ]
            )
        )
    )


def test_figures_of_a_task_are_means_over_its_attempts():
    metrics = per_task(four_attempts(), ["mixed"], (*PROGRAMS, *Domain.metrics)).loc["mixed"]
    expected = {
        "valid code": 3 / 4,
        "any code": 1.0,
        "valid outputs": 3 / 4,
        "unique outputs": 2 / 4,  # A, B
        "train_pixel_score": (0.5 + 0.5 + 1) / 4,
        "train_correct_grids": (0.25 + 0.25 + 1) / 4,
        "train_pass_rate": 1 / 4,
        "train_is_correct": 1.0,
        "test_pixel_score": (0.5 + 0.5 + 0.75) / 4,
        "test_correct_grids": 0.5 / 4,
        "test_pass_rate": 0.0,
        "test_is_correct": 0.0,
        "is_correct": 0.0,
        "solved": 0.0,
        "pass_rate": 0.0,
    }
    assert metrics.to_dict() == pytest.approx(expected)
    assert tuple(metrics.index) == (*names((*PROGRAMS, *Domain.metrics)), "pass_rate")


def test_a_domain_without_metrics_has_those_that_all_have():
    metrics = per_task(four_attempts(), ["mixed", "split"], PROGRAMS)
    assert metrics.T.to_dict("list") == {
        "mixed": [3 / 4, 1.0, 3 / 4, 2 / 4, 0.0, 0.0],
        "split": [1.0, 1.0, 1.0, 1.0, 0.0, 0.0],
    }
    names = ["valid code", "any code", "valid outputs", "unique outputs", "solved", "pass_rate"]
    assert list(metrics.columns) == names


def test_code_that_never_ended_is_code_without_outputs():
    metrics = per_task(four_attempts(), ["dumb"], (*PROGRAMS, *Domain.metrics)).loc["dumb"]
    assert metrics["any code"] == 0.5
    assert metrics.drop("any code").tolist() == [0.0] * (len(metrics) - 1)


def test_a_task_is_solved_by_one_attempt_that_is_right_on_train_and_on_test():
    metrics = per_task(four_attempts(), ["split"], (*PROGRAMS, *Domain.metrics)).loc["split"]
    assert metrics["train_pass_rate"] == metrics["test_pass_rate"] == 0.5
    assert metrics["pass_rate"] == metrics["solved"] == 0.0
    assert metrics["is_correct"] == 1.0  # as published


def test_tasks_keep_their_order_and_one_without_attempts_counts_as_zero():
    metrics = per_task(four_attempts(), ["split", "untried", "mixed"], (*PROGRAMS, *Domain.metrics))
    assert list(metrics.index) == ["split", "untried", "mixed"]
    assert metrics.loc["untried"].tolist() == [0.0] * len(metrics.columns)


def test_no_attempts_at_all_give_zeros():
    assert per_task(four_attempts()[:0], ["a", "b"], (*PROGRAMS, *Domain.metrics)).to_numpy().sum() == 0.0


def results() -> Results:
    first = [attempt(task, index, "ok", "A") for task in ("x", "y") for index in range(4)]
    base = [attempt("x", index, "ok", "B") for index in range(2)]
    trained = [attempt("x", index, "ok", "C") for index in range(3)]
    tables = {"turn1": first, "refine-base-turn2": base, "refine-trained-turn2": trained}
    return results_of((BASE, TRAINED), {name: pd.DataFrame(rows) for name, rows in tables.items()}, "xy")


def test_an_arm_owns_the_first_attempts_of_each_turn():
    owned = results().attempts_of_arm(TRAINED)
    x, y = (owned[owned["task_id"] == task] for task in ("x", "y"))
    assert x["fingerprint"].tolist() == ["A", "A", "C", "C"]
    assert x["slot"].tolist() == [0, 1, 2, 3]
    assert x["turn"].tolist() == [1, 1, 2, 2]
    assert y["slot"].tolist() == [0, 1]


def test_turns_after_an_unspent_one_keep_their_slots():
    arm = Arm(name="three", turns=(Turn(n_predictions=1), Turn(n_predictions=2), Turn(n_predictions=1)))
    rows = {
        "turn1": [attempt("x", 0, "ok")],
        "three-turn2": [attempt("x", 0, "ok")],
        "three-turn3": [attempt("x", 0, "ok")],
    }
    results = results_of([arm], {name: pd.DataFrame(row) for name, row in rows.items()}, "x")
    owned = results.attempts_of_arm(arm)
    assert owned["slot"].tolist() == [0, 1, 3]


def test_tasks_with_budget_left_are_counted():
    owned = results().attempts_of_arm(BASE)
    assert n_tasks_with_budget_left(owned, BASE, ["x", "y", "untried"]) == 2
    assert tasks_with_attempts(results().attempts_of_turn(BASE, 2), ["y", "x"]) == ["x"]


def test_arms_with_equal_first_turns_share_one_row():
    rows = [
        (turn.branch, turn.n_predictions, [arm.name for arm in turn.arms])
        for turn in turns_of([INDEPENDENT, BASE, TRAINED])
    ]
    assert rows == [
        ("turn1", 4, ["independent"]),
        ("turn1", 2, ["refine-base", "refine-trained"]),
        ("refine-base-turn2", 2, ["refine-base"]),
        ("refine-trained-turn2", 2, ["refine-trained"]),
    ]
