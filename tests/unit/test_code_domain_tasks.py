"""Tasks of domain `code`: rows of each form, which tests are shown, which rows are left out, and equal tasks."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import Wording as Golden

from arc_refinery.errors import InputError
from arc_refinery.refining.domains.code.config import FORMS
from arc_refinery.refining.domains.code.feedback import feedback
from arc_refinery.refining.domains.code.grading import Executors, grade, usable_tasks
from arc_refinery.refining.domains.code.tasks import CodeTask, LeftOut, read_tasks, same_tasks
from arc_refinery.refining.domains.code.wording import Wording

MBPP = {
    "text": "Write a function to double a number.",
    "code": "def double(n):\r\n    return 2 * n",
    "task_id": 2,
    "test_setup_code": "",
    "test_list": ["assert double(2) == 4", "assert double(-3) == -6"],
    "challenge_test_list": ["assert double(0) == 0"],
}
SANITIZED = {
    "prompt": "Write a function to halve a number.",
    "code": "def half(n): return n / 2",
    "task_id": 3,
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(half(3), 1.5)", "assert half(8) == 4"],
}
HUMANEVAL = {
    "task_id": "HumanEval/7",
    "prompt": (
        "from typing import List\n\n\ndef largest(xs: List[int]) -> int:\n"
        '    """Return the largest number.\n'
        '    >>> largest([1, 3])  # a list\n    3\n    >>> largest([2])\n    2\n    """\n'
    ),
    "canonical_solution": "    return max(xs)\n",
    "entry_point": "largest",
    "test": (
        "METADATA = {}\n\ndef check(candidate):\n    import math\n    numbers = [4, 9]\n"
        "    assert candidate([1, 3]) == 3, 'first'\n    assert candidate(numbers) == 9\n"
        "    assert math.isclose(candidate([5]), 5.0)\n    assert True\n"
    ),
}
OWN = {"prompt": "Triple it.", "tests": ["assert triple(1) == 3", "assert triple(2) == 6"]}


def written(tmp_path: Path, *rows: Any) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(tmp_path: Path, *rows: Any, n_shown: int | None = None) -> tuple[list[CodeTask], LeftOut]:
    left_out = LeftOut()
    return list(read_tasks(written(tmp_path, *rows), n_shown, left_out)), left_out


def only(tmp_path: Path, row: Any, n_shown: int | None = None) -> CodeTask:
    ((task,), left_out) = read(tmp_path, row, n_shown=n_shown)
    assert left_out.rows == {}
    return task


def test_mbpp(tmp_path: Path):
    assert only(tmp_path, MBPP) == CodeTask(
        task_id="mbpp-2",
        text="Write a function to double a number.",
        names=("double",),
        shown=("assert double(2) == 4",),
        hidden=("assert double(-3) == -6", "assert double(0) == 0"),
        reference="def double(n):\n    return 2 * n",
        origin="mine",
    )
    task = only(tmp_path, SANITIZED, n_shown=2)
    assert (task.task_id, task.imports, task.shown, task.hidden) == (
        "mbpp-3",
        ("import math",),
        ("assert math.isclose(half(3), 1.5)", "assert half(8) == 4"),
        (),
    )


def test_humaneval(tmp_path: Path):
    prompt, solution = HUMANEVAL["prompt"], HUMANEVAL["canonical_solution"]
    assert only(tmp_path, HUMANEVAL) == CodeTask(
        task_id="HumanEval-7",
        text="",
        names=("largest",),
        shown=("assert largest([1, 3]) == 3", "assert largest([2]) == 2"),
        hidden=("assert largest(numbers) == 9", "assert math.isclose(largest([5]), 5.0)"),
        imports=("from typing import List", "import math"),
        setup="numbers = [4, 9]",
        starter=prompt.strip("\n"),
        reference=prompt + solution,
        origin="mine",
    )


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        ("Examples: largest([5]) is 5", ["assert math.isclose(largest([5]), 5.0)"]),  # a call of `check`
        ("No example.", ["assert largest([1, 3]) == 3"]),  # the first
        (">>> largest([7]) == 7", ["assert largest([7]) == 7"]),
        (">>> largest([7])", ["assert largest([1, 3]) == 3"]),  # its value is not there
        (">>> max([7])\n    7", ["assert largest([1, 3]) == 3"]),  # another function
        (">>> largest([1,\n  3])\n 3", ["assert largest([1, 3]) == 3"]),  # not an example
    ],
)
def test_shown_tests_of_humaneval(tmp_path: Path, docstring: str, shown: list[str]):
    row = HUMANEVAL | {"prompt": f'def largest(xs):\n    """{docstring}\n    """\n'}
    task = only(tmp_path, row)
    assert list(task.shown) == shown
    assert not set(task.hidden) & set(shown)


@pytest.mark.parametrize("n_shown", [1, 2, 3])
def test_what_the_docstring_of_humaneval_shows_is_never_hidden(tmp_path: Path, n_shown: int):
    task = only(tmp_path, HUMANEVAL, n_shown)
    examples, others = ["assert largest([1, 3]) == 3", "assert largest([2]) == 2"], ["assert largest(numbers) == 9"]
    assert [*task.shown] == [*examples, *others][:n_shown]
    assert set(task.hidden) == {*others, "assert math.isclose(largest([5]), 5.0)"} - set(task.shown)


