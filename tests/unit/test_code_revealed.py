"""Tests that the first turn of domain `code` does not show, and feedback reveals once they fail; controls of that."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mbpp_rows import mbpp_row

from arc_refinery import records
from arc_refinery.domains.code.config import FORMS, FeedbackForm
from arc_refinery.domains.code.domain import Domain
from arc_refinery.domains.code.grading import CodeGrade, Executors, Prompt, Verdict, grade, usable_tasks
from arc_refinery.domains.code.tasks import CodeTask, LeftOutRows, read_tasks
from arc_refinery.domains.code.wording import Wording, first_turn
from arc_refinery.domains.domain import GradedAttempt
from arc_refinery.domains.prompts import Renderer
from arc_refinery.refining.config import FeedbackKind
from arc_refinery.refining.grading import grade_attempts
from arc_refinery.refining.next_turn import NextTurnPlan, next_turn_prompts, without
from arc_refinery.sandbox import Status

CODE = Domain()
END = Wording().correct
DOUBLE = CodeTask(
    task_id="double-a",
    text="Double it.",
    names=("double",),
    shown=("assert double(2) == 4",),
    revealable=("assert double(3) == 6", "assert double(50) == 100", "assert double(70) == 140"),
    hidden=("assert double(771) == 1542",),
)
TWO_PLUS = "def double(n): return n + 2"  # right on the shown test alone
UP_TO_3 = "def double(n): return 2 * n if n < 50 else n"  # right on the shown test and a revealable one
BROKEN = "def double(n) return n"


def written(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def graded(executors: Executors, program: str, task: CodeTask = DOUBLE) -> CodeGrade:
    (only,) = grade([(f"```python\n{program}\n```", task)], executors)
    return only


def attempts(executors: Executors, programs: dict[str, str], task: CodeTask = DOUBLE) -> list[GradedAttempt]:
    """First attempts at a task, by name."""
    messages = tuple(first_turn(task, Wording()))
    text, n_tokens = Renderer("workflow/models/tiny-tools").render(messages)
    prompt = Prompt(f"{task.task_id}/turn1-000", task.task_id, 1, "", messages, text, n_tokens, 9, task)
    answers = [
        records.Attempt(
            name, prompt.prompt_id, task.task_id, 1, "", "m", "", 0, 1.0, 1.0,
            f"```python\n{code}\n```", 9, 9, "stop", -1.0,
        )
        for name, code in programs.items()
    ]  # fmt: skip
    verdicts = grade_attempts(CODE, iter(answers), {task.task_id: task}, executors, len(answers))
    return [GradedAttempt(prompt, *both) for both in zip(answers, verdicts, strict=True)]


# Tasks


def test_rows_say_which_tests_may_be_revealed(tmp_path: Path):
    def split(row: dict[str, Any], n_shown: int | None, n_revealed: int) -> list[list[int]]:
        """The arguments of the shown, revealable and hidden tests."""
        (task,) = read_tasks(written(tmp_path, row), n_shown, left_out, 0, n_revealed)
        tests = task.shown, task.revealable, task.hidden
        return [[int(test.split("double(")[1].split(")")[0]) for test in some] for some in tests]

    left_out: LeftOutRows = {}
    asserts = [f"assert double({n}) == {2 * n}" for n in range(1, 6)]
    mbpp = {"text": "Double it.", "code": "def double(n): return 2 * n", "task_id": 1, "test_list": asserts}
    assert split(mbpp, None, 0) == [[1], [], [2, 3, 4, 5]]
    assert split(mbpp, None, 2) == [[1], [2, 3], [4, 5]]
    assert split(mbpp, 0, 3) == [[], [1, 2, 3], [4, 5]]
    own = {"prompt": "Double it.", "tests": asserts[:1], "hidden_tests": asserts[1:3]}
    assert split(own, None, 1) == [[1], [2], [3]]
    own["revealed_tests"] = asserts[3:]
    assert split(own, None, 0) == [[1], [4, 5], [2, 3]]
    assert split(own | {"tests": []}, None, 1) == [[], [4, 5, 2], [3]]
    test = "def check(candidate):\n" + "".join(f"    {line.replace('double', 'candidate')}\n" for line in asserts)
    start = 'def double(n):\n    """Double it.\n    >>> double(1)\n    2\n    """\n'
    humaneval = {"task_id": "h", "prompt": start, "test": test, "canonical_solution": "    return 2 * n"}
    assert split(humaneval | {"entry_point": "double"}, None, 2) == [[1], [2, 3], [4, 5]]
    assert split(humaneval | {"entry_point": "double"}, 2, 1) == [[1, 2], [3], [4, 5]]
    assert not left_out


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        (([1], [1], [2]), "a revealed test makes only calls that the first turn shows"),
        (([1], [2], [2]), "a hidden test makes only calls that prompts show"),
        (([], [], [1]), "no tests"),
        (([1], [2], [3]), None),
        (([], [1], [2]), None),
    ],
)
def test_no_test_repeats_one_that_is_seen_before(tmp_path: Path, tests: Any, reason: str | None):
    keys = ("tests", "revealed_tests", "hidden_tests")
    row = {key: [f"assert double({n}) == {2 * n}" for n in some] for key, some in zip(keys, tests, strict=True)}
    left_out: LeftOutRows = {}
    tasks = list(read_tasks(written(tmp_path, row | {"prompt": "Double it."}), None, left_out))
    assert [why for why, _ in left_out.values()] == [reason] * (reason is not None)
    assert len(tasks) == (reason is None)


def test_a_reference_has_to_pass_the_revealable_tests_too(tmp_path: Path, code_executors: Executors):
    row = {"prompt": "Double it.", "tests": ["assert double(2) == 4"], "reference": TWO_PLUS}
    bad = row | {"revealed_tests": ["assert double(3) == 6"]}
    left_out: LeftOutRows = {}
    assert len(list(usable_tasks(written(tmp_path, row, bad), None, code_executors, left_out))) == 1
    assert list(left_out.values()) == [("its own program fails a test", "assert double(3) == 6: it is false")]


def test_tasks_that_share_revealable_tests_are_the_same():
    other = replace(DOUBLE, task_id="other", text="Twice.", shown=(), hidden=())
    assert CODE.same_tasks({"set": [DOUBLE]})(other) == {("set", "double-a"): "content"}


def test_a_first_turn_without_tests_names_the_functions():
    task = replace(DOUBLE, shown=(), names=("Pair", "double"))
    assert first_turn(task, Wording())[-1]["content"] == (
        "Double it.\n\nYour program must define `Pair`, `double`.\n\n"
        "Write the whole program in one ```python block, without tests."
    )


# Grades


def test_scores_count_shown_and_revealable_tests_and_hidden_ones_apart(code_executors: Executors):
    for program, score, hidden, passed in (
        (TWO_PLUS, 0.25, 0.0, 0.2),
        (UP_TO_3, 0.5, 0.0, 0.4),
        ("def double(n): return 2 * n if n < 100 else n", 1.0, 0.0, 0.8),
        ("def double(n): return 2 * n", 1.0, 1.0, 1.0),
        (BROKEN, 0.0, 0.0, 0.0),
    ):
        result = graded(code_executors, program)
        assert (result.score, result.hidden_score, result.passed) == (score, hidden, passed)
        assert result.is_solved == (passed == 1.0)
        detail = result.detail
        assert (detail.shown_passed, detail.hidden_passed, len(detail.revealable)) == (score, hidden, 3)
    both = [graded(code_executors, f"def double(n): return n + 2 if n < 70 else {n}") for n in (1, 2)]
    assert both[0].fingerprint != both[1].fingerprint  # they differ in the last revealable test


def test_verdicts_keep_what_may_be_revealed(tmp_path: Path, code_executors: Executors):
    (entry,) = attempts(code_executors, {"x": TWO_PLUS})
    records.write(tmp_path / "verdicts.parquet", Verdict, [entry.verdict], 0, {})
    (verdict,) = records.read(tmp_path / "verdicts.parquet", Verdict)
    assert verdict == entry.verdict
    assert CODE.grade_of(entry).visible == graded(code_executors, TWO_PLUS).visible
    assert list(CODE.verdict_lines(entry))[:2] == [
        "passes 1 of 4 shown or revealable tests and 0 of 1 hidden tests",
        "  assert double(3) == 6: double(3) gave 5",
    ]


# Feedback

FEEDBACK: list[tuple[FeedbackForm, str, str]] = [
    (
        "failing-tests",
        TWO_PLUS,
        "Your program passes 1 of 4 tests.\n\nassert double(3) == 6\ndouble(3) returned 5, expected 6",
    ),
    ("expected-only", TWO_PLUS, "Your program passes 1 of 4 tests.\n\nassert double(3) == 6"),
    ("verdict-only", TWO_PLUS, "Your program passes 1 of 4 tests."),
    (
        "traceback",
        TWO_PLUS,
        'Traceback (most recent call last):\n  File "test.py", line 2\n    assert double(3) == 6\nAssertionError',
    ),
    # the first revealable test that fails is the second one
    (
        "failing-tests",
        UP_TO_3,
        "Your program passes 2 of 4 tests.\n\nassert double(50) == 100\ndouble(50) returned 50, expected 100",
    ),
    ("expected-only", UP_TO_3, "Your program passes 2 of 4 tests.\n\nassert double(50) == 100"),
    # failing shown tests, and one more
    (
        "failing-tests",
        "def double(n): return n",
        "Your program passes 0 of 4 tests.\n\nassert double(2) == 4\ndouble(2) returned 2, expected 4\n\n"
        "assert double(3) == 6\ndouble(3) returned 3, expected 6",
    ),
    # a program that was never called reveals nothing
    ("failing-tests", BROKEN, f"Your program raised SyntaxError: expected ':' (line 1)\n{BROKEN}"),
    ("expected-only", BROKEN, "Your program passes 0 of 4 tests.\n\nassert double(2) == 4"),
    ("traceback", BROKEN, f"  File \"program.py\", line 1\n    {BROKEN}\nSyntaxError: expected ':'"),
]


@pytest.mark.parametrize(("form", "program", "text"), FEEDBACK)
def test_feedback_reveals_the_first_test_that_fails(
    code_executors: Executors, form: FeedbackForm, program: str, text: str
):
    (entry,) = attempts(code_executors, {"x": program})
    wording = Wording(form=form)
    assert CODE.feedback(entry.prompt, graded(code_executors, program), wording) == f"{text}\n\n{END}"
    assert CODE.next_turn(entry, entry, "whole", wording).messages[-1]["content"] == f"{text}\n\n{END}"


@pytest.mark.parametrize("form", FORMS)
def test_a_prompt_has_no_hidden_test_and_a_revealable_one_only_once_it_failed(
    tmp_path: Path, code_executors: Executors, form: FeedbackForm
):
    """Ten rows of MBPP with five tests each, of which one is shown and two may be revealed."""
    path, wording = written(tmp_path, *map(mbpp_row, range(10))), Wording(form=form)
    tasks = list(usable_tasks(path, None, code_executors, {}, n_revealed=2))
    assert len(tasks) == 10
    for index, task in enumerate(tasks):
        assert [len(tests) for tests in (task.shown, task.revealable, task.hidden)] == [1, 2, 2]
        question = CODE.first_turn(task, np.random.default_rng(0), None, wording)
        calls = [test.removeprefix("assert ").split(" == ")[0] for test in task.tests]
        (name,) = task.names
        shown, first, second = [-7, 0], [index - 7, 1, 0], [2 * index - 7, 2, 0, 1]
        assert calls[:3] == [f"{name}({values})" for values in (shown, first, second)]
        for body, revealed in (
            ("return None", calls[1]),
            ("raise ValueError", calls[1]),
            ("exit()", calls[1]),
            (f"return right(values) if values == {shown} else 0.5", calls[1]),
            (f"return right(values) if values == {first} else None", calls[2]),
            (f"return right(values) if values in ({first}, {second}) else None", None),
            (")", None),
        ):
            program = f"{task.reference.replace(name, 'right')}\ndef {name}(values): {body}"
            result = graded(code_executors, program, task)
            text = question.messages[-1]["content"] + CODE.feedback(None, result, wording)  # type: ignore[arg-type]
            expected = {calls[0], *([revealed] if revealed and form != "verdict-only" else [])}
            assert {call for call in calls if call in text} == expected
            assert (result.status == Status.ok) == (body != ")")


# Controls


def test_a_stale_grade_reveals_the_first_test_that_passes(code_executors: Executors):
    stale = CODE.stale(None, graded(code_executors, UP_TO_3))  # type: ignore[arg-type]
    assert stale is not None
    texts = {form: CODE.feedback(None, stale, Wording(form=form)).removesuffix(f"\n\n{END}") for form in FORMS}  # type: ignore[arg-type]
    shown = "assert double(3) == 6\ndouble(3) returned 6, expected 6"
    assert texts == {
        "failing-tests": f"Your program passes 2 of 4 tests.\n\n{shown}",
        "expected-only": "Your program passes 2 of 4 tests.\n\nassert double(3) == 6",
        "traceback": shown,
        "verdict-only": "Your program passes 2 of 4 tests.",
    }
    for program in (TWO_PLUS, BROKEN):
        assert CODE.stale(None, graded(code_executors, program)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_the_first_turn_again_shows_what_feedback_reveals(code_executors: Executors, form: FeedbackForm):
    wording = Wording(form=form)
    for program, revealed in ((TWO_PLUS, 0), (UP_TO_3, 1), (BROKEN, None)):
        (entry,) = attempts(code_executors, {"x": program})
        tests = [] if revealed is None or form == "verdict-only" else [DOUBLE.revealable[revealed]]
        question = CODE.fresh(entry, wording)
        assert question.messages == first_turn(replace(DOUBLE, shown=(*DOUBLE.shown, *tests)), wording)
        assert question.detail == DOUBLE


def test_each_control_asks_after_the_same_attempts(code_executors: Executors):
    """Two tasks of one text: a doubles, b squares. Both have a wrong attempt that fails on another test."""
    square = replace(DOUBLE, task_id="double-b", revealable=("assert double(3) == 9", "assert double(50) == 2500"))
    lonely = replace(DOUBLE, task_id="lonely")
    entries = [
        *attempts(code_executors, {"a": UP_TO_3}),
        *attempts(code_executors, {"b": TWO_PLUS}, square),
        *attempts(code_executors, {"c": TWO_PLUS}, lonely),
    ]

    def asked(feedback: FeedbackKind) -> tuple[dict[str, str], Counter[str]]:
        counts: Counter[str] = Counter()
        plan = NextTurnPlan("x-turn2", 9, 1, 1, 1, include_errors=True, feedback=feedback)
        renderer = Renderer("workflow/models/tiny-tools")
        prompts = list(next_turn_prompts(CODE, entries, plan, Wording(), renderer, counts))
        assert all(prompt.turn == 2 for prompt in prompts)
        return {prompt.parent_id: str(prompt.messages[-1]["content"]).removesuffix(END) for prompt in prompts}, counts

    head = "Your program passes {} tests.\n\n"
    own = {
        "a": f"{head.format('2 of 4')}assert double(50) == 100\ndouble(50) returned 50, expected 100\n\n",
        "b": f"{head.format('1 of 3')}assert double(3) == 9\ndouble(3) returned 5, expected 9\n\n",
        "c": f"{head.format('1 of 4')}assert double(3) == 6\ndouble(3) returned 5, expected 6\n\n",
    }
    assert asked("real") == (own, {})
    assert asked("none") == ({"a": "", "b": "", "c": ""}, {})
    assert asked("other-rule") == ({"a": own["b"], "b": own["a"]}, {without("other-rule"): 1})
    passing = f"{head.format('2 of 4')}assert double(3) == 6\ndouble(3) returned 6, expected 6\n\n"
    assert asked("stale") == ({"a": passing}, {without("stale"): 2})
    assert asked("twin") == ({}, {without("twin"): 3})  # one wrong attempt each
    fresh, counts = asked("fresh")
    tests = {name: text.split("```python\n")[1].split("\n```")[0] for name, text in fresh.items()}
    assert tests == {
        "a": "assert double(2) == 4\nassert double(50) == 100",
        "b": "assert double(2) == 4\nassert double(3) == 9",
        "c": "assert double(2) == 4\nassert double(3) == 6",
    }
    assert not counts
