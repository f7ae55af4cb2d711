"""Answers in domain `code`: grades of right, wrong and hostile programs, and feedback that hides the hidden tests."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pandas as pd
import pytest
from messages import Wording as Golden

from arc_refinery import records
from arc_refinery.domains.code.config import FORMS, FeedbackForm
from arc_refinery.domains.code.feedback import feedback
from arc_refinery.domains.code.grading import CodeDetail, CodeGrade, Executors, grade
from arc_refinery.domains.code.tasks import CodeTask, read_tasks
from arc_refinery.domains.code.wording import (
    Wording,
    first_turn,
    load_wording,
    save_wording,
)
from arc_refinery.domains.domain import load_domain
from arc_refinery.errors import InputError

DOUBLE = CodeTask(
    task_id="double",
    text="Double it.",
    names=("double",),
    shown=("assert double(2) == 4", "assert double(30) == 60"),
    hidden=("assert double(771) == 1542", "assert double(-882) == -1764"),
    reference="def double(n):\n    return 2 * n",
)
DOMAIN = load_domain("code")
END = "Correct the program. Write the whole program in one ```python block, without tests."


def graded(code_executors: Executors, program: str, task: CodeTask = DOUBLE) -> CodeGrade:
    (only,) = grade([(f"Here it is:\n```python\n{program}\n```", task)], code_executors)
    return only


@pytest.mark.parametrize(
    ("program", "status", "score", "hidden"),
    [
        ("def double(n): return 2 * n", "ok", 1.0, 1.0),
        ("def double(n): return 2 * n if n < 100 else 0", "ok", 1.0, 0.5),
        ("def double(n): return 4", "ok", 0.5, 0.0),
        ("def double(n): return None", "ok", 0.0, 0.0),
        ("def double(n): return 1 / 0", "ok", 0.0, 0.0),
        ("def double(n): return lambda: n", "ok", 0.0, 0.0),
        ("def twice(n): return 2 * n", "ok", 0.0, 0.0),
        ("def double(n) return n", "error", 0.0, 0.0),
        ("raise ValueError", "error", 0.0, 0.0),
        pytest.param(
            "def double(n):\n    while n == 30: pass\n    return 2 * n", "timeout", 0.5, 1.0, marks=pytest.mark.slow
        ),
        pytest.param(
            "def double(n):\n    while n > 100: pass\n    return 2 * n", "ok", 1.0, 0.0, marks=pytest.mark.slow
        ),  # hidden tests are one run
        ("def double(n): return [n] * 10**9", "memory", 0.0, 0.0),
    ],
)
def test_grades(code_executors: Executors, program: str, status: str, score: float, hidden: float):
    check_grade(graded(code_executors, program), status, score, hidden)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "status", "score", "hidden"),
    [
        ("def double(n):\n    while n == 30: pass\n    return 2 * n", "timeout", 0.5, 1.0),
        ("def double(n):\n    while n == 771: pass\n    return 2 * n", "ok", 1.0, 0.0),  # hidden tests are one run
        ("while True: pass", "timeout", 0.0, 0.0),
    ],
)
def test_grades_of_programs_that_do_not_end(
    code_executors: Executors, program: str, status: str, score: float, hidden: float
):
    check_grade(graded(code_executors, program), status, score, hidden)


def check_grade(grade: CodeGrade, status: str, score: float, hidden: float) -> None:
    assert (grade.status, grade.score, grade.hidden_score) == (status, score, hidden)
    assert grade.is_valid == (status == "ok")
    assert grade.is_solved == (score == hidden == 1.0)
    assert (grade.detail.shown_passed, grade.detail.hidden_passed) == (score, hidden)


@pytest.mark.parametrize(
    ("program", "share", "raised"),
    [
        ("def double(n): return 2 * n if n < 5 else 1 / 0", 0.5, True),  # status is ok
        ("def double(n): return 0", 0.0, False),
        ("raise ValueError", 0.0, True),  # before it is called
        ("def double(n): return [n] * 10**9", 0.0, False),  # was stopped
    ],
)
def test_a_program_that_raises_in_a_shown_test_failed_with_an_exception(
    code_executors: Executors, program: str, share: float, raised: bool
):
    grade = graded(code_executors, program)
    row = {"status": grade.status, "score": grade.score, "shown_raised": grade.detail.shown_raised}
    table = DOMAIN.derive(pd.DataFrame([row]))
    assert (grade.detail.shown_raised, table["raised"].tolist()) == (share, [raised])


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("print('passed', flush=True)\ndef double(n):\n    print(4)\n    return 2 * n", "solved"),
        ("def double(n): return int(input())", "ok"),
        ("def double(n): exit()", "ok"),
        ("def double(n):\n    import os\n    os._exit(0)", "crash"),
        ("import sys\nsys.exit(0)", "error"),
        ("import os\nos._exit(0)", "crash"),
        ("import os\nos.write(3, b'ok')\ndef double(n): return 4", "protocol"),
        ("def check(f): pass\ndef repr(x): return '4'\nassert_ = check\ndef double(n): return 0", "ok"),
        ("value_0_of_the_candidate = 4\ndef double(n):\n    global value_0_of_the_candidate\n    return 0", "ok"),
        ("class A(int):\n    __eq__ = lambda *_: True\n    __hash__ = None\ndef double(n): return A(0)", "ok"),
        ("import builtins\nbuiltins.bool = lambda *_: True\ndef double(n): return 0", "ok"),
        ("class A(int):\n    def __repr__(self): raise SystemExit\ndef double(n): return A(0)", "ok"),
    ],
)
def test_what_a_program_does_is_a_verdict(code_executors: Executors, program: str, status: str):
    graded_program = graded(code_executors, program)
    assert graded_program.status == ("ok" if status == "solved" else status)
    assert graded_program.is_solved == (status == "solved")
    for form in FORMS:
        assert feedback(graded_program, Wording(form=form)).endswith(END)


def test_an_answer_is_graded_by_its_last_program_after_the_thought(code_executors: Executors):
    right, wrong = DOUBLE.reference, "def double(n): return 0"
    answers = [
        f"```python\n{wrong}\n```\nBetter:\n```python\n{right}\n```\nFor example:\n```python\nprint(double(2))\n```",
        f"<think>```python\n{wrong}\n```</think>```python\n{right}\n```",
        f"<think>\n```python\n{right}\n```",
        "I do not know.",
    ]
    grades = list(grade([(answer, DOUBLE) for answer in answers], code_executors))
    assert [answer.status for answer in grades] == ["ok", "ok", "no_code", "no_code"]
    assert [answer.is_solved for answer in grades] == [True, True, False, False]
    assert grades[3] == CodeGrade("no_code")
    shown = [DOMAIN.program(answer, DOUBLE) for answer in answers]
    assert shown == [f"{right}\n", f"{right}\n", None, None]
    assert [DOMAIN.has_closed_code(answer) for answer in answers] == [True, True, False, False]
    assert not DOMAIN.has_closed_code(f"```python\n{right}")  # truncated


@pytest.mark.parametrize(
    "tests",
    [["assert Stack(3).top() == 3", "assert Stack(4).top() == 4"], ["assert Stack().put(1).put(2).top() == 2"]],
)
def test_a_class_without_a_reference_is_used_as_its_tests_use_it(
    tmp_path: Path, code_executors: Executors, tests: list[str]
):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "A stack.", "tests": tests}))
    (task,) = read_tasks(path, None, {})
    program = (
        "class Stack:\n    def __init__(self, *xs): self.xs = list(xs)\n    def top(self): return self.xs[-1]\n"
        "    def put(self, x): return Stack(*self.xs, x)\n"
    )
    assert graded(code_executors, program, task).is_solved
    assert not graded(code_executors, program.replace("-1", "0").replace("*xs", "*_, xs=(5,)"), task).is_solved


def test_a_programs_own_tests_do_not_count(code_executors: Executors):
    answer = f"```python\nassert double(1) == 3\n{DOUBLE.reference}\nassert double(2) == 5\n```"
    (grade_of_it,) = grade([(answer, DOUBLE)], code_executors)
    assert (grade_of_it.status, grade_of_it.is_solved) == ("ok", True)
    assert DOMAIN.program(answer, DOUBLE) == f"\n{DOUBLE.reference}"


def test_programs_that_give_the_same_on_the_shown_tests_have_one_fingerprint(code_executors: Executors):
    programs = [
        "def double(n): return 5",
        "def double(n): return 5 if n < 100 else 6",
        "def double(n): return 6",
        "def double(n): raise KeyError(n)",
        "def double(n):\n\n    raise KeyError(n)",
        "x = 1 / 0",
        "def double(n): return [1] * 20_000",
        "def double(n): return [2] * 20_000",
    ]
    five, also_five, six, raising, also_raising, invalid, ones, twos = (
        graded(code_executors, code).fingerprint for code in programs
    )
    assert five == also_five
    assert raising == also_raising
    assert len({five, six, raising, ""}) == 4
    assert invalid == ""
    assert ones != twos  # too large to be compared


FAILING_TESTS: list[tuple[str, str]] = [
    (
        "def double(n): return 4",
        "Your program passes 1 of 2 tests.\n\nassert double(30) == 60\ndouble(30) returned 4, expected 60",
    ),
    (
        "def double(n):\n    if n > 2:\n        return n / 0\n    return 4",
        "Your program passes 1 of 2 tests.\n\n"
        "assert double(30) == 60\ndouble(30) raised ZeroDivisionError: division by zero (line 3)",
    ),
    ("def double(n) return n", "Your program raised SyntaxError: expected ':' (line 1)\ndef double(n) return n"),
    # an example, appended unasked behind an assert
    (
        "def double(n):\n    return n + 2\nassert double(1) == 2\nint('x')",
        "Your program raised ValueError: invalid literal for int() with base 10: 'x' (line 4)\nint('x')",
    ),
    (
        "def twice(n): return 4",
        "Your program passes 0 of 2 tests.\n\n"
        "assert double(2) == 4\ndouble(2) raised NameError: name 'double' is not defined\n\n"
        "assert double(30) == 60\ndouble(30) raised NameError: name 'double' is not defined",
    ),
    (
        "def double(n):\n    while n == 30: pass\n    return 4",
        "Your program passes 1 of 2 tests.\n\nassert double(30) == 60\nTimeoutError: more than 1 s of CPU time",
    ),
    # looks like the expected value
    (
        "class N:\n    def __repr__(self): return '60'\ndef double(n): return N() if n > 2 else 4",
        "Your program passes 1 of 2 tests.\n\nassert double(30) == 60\ndouble(30) returned 60, expected 60\n"
        "AssertionError: the result cannot be compared: a value of type N",
    ),
    (
        "def double(n):\n    if n > 2:\n        raise ValueError('two\\nlines')\n    return 4",
        "Your program passes 1 of 2 tests.\n\nassert double(30) == 60\n"
        "double(30) raised ValueError: two (line 3)\nlines",
    ),
    (
        "def double(n): return 'a' * 400 if n > 2 else 4",
        "Your program passes 1 of 2 tests.\n\n"
        f"assert double(30) == 60\ndouble(30) returned '{'a' * 299}..., expected 60",
    ),
]
TRACEBACK: list[tuple[str, str]] = [
    (
        "def double(n): return 4",
        'Traceback (most recent call last):\n  File "test.py", line 2\n    assert double(30) == 60\nAssertionError',
    ),
    (
        "def double(n):\n    if n > 2:\n        return n / 0\n    return 4",
        'Traceback (most recent call last):\n  File "test.py", line 2\n    assert double(30) == 60\n'
        '  File "program.py", line 3\n    return n / 0\nZeroDivisionError: division by zero',
    ),
    ("def double(n) return n", "  File \"program.py\", line 1\n    def double(n) return n\nSyntaxError: expected ':'"),
    (
        "x = 1\ny = x / 0",
        'Traceback (most recent call last):\n  File "program.py", line 2\n    y = x / 0\n'
        "ZeroDivisionError: division by zero",
    ),
]


@pytest.mark.parametrize(
    ("form", "program", "text"),
    [
        *(("failing-tests", *case) for case in FAILING_TESTS),
        *(("traceback", *case) for case in TRACEBACK),
        ("verdict-only", "def double(n): return 4", "Your program passes 1 of 2 tests."),
        ("verdict-only", "def double(n) return n", "Your program passes 0 of 2 tests."),
    ],
)
def test_feedback(code_executors: Executors, form: FeedbackForm, program: str, text: str):
    assert feedback(graded(code_executors, program), Wording(form=form)) == f"{text}\n\n{END}"


def test_tests_that_compare_otherwise_show_values_alone(code_executors: Executors):
    task = replace(DOUBLE, shown=("assert double(1) < double(2)", "assert not double(0)"), hidden=())
    text = feedback(graded(code_executors, "def double(n): return [n]", task), Wording())
    assert text.split("\n\n")[1:-1] == ["assert not double(0)\ndouble(0) returned [0]"]
    text = feedback(graded(code_executors, "def double(n): return n or None", task), Wording())
    assert text.split("\n\n")[0] == "Your program passes 2 of 2 tests."
    text = feedback(graded(code_executors, "def double(n): return None", task), Wording())
    assert text.split("\n\n")[1].split("\n")[1:] == [
        "double(1) returned None",
        "double(2) returned None",
        "TypeError: '<' not supported between instances of 'NoneType' and 'NoneType'",
    ]


def test_without_feedback_the_request_remains():
    assert DOMAIN.no_feedback(Wording()) == END


WRONG = [
    "def double(n): return None",
    "def double(n): return 3 * n",
    "def double(n): return 2 * n if n < 100 else 0",
    "def double(n): raise ValueError(n)",
    pytest.param("def double(n):\n    while n > 100: pass\n    return 2 * n + 1", marks=pytest.mark.slow),
    "seen = []\ndef double(n):\n    seen.append(n)\n    return seen",
    "import sys\ndef double(n): return [f.f_locals for f in [sys._getframe(d) for d in range(1, 4)]]",
    "import gc\ndef double(n): return [o for o in gc.get_objects() if 'assert' in str(o)[:1000]][-1:]",
    "def double(n) return n",
]


@pytest.mark.parametrize("program", WRONG)
def test_feedback_does_not_depend_on_hidden_tests(code_executors: Executors, program: str):
    """The same program on the same shown tests, with other hidden tests and with none."""
    others = ("assert double(5) == 10", "assert double(list(range(30))) == 1")
    tasks = [DOUBLE, replace(DOUBLE, hidden=others), replace(DOUBLE, hidden=())]
    for form in FORMS:
        texts = {feedback(graded(code_executors, program, task), Wording(form=form)) for task in tasks}
        assert len(texts) == 1
        assert not any(secret in text for text in texts for secret in ("771", "1542", "882", "1764"))


def test_the_first_turn_shows_text_starter_and_shown_tests():
    task = replace(DOUBLE, setup="x = 30\ny = 771", starter="def double(n):", shown=("assert double(x) == 60",))
    assert first_turn(task, Wording()) == [
        {
            "role": "user",
            "content": "Double it.\n\nComplete this code:\n```python\ndef double(n):\n```\n\n"
            "Your program must pass tests such as:\n```python\nx = 30\nassert double(x) == 60\n```\n\n"
            "Write the whole program in one ```python block, without tests.",
        }
    ]
    bare = replace(task, text="", starter="", setup="", shown=("assert double('{text}') == 1",))
    system, user = first_turn(bare, Wording(system="Write Python."))
    assert system == {"role": "system", "content": "Write Python."}
    assert user["content"].startswith("Your program must pass")
    assert "'{text}'" in user["content"]


def test_a_folder_of_texts_replaces_the_wording(tmp_path: Path):
    wording = Wording(system="Be brief.\n", task="Task: {text}", form="traceback")
    save_wording(wording, tmp_path)
    assert (tmp_path / "task.txt").read_text() == "Task: {text}\n"
    assert load_wording(str(tmp_path), "traceback") == wording
    assert load_wording("plain") == Wording()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("task", "{txt}", "task.txt txt text"),
        ("compared", "{call} gave {value}", "compared.txt expected"),
        ("correct", "Try {again}", "correct.txt again"),
        ("tests", None, "tests.txt"),
    ],
)
def test_wrong_slots_and_missing_texts_are_named(
    tmp_path: Path, name: str, text: str | None, words: str, wording: Golden
):
    save_wording(Wording(), tmp_path)
    path = tmp_path / f"{name}.txt"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(InputError) as error:
        load_wording(str(tmp_path))
    assert all(word in str(error.value) for word in words.split())
    wording(error.value)


def test_an_unknown_form_is_refused():
    with pytest.raises(InputError, match=r"residual.*failing-tests, expected-only, traceback, verdict-only"):
        load_wording("plain", "residual")


@dataclass(frozen=True, slots=True)
class Graded:
    KIND: ClassVar = "verdicts"
    attempt_id: str
    detail: CodeDetail


def test_details_are_read_as_they_were_written_and_give_the_same_feedback(tmp_path: Path, code_executors: Executors):
    grade = graded(code_executors, "def double(n):\n    if n > 2:\n        return n / 0\n    return 5")
    records.write(tmp_path / "verdicts.parquet", Graded, [Graded("a", grade.detail)], 0, {})
    (verdict,) = records.read(tmp_path / "verdicts.parquet", Graded)
    assert verdict.detail == grade.detail
    assert feedback(CodeGrade(grade.status, shown=verdict.detail.shown), Wording()) == feedback(grade, Wording())


def test_tasks_are_read_as_they_were_written(tmp_path: Path):
    task = replace(DOUBLE, imports=("import math",), origin="rows")
    records.write(tmp_path / "tasks.parquet", CodeTask, [task], 0, {})
    assert list(records.read(tmp_path / "tasks.parquet", CodeTask)) == [task]