def test_a_call_in_the_words_of_a_docstring_is_not_hidden(tmp_path: Path):
    prompt = 'def largest(xs):\n    """largest([5]) is 5.\n    >>> largest([2])\n    2\n    """\n'
    task = only(tmp_path, HUMANEVAL | {"prompt": prompt})
    assert task.hidden == ("assert largest([1, 3]) == 3", "assert largest(numbers) == 9")


def test_equal_hidden_tests_count_once(tmp_path: Path):
    task = only(tmp_path, OWN | {"hidden_tests": ["assert triple(0) == 0"] * 2})
    assert task.hidden == ("assert triple(0) == 0",)


def test_rows_of_ones_own(tmp_path: Path):
    task = only(tmp_path, OWN | {"setup": "import math\nx = 1", "starter": "def triple(n):\n", "task_id": "a/1"})
    assert (task.task_id, task.shown, task.hidden) == ("a-1", ("assert triple(1) == 3",), ("assert triple(2) == 6",))
    assert (task.names, task.setup, task.starter, task.reference) == (
        ("triple",),
        "import math\nx = 1",
        "def triple(n):",
        "",
    )
    task = only(tmp_path, OWN | {"hidden_tests": ["assert triple(0) == 0"], "code": "triple = lambda n: 3 * n"})
    assert (task.task_id, task.shown, task.hidden) == (
        "mine-000001",
        ("assert triple(1) == 3", "assert triple(2) == 6"),
        ("assert triple(0) == 0",),
    )
    assert task.reference == "triple = lambda n: 3 * n"
    assert only(tmp_path, OWN, n_shown=2).hidden == ()
    joined = OWN | {"tests": ["assert triple(1) == 3\nassert triple(2) == 6"], "hidden_tests": []}
    assert only(tmp_path, joined).shown == ("assert triple(1) == 3", "assert triple(2) == 6")


def test_the_prompt_shows_the_setup_of_its_tests_alone(tmp_path: Path):
    row = OWN | {"setup": "data = 1\nsecret = 6\nboth = data", "tests": ["assert triple(both) == 3"]}
    task = only(tmp_path, row | {"hidden_tests": ["assert triple(2) == secret"]})
    assert task.shown_code == "data = 1\nboth = data\nassert triple(both) == 3"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (OWN | {"tests": []}, "no tests"),
        ({"prompt": "Do it."}, "no tests"),
        (OWN | {"tests": [], "hidden_tests": ["assert triple(1) == 3"]}, "no tests"),
        (HUMANEVAL | {"test": "def check(candidate):\n    pass"}, "no tests"),
        (HUMANEVAL | {"test": "nothing to check"}, "no tests"),
        (OWN | {"tests": ["triple(1) == 3"]}, "a test is not an assert"),
        (OWN | {"tests": ["assert triple(1"]}, "a test is not an assert"),
        (OWN | {"tests": [""]}, "a test is not an assert"),
        (MBPP | {"test_list": ["x = double(2)\nassert x == 4"]}, "a test is not an assert"),
        (
            HUMANEVAL
            | {"prompt": "def largest(xs):\n", "test": "def check(f):\n    for n in [1]:\n        assert f([n]) == n"},
            "a test is not an assert",
        ),
        (MBPP | {"code": "def twice(n): return 2 * n"}, "the entry point is not defined"),
        (HUMANEVAL | {"entry_point": "smallest"}, "the entry point is not defined"),
        (HUMANEVAL | {"canonical_solution": "  return ("}, "the entry point is not defined"),
        (OWN | {"tests": ["assert 1 == 1"]}, "the entry point is not defined"),
        (MBPP | {"test_list": ["assert list(map(double, [1])) == [2]", "assert double(1) == 2"]}, "a test cannot"),
        (OWN | {"setup": "x ="}, "a test cannot"),
        (MBPP | {"challenge_test_list": ["assert  double( 2)==4"]}, "a hidden test equals a shown one"),
        (MBPP | {"challenge_test_list": ["assert double(2) != 5"]}, "a hidden test equals a shown one"),
        (OWN | {"hidden_tests": OWN["tests"][:1]}, "a hidden test equals a shown one"),
        (OWN | {"starter": "# assert triple(2) == 6\n"}, "a hidden test equals a shown one"),
        (MBPP | {"code": "def double(n): return 4"}, "its own program fails a test"),
        (MBPP | {"code": "def double(n): return 0"}, "its own program fails a test"),
        (OWN | {"reference": "def triple(n): exit()"}, "its own program fails a test"),
    ],
)
def test_rows_that_cannot_be_used_are_counted_and_named(
    tmp_path: Path, code_executors: Executors, row: dict[str, Any], reason: str
):
    left_out = LeftOut()
    tasks = list(usable_tasks(written(tmp_path, row, SANITIZED), None, code_executors, left_out))
    assert [task.task_id for task in tasks] == ["mbpp-3"]
    ((name, (why, _)),) = left_out.rows.items()
    assert name in ("mbpp-2", "HumanEval-7", "mine-000001")
    assert why.startswith(reason)
    assert left_out.counts == Counter({why: 1})


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        (OWN | {"setup": "import asyncio"}, "No module named 'asyncio'"),
        (OWN | {"setup": "import asyncio", "reference": "def triple(n): return 3 * n"}, "No module named 'asyncio'"),
        (OWN | {"tests": ["assert triple(1) == slice(3)"]}, "a value of type slice"),
        (OWN | {"tests": ["assert triple(1) == 3"], "reference": "def triple(n): return slice(n)"}, "of type slice"),
        (
            {"prompt": "It.", "tests": ["assert triple(1).size == 3"], "reference": "def triple(n): return slice(n)"},
            "a value of type slice",
        ),
    ],
)
def test_rows_that_no_program_could_solve_say_why(
    tmp_path: Path, code_executors: Executors, row: dict[str, Any], detail: str
):
    left_out = LeftOut()
    assert len(list(usable_tasks(written(tmp_path, row, SANITIZED), None, code_executors, left_out))) == 1
    ((reason, n),) = left_out.described.items()
    assert reason.startswith("no program could pass its tests here (mine-000001): ")
    assert reason.endswith(detail)
    assert n == 1


