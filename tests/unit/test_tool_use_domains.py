"""Tasks of domains as questions of tool use: how they are asked, graded, shown, and kept apart."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from factories import code_question, make_question
from mbpp_rows import mbpp_row
from messages import Wording

from arc_refinery import records
from arc_refinery.config import Sandbox, domain_part
from arc_refinery.domains.code.tasks import CodeTask
from arc_refinery.errors import InputError
from arc_refinery.records.tool_use import Question
from arc_refinery.sandbox import Executor
from arc_refinery.tool_use.config import Questions
from arc_refinery.tool_use.grading.domains import ask, domain_of, question_of, setup_of, subject_of
from arc_refinery.tool_use.grading.rewards import grade_episodes
from arc_refinery.tool_use.questions.sources import questions_of, without_heldout

Executors = tuple[Executor, Executor, Executor]
REFERENCE = "def double(n): return 2 * n"
TESTS = ("assert double(2) == 4", "assert double(-3) == -6", "assert double(0) == 0")
DOUBLE = code_question(*TESTS, n_shown=1, text="Double it.", names=("double",), reference=REFERENCE)


def of_rows(
    path: Path, *rows: dict[str, Any], domain: str = "code", **keys: Any
) -> tuple[list[Question], Counter[str]]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    left_out: Counter[str] = Counter()
    settings = Questions.model_validate({"name": "mine", "domain": domain, "source": "file", "path": str(path), **keys})
    return list(questions_of(settings, "heldout", Sandbox(), left_out)), left_out


@pytest.mark.slow
def test_a_row_is_asked_as_the_domain_asks_in_a_first_turn(tmp_path: Path) -> None:
    questions, left_out = of_rows(tmp_path / "rows.jsonl", *(mbpp_row(index) for index in range(3)))
    assert [question.question_id for question in questions] == [f"mine/mbpp-{index}" for index in range(3)]
    assert not left_out
    for index, question in enumerate(questions):
        row = mbpp_row(index)
        domain, task = subject_of(question)
        assert isinstance(task, CodeTask)
        assert (task.reference, len(task.hidden)) == (row["code"], 4)
        first_turn = domain.first_turn(task, None, None, domain.wording("", ""))  # type: ignore[arg-type]
        assert question.text == first_turn.messages[-1]["content"]
        assert row["text"] in question.text
        assert row["test_list"][0] in question.text
        assert not any(test in question.text for test in row["test_list"][1:])
        assert domain.correct(task).split("\n") == row["test_list"] + row["challenge_test_list"]
    records.write(tmp_path / "q.parquet", Question, questions, 0, {})
    assert list(records.read(tmp_path / "q.parquet", Question)) == questions
    first, _ = of_rows(tmp_path / "rows.jsonl", *(mbpp_row(index) for index in range(3)), n_tasks=2)
    assert first == questions[:2]


@pytest.mark.slow
def test_rows_whose_own_program_fails_give_no_question(tmp_path: Path) -> None:
    wrong = mbpp_row(1) | {"code": "def add_1(values): return 0"}
    questions, left_out = of_rows(tmp_path / "rows.jsonl", mbpp_row(0), wrong)
    assert [question.question_id for question in questions] == ["mine/mbpp-0"]
    ((reason, n),) = left_out.items()
    assert ("mbpp-1" in reason, n) == (True, 1)


def test_an_answer_is_graded_by_its_program(code_executors: Executors) -> None:
    answers = [
        f"<think>\n```python\nnonsense\n```\n</think>\n\nHere:\n```python\n{REFERENCE}\n```<|im_end|>",
        f"```python\n{REFERENCE}\n```\n```python\ndef double(n): return 0\n```",
        REFERENCE,  # no block
        f"<think>\n```python\n{REFERENCE}\n```",  # thinking only
    ]
    graded = grade_episodes(answers, [DOUBLE] * 4, code_executors)
    assert [grade.reward for grade in graded] == [1.0, 0.0, 0.0, 0.0]
    assert [grade.answer.strip() for grade in graded] == [REFERENCE, "def double(n): return 0", "", ""]


@pytest.mark.parametrize(
    ("program", "share"),
    [
        ("def double(n): return 2 * n", 1.0),
        ("def double(n): return n * n", 0.5),  # the shown one, and 0
        ("def double(n): return n + 2", 0.0),  # the shown one
        ("def double(n): return -6 if n < 0 else 2", 0.5),  # not the shown one
        ("def double(n): return 4 if n == 2 else None", 0.0),
        # one value in all
        ("def double(n): return 4", 0.0),
        ("def double(n): return 0", 0.0),
        ("def double(n): pass", 0.0),
        ("def double(n) return n", 0.0),
    ],
)
def test_hidden_tests_alone_count_for_partial_credit(code_executors: Executors, program: str, share: float) -> None:
    (grade,) = grade_episodes([f"```python\n{program}\n```"], [DOUBLE], code_executors)
    assert grade.progress == share


@pytest.mark.parametrize(
    ("tests", "program", "share"),
    [
        (["assert f(1) == 2"], "def f(x): return x + 1", 1.0),  # nothing is hidden
        # a constant program that passes everything is correct
        (["assert f(1) == 2", "assert f(0) == 2"], "def f(x): return 2", 1.0),
        (["assert f(1)", "assert f(2)", "assert not f(3)"], "def f(x): return True", 0.0),
        (["assert f(1)", "assert f(2)", "assert not f(3)"], "def f(x): return x < 2", 0.5),
    ],
)
def test_partial_credit_of_few_or_equal_values(
    code_executors: Executors, tests: list[str], program: str, share: float
) -> None:
    question = code_question(*tests, n_shown=1, names=("f",), reference="def f(x): return x")
    (grade,) = grade_episodes([f"```python\n{program}\n```"], [question], code_executors)
    assert grade.progress == share


def test_tasks_that_are_held_out_are_those_that_the_domain_calls_the_same() -> None:
    other = code_question(*TESTS, task_id="x-1", text="Twice.", names=("double",), reference=REFERENCE)
    third = code_question("assert half(2) == 1", task_id="x-2", text="Half.", names=("half",))
    assert without_heldout([DOUBLE, third], [other]) == ([third], {"held out, by content": 1})
    assert without_heldout([DOUBLE, third], []) == ([DOUBLE, third], {})


LETTERS = "letters"  # tests/environments/letters: a text with all letters of a word


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "environments"))


@pytest.mark.usefixtures("letters")
def test_a_domain_of_the_users_own_is_asked_and_graded(tmp_path: Path) -> None:
    domain_part(LETTERS, "domain:Domain")
    questions, _ = of_rows(tmp_path / "rows.jsonl", {"word": "bread"}, {"word": "tea"}, domain=LETTERS)
    assert "b, r, e, a, d" in questions[0].text
    assert domain_of(LETTERS).from_json(questions[1].task).word == "tea"
    assert setup_of(questions[0]) == ("", "")
    grades = grade_episodes(["A bread.", "Eggs.", "Eat it."], [questions[0], questions[0], questions[1]], ())
    assert [grade.reward for grade in grades] == [1.0, 0.0, 1.0]


@pytest.mark.usefixtures("letters")
def test_what_a_domain_of_the_users_own_gives_is_checked(monkeypatch: pytest.MonkeyPatch, wording: Wording) -> None:
    domain = domain_of(LETTERS)
    task = domain.task({"word": "tea"}, "tea", "here")
    question = question_of(domain, task)

    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("none")

    for member, calls in (
        ("asked", lambda: question_of(domain, task)),
        ("tool_setup", lambda: setup_of(question)),
        ("correct", lambda: ask(question, "correct")),
        ("from_json", lambda: subject_of(question)),
        ("grade_final", lambda: grade_episodes(["Eat."], [question], ())),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(type(domain), member, fails)
            with pytest.raises(InputError, match="ZeroDivisionError") as caught:
                calls()
        wording(caught.value)
    given: tuple[tuple[str, Any], ...] = (
        ("asked", lambda *_: None),
        ("asked", lambda *_: " "),
        ("to_json", lambda *_: '{"task_id": "tea", "word": NaN}'),
        ("n_executors", 4),
    )
    for member, value in given:
        with monkeypatch.context() as patch:
            patch.setattr(type(domain), member, value)
            with pytest.raises(InputError) as caught:
                question_of(domain, task)
        if member != "to_json":  # pydantic's words
            wording(caught.value)
    for grades in ([], [None], iter([1, 2])):
        with monkeypatch.context() as patch:
            patch.setattr(type(domain), "grade", lambda *_, grades=grades: grades)
            with pytest.raises(InputError) as caught:
                grade_episodes(["Eat."], [question], ())
        wording(caught.value)


def test_the_same_words_are_held_out_whatever_their_domains_and_ids_of_rows_say_nothing() -> None:
    train = [make_question("t/1", "Two and two?", "4", "text"), make_question("t/2", "Three and three?", "6", "text")]
    assert without_heldout(train, [make_question("h/7", "two and two", "4")]) == (
        [train[1]],
        {"held out, by content": 1},
    )
    rows = [make_question(name, text) for name, text in (("1", "Two and two?"), ("1", "Three and three?"))]
    assert without_heldout(rows[:1], rows[1:]) == (rows[:1], {})
