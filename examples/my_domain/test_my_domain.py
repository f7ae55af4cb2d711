"""Tests of the domain: `pytest my_domain`. Change them with the domain."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from arc_refinery.config import Sandbox, check_files, load_experiment
from arc_refinery.domains.domain import Answer, load_domain

FOLDER = Path(__file__).parent
DOMAIN = load_domain("my_domain")
ROW = {"question": "Print twice n.", "shown": [{"n": 3, "output": "6"}], "hidden": [{"n": 10, "output": "20"}]}
TASK = DOMAIN.task(ROW, "twice", "row 1")


def graded(answer: str) -> Any:
    with DOMAIN.executors(Sandbox(), 1) as executors:
        (grade,) = DOMAIN.grade([Answer(answer, TASK)], executors)
    return grade


def feedback(answer: str) -> str:
    return DOMAIN.feedback(SimpleNamespace(detail=TASK), graded(answer), None)


def test_a_right_program_solves_the_task() -> None:
    grade = graded("```python\nprint(2 * n)\n```")
    assert (grade.status, grade.score, grade.is_solved) == ("ok", 1.0, True)


def test_a_hidden_case_decides_whether_a_task_is_solved() -> None:
    grade = graded("```python\nprint(6)\n```")
    assert (grade.status, grade.score, grade.is_solved) == ("ok", 1.0, False)


def test_feedback_says_what_a_wrong_program_printed() -> None:
    assert feedback("```python\nprint(n + 2)\n```").startswith("For n = 3 your program printed '5', expected '6'.")


def test_feedback_says_why_a_program_failed() -> None:
    assert "ZeroDivisionError" in feedback("```python\nprint(n / 0)\n```")


def test_an_answer_without_a_program_has_no_score() -> None:
    grade = graded("I do not know.")
    assert (grade.status, grade.score, grade.is_solved) == ("no_code", 0.0, False)


def test_feedback_does_not_depend_on_hidden_cases() -> None:
    assert "20" not in feedback("```python\nprint(n + 2)\n```")
    assert graded("```python\nprint(n + 2 if n < 9 else 1 / 0)\n```").status == "ok"


def test_the_rows_are_tasks_and_the_config_is_valid() -> None:
    left_out: Counter[str] = Counter()
    assert len(list(DOMAIN.tasks_of_file(FOLDER / "tasks.json", left_out))) == 4
    assert not left_out
    config = FOLDER / "my_domain.yaml"
    check_files(load_experiment(config), str(config))