def test_a_set_of_which_nothing_is_left_is_refused(tmp_path: Path, code_executors: Executors, wording: Golden):
    failing = MBPP | {"code": "def double(n): return 4"}
    for rows in ([failing, OWN | {"tests": []}], []):
        with pytest.raises(InputError) as refusal:
            list(usable_tasks(written(tmp_path, *rows), None, code_executors, LeftOut()))
        wording(refusal.value)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ([1], "list"),
        ({"question": "?"}, "question"),
        (MBPP | {"test_list": "assert double(2) == 4"}, "test_list"),
        (MBPP | {"code": 3}, "code"),
        (OWN | {"tests": [1]}, "tests"),
        (OWN | {"prompt": ""}, "prompt"),
        (OWN | {"setup": []}, "setup"),
        (OWN | {"task_id": "a b"}, "task_id"),
        (HUMANEVAL | {"test": None}, "test"),
    ],
)
def test_rows_of_other_types_are_errors_that_name_file_and_row(tmp_path: Path, row: Any, field: str, wording: Golden):
    with pytest.raises(InputError, match=rf"mine\.jsonl: row 2\b.*{field}") as error:
        read(tmp_path, MBPP, row)
    wording(error.value)


def test_two_rows_of_one_name_are_an_error(tmp_path: Path):
    with pytest.raises(InputError, match=r"row 2.*mbpp-2"):
        read(tmp_path, MBPP, MBPP)


def test_equal_tasks_are_recognized_by_id_text_and_tests(tmp_path: Path):
    (mbpp, humaneval, own), _ = read(tmp_path, MBPP, HUMANEVAL, OWN)
    same_as = same_tasks({"a": [mbpp, humaneval], "b": [own]})
    assert same_as(mbpp) == {("a", "mbpp-2"): "id"}
    assert same_as(humaneval) == {("a", "HumanEval-7"): "id"}
    assert same_as(own) == {("b", "mine-000003"): "content"}  # its name is its place in the file
    other = MBPP | {"task_id": 9, "test_list": ["assert double(7) == 14"], "challenge_test_list": []}
    assert same_as(only(tmp_path, other)) == {("a", "mbpp-2"): "content"}
    assert same_as(only(tmp_path, other | {"text": "Multiply it by two."})) == {}
    assert same_as(only(tmp_path, MBPP | {"task_id": 9, "text": "Times two."})) == {("a", "mbpp-2"): "content"}


@pytest.mark.parametrize(
    ("row", "secrets"),
    [
        (MBPP, ["-3", "-6", "double(0)"]),
        (SANITIZED, ["8", "== 4", "expected 4"]),
        (HUMANEVAL, ["numbers", "9", "5"]),
        (OWN | {"hidden_tests": ["assert triple(70) == 210"]}, ["70", "210"]),
    ],
)
def test_feedback_has_nothing_of_hidden_tests_in_any_form(
    tmp_path: Path, code_executors: Executors, row: dict[str, Any], secrets: list[str]
):
    task = only(tmp_path, row)
    assert task.hidden
    (name,) = task.names
    programs = [f"def {name}(*_): {body}" for body in ("return None", "raise ValueError", "exit()", "return", ")")]
    answers = [f"```python\n{program}\n```" for program in programs]
    grades = list(grade([(answer, task) for answer in answers], code_executors))
    without_hidden = list(grade([(answer, replace(task, hidden=())) for answer in answers], code_executors))
    for form in FORMS:
        texts = [feedback(graded, Wording(form=form)) for graded in grades]
        assert texts == [feedback(graded, Wording(form=form)) for graded in without_hidden]
        assert not any(secret in text for text in texts for secret in secrets)
