"""The domains `gsm8k` and `text`: what is asked, which calculations are right, and what feedback says."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from arc_refinery.config import Sandbox
from arc_refinery.domains.domain import Answer, Domain, load_domain
from arc_refinery.domains.gsm8k.config import TaskSet
from arc_refinery.domains.gsm8k.domain import Problem, calculations
from arc_refinery.domains.text.domain import Asked

HATS = Problem(
    "hats-1", "Ann has 2 rows of 3 hats and buys 8. How many?", "14", "2*3=<<2*3=6>>6 hats.\n6+8=<<6+8=14>>14"
)
PERU = Asked("peru", "Capital of Peru?", "Lima")
PROMPT = SimpleNamespace(messages=(), detail=HATS)


@pytest.fixture(scope="module")
def gsm8k() -> Domain:
    return load_domain("gsm8k")


def grade_of(domain: Domain, text: str, task: Any = HATS) -> Any:
    (grade,) = domain.grade([Answer(text, task)], ())
    return grade


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 * 3 = 6, and 6 + 8 = 14.", [("2 * 3", True), ("6 + 8", True)]),
        ("So 2*3=7 hats", [("2*3", False)]),
        ("She pays 3 × $4.50 = $13.50.", [("3 × $4.50", True)]),
        ("10 / 3 = 3.33", [("10 / 3", True)]),  # rounded to what is written
        ("10 / 3 = 3.3", [("10 / 3", True)]),
        ("10 / 3 = 3.34", [("10 / 3", False)]),
        ("10 / 3 = 3", [("10 / 3", False)]),
        ("1,200 - 200 = 1,000", [("1,200 - 200", True)]),
        ("20% * 50 = 10", [("20% * 50", True)]),
        ("(2 + 3) * 4 = 20", [("(2 + 3) * 4", True)]),
        ("2 + 3 * 4 = 20", [("2 + 3 * 4", False)]),
        ("5 - 8 = -3", [("5 - 8", True)]),
        ("2*3=<<2*3=6>>6", [("2*3", True)]),  # once
        ("4 / 0 = 0", []),  # it has no value
        ("x = 3, 3 = 3, 2 hats + 3 = 5, 7 * y = 14", []),
        ("2 * 3 + 4 = 6 + 4 = 10", [("6 + 4", True)]),  # the end of a chain
        ("(2 + 3 = 5)", [("2 + 3", True)]),
        ("60 hats * 2/3 = 40, half of 10/2 = 5", []),  # begins before what can be read
        ("100 / 7 = 14.285714285714286", [("100 / 7", True)]),
        ("2^3 + 1 = 9, 2 1/2 * 4 = 10, 7 / 2 = 3 1/2, 5 + 3 = 2^3, √9 + 1 = 4, 10:2 + 3 = 8", []),
        ("1+" * 20_000 + "1", []),
        ("14", []),
    ],
)
def test_the_calculations_that_an_answer_writes(text: str, expected: list[tuple[str, bool]]) -> None:
    assert [(one.expression, is_right) for one, is_right in calculations(text)] == expected


@pytest.mark.parametrize(
    ("text", "status", "score", "is_solved", "number"),
    [
        ("2*3 = 6, 6+8 = 14\n#### 14", "ok", 1.0, True, "14"),
        ("2*3 = 6, 6+8 = 15\n#### 15", "ok", 0.5, False, "15"),
        ("2*3 = 7, 6+8 = 14\n#### 14", "ok", 0.5, True, "14"),
        ("#### 14", "ok", 1.0, True, "14"),
        ("#### 13", "ok", 1.0, False, "13"),
        ("I do not know.", "no_code", 0.0, False, None),
    ],
)
def test_calculations_are_shown_checks_and_the_number_is_hidden(
    gsm8k: Domain, text: str, status: str, score: float, is_solved: bool, number: str | None
) -> None:
    grade = grade_of(gsm8k, text)
    assert (grade.status, grade.score, grade.is_solved, grade.code) == (status, score, is_solved, number)


def test_feedback_is_about_the_calculations_alone(gsm8k: Domain) -> None:
    wrong = gsm8k.feedback(PROMPT, grade_of(gsm8k, "2*3 = 7, and 7+8 = 16\n#### 16"), None)
    assert wrong.startswith("2*3 = 7 is wrong: 2*3 is 6.\n7+8 = 16 is wrong: 7+8 is 15.\n\nCorrect your answer. ")
    assert gsm8k.feedback(PROMPT, grade_of(gsm8k, "?"), None).startswith("Your answer has no number behind `####`.")
    said = {
        gsm8k.feedback(PROMPT, grade_of(gsm8k, text, HATS), None) for text in ("2*4 = 8\n#### 8", "6+8 = 14\n#### 14")
    }
    assert len(said) == 1  # right or not


def test_answers_that_differ_have_different_fingerprints(gsm8k: Domain) -> None:
    text = load_domain("text")
    grades: list[tuple[Domain, Any, Any]] = [(gsm8k, HATS, grade_of(gsm8k, f"#### {number}")) for number in (13, 14)]
    grades += [(text, PERU, grade_of(text, said, PERU)) for said in ("#### Lima", "#### Rome")]
    assert len({domain.result(grade, None, task).fingerprint for domain, task, grade in grades}) == 4


def test_a_draft_in_a_thought_is_no_answer(gsm8k: Domain) -> None:
    assert not gsm8k.has_closed_code("<think>\n#### 14")
    assert gsm8k.program("<think>\n#### 13\n</think>\n\n#### 14", HATS) == "14"


def test_the_question_is_asked_and_its_answer_demonstrated(gsm8k: Domain) -> None:
    (message,) = gsm8k.first_turn(HATS, np.random.default_rng(0), None, None).messages
    assert message["content"].startswith(HATS.question)
    assert gsm8k.asked(HATS) == HATS.question
    answers = gsm8k.source_answers([HATS], None, ())
    assert answers == {"hats-1": "2*3=6 hats.\n6+8=14\n#### 14"}
    assert grade_of(gsm8k, answers["hats-1"]).is_solved
    assert gsm8k.from_json(gsm8k.to_json(HATS)) == HATS


def test_a_broken_answer_has_another_number_in_one_place(gsm8k: Domain) -> None:
    whole = gsm8k.source_answers([HATS], None, ())["hats-1"]
    broken = gsm8k.broken(HATS, whole, np.random.default_rng(0))
    for _ in range(20):
        assert next(broken) != whole


def test_tasks_of_rows_and_generated_ones(gsm8k: Domain, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "2 + 3?", "answer": "2+3=<<2+3=5>>5\\n#### 5"}\n' * 3)
    task_set = TaskSet(name="mine", path=str(path), n_tasks=2, first_row=1)
    tasks = list(gsm8k.tasks_of_set(task_set, Counter(), Sandbox(), "heldout"))
    assert [task.task_id for task in tasks] == ["rows-000002", "rows-000003"]
    generated = TaskSet(name="mine", source="generator", levels=(1, 3), n_tasks=4)
    made = list(gsm8k.tasks_of_set(generated, Counter(), Sandbox(), "train"))
    assert [task.task_id for task in made] == ["000000", "000001", "000002", "000003"]
    answers = gsm8k.source_answers(made, None, ())
    for task in made:
        grade = grade_of(gsm8k, answers[task.task_id], task)
        assert (grade.is_solved, grade.score) == (True, 1.0)
        assert grade.n_calculations >= 1


def test_a_short_text_is_right_up_to_case_and_marks() -> None:
    text = load_domain("text")
    said = ["#### lima.", "It is Lima", "LIMA", "#### Cusco"]
    grades = [grade_of(text, answer, PERU) for answer in said]
    assert [grade.is_solved for grade in grades] == [True, False, True, False]
    assert [grade.score for grade in grades] == [1.0, 0.0, 0.0, 1.0]
    assert "Lima" not in text.feedback(PROMPT, grades[3], None)
    assert text.source_answers([PERU], None, ()) == {}
