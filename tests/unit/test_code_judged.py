"""Rows of contests in domain `code`: what is shown and hidden, and which programs solve them; rows made by hand."""

import base64
import json
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arc_refinery.config import Sandbox
from arc_refinery.domains.code import feedback, wording
from arc_refinery.domains.code.grading import grade, usable_tasks
from arc_refinery.domains.code.tasks import CodeTask, LeftOutRows, read_tasks
from arc_refinery.domains.code.wording import load_wording
from arc_refinery.errors import InputError
from arc_refinery.sandbox import Executor

SUM = "n = int(input())\nprint(sum(map(int, input().split())) / 1)"
APPS = {
    "problem_id": 7,
    "question": "Read n and n numbers, print their sum.",
    "input_output": json.dumps({"inputs": ["2\n1 2\n", "1\n5\n", "3\n1 1 1\n"], "outputs": ["3.0\n", "5\n", "3\n"]}),
    "solutions": json.dumps([SUM]),
    "starter_code": "",
}
APPS_CALL = {
    "problem_id": 8,
    "question": "Add two numbers.",
    "input_output": {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], 7]},
    "solutions": ["def add(a, b):\n    return a + b"],
    "starter_code": "def add(a, b):",
}
BOUNDS = APPS | {"input_output": {"inputs": ["1", "2"], "outputs": ["INF", "998244352"]}, "solutions": []}
SLOW = APPS | {"input_output": {"inputs": list("1234"), "outputs": ["1"] * 4}, "solutions": []}
CONTESTS = {
    "name": "1_A. Twice",
    "description": "Print twice the number.",
    "public_tests": {"input": ["2\n"], "output": ["4\n"]},
    "private_tests": {"input": ["2\n", "5\n"], "output": ["4\n", "10\n"]},
    "generated_tests": {"input": ["-1\n"], "output": ["-2\n"]},
    "solutions": {"language": [1, 3], "solution": ["print 2 * input()", "print(2 * int(input()))"]},
}
CASES = [{"input": "5\n", "output": "10\n", "testtype": "stdin"}]
PACKED = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(CASES)))).decode()
LIVE = {
    "question_id": "abc_1",
    "question_content": "Print twice the number.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
    "private_test_cases": PACKED,
    "metadata": "{}",
}
LIVE_CALL = {
    "question_id": "3001",
    "question_content": "Return the pairs of a list.",
    "starter_code": "class Solution:\n    def pairs(self, values: List[int], n: int) -> List[List[int]]:\n        ",
    "public_test_cases": json.dumps([{"input": "[1, 2]\n2", "output": "[[1, 2]]", "testtype": "functional"}]),
    "private_test_cases": json.dumps([{"input": "[]\n2", "output": "[]", "testtype": "functional"}]),
    "metadata": json.dumps({"func_name": "pairs"}),
}


@pytest.fixture(scope="module")
def executors() -> Iterator[tuple[Executor, Executor, Executor]]:
    with Sandbox().executor(1) as first, Sandbox().executor(1) as second, Sandbox().executor(1) as third:
        yield first, second, third


def task_of(folder: Path, row: dict[str, Any], n_shown: int | None = None, n_revealed: int = 0) -> CodeTask:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    left_out: LeftOutRows = {}
    tasks = list(read_tasks(path, n_shown, left_out, 0, n_revealed))
    assert left_out == {}
    return tasks[0]


@pytest.mark.parametrize(
    ("row", "name", "shown", "hidden"),
    [
        (
            APPS,
            "7",
            ("assert run('2\\n1 2\\n') == Printed('3.0\\n')",),
            ("assert run('1\\n5\\n') == Printed('5\\n')", "assert run('3\\n1 1 1\\n') == Printed('3\\n')"),
        ),
        (APPS_CALL, "8", ("assert add(1, 2) in [[3], 3, (3,)]",), ("assert add(3, 4) == 7",)),
        (
            CONTESTS,
            "1_A.-Twice",
            ("assert run('2\\n') == Printed('4\\n')",),
            ("assert run('5\\n') == Printed('10\\n')", "assert run('-1\\n') == Printed('-2\\n')"),
        ),
        (
            LIVE,
            "abc_1",
            ("assert run('2\\n') == Printed('4\\n')",),
            ("assert run('5\\n') == Printed('10\\n')",),
        ),
        (
            LIVE_CALL,
            "3001",
            ("assert Solution().pairs([1, 2], 2) in [[[1, 2]], ([1, 2],)]",),
            ("assert Solution().pairs([], 2) in [[], ()]",),
        ),
    ],
)
def test_a_row_is_a_task(
    row: dict[str, Any], name: str, shown: tuple[str, ...], hidden: tuple[str, ...], tmp_path: Path
) -> None:
    task = task_of(tmp_path, row)
    assert (task.task_id, task.shown, task.hidden) == (name, shown, hidden)
    revealing = task_of(tmp_path, row, 0, 1)
    assert (revealing.shown, revealing.revealable) == ((), shown)


def graded(task: CodeTask, executors: Any, answer: str) -> Any:
    (one,) = grade([(f"```python\n{answer}\n```", task)], executors)
    return one


@pytest.mark.parametrize(
    ("row", "answer", "n_visible", "n_hidden"),
    [
        (APPS, SUM, 1, 2),
        (APPS, "import sys\nn, *values = sys.stdin.read().split()\nprint(sum(map(int, values)))", 1, 2),
        (APPS, "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split()[1:])))", 1, 2),
        (APPS, "import sys\nsys.stdout.buffer.write(b'3')", 1, 1),
        (APPS, "input()\nsys = __import__('sys')\nsys.stdout.write('3.0000001  \\n\\n')\nsys.exit(1)", 1, 0),
        (APPS, "print(sum(map(int, open(0).read().split()[1:])))", 1, 2),
        (APPS, "import sys\nprint(3)\nsys.stdout.close()", 1, 1),
        (
            APPS,
            "import sys\nsys.modules['program'].run = lambda text: sys.modules['program'].Printed('3')\nprint(3)",
            1,
            1,
        ),
        (BOUNDS, "print('INF')", 1, 0),
        (BOUNDS, "print(1)", 0, 0),
        (BOUNDS, "print(998244300)", 0, 0),
        (BOUNDS, "print('998244352.0')", 0, 1),
        (SLOW, "import time\nend = time.process_time() + 0.6\nwhile time.process_time() < end: pass\nprint(1)", 1, 3),
        (APPS, "input()\nprint(3.1)", 0, 0),
        (APPS, "print('3.0 3.0')", 0, 0),
        (APPS, "if __name__ == '__main__':\n    print(3)", 1, 1),
        (APPS, "def main():\n    print(3)", 0, 0),  # it is not called
        (CONTESTS, "print(int(input()) * 2)", 1, 2),
        (LIVE, "print(int(input()) * 2)", 1, 1),
        (LIVE, "print(4)", 1, 0),
        (APPS_CALL, "def add(a, b):\n    return a + b", 1, 1),
        (APPS_CALL, "def add(a, b):\n    return [a + b]", 1, 0),
        (LIVE_CALL, "class Solution:\n    def pairs(self, v, n):\n        return (v,) if v else ()", 1, 1),
        (LIVE_CALL, "class Solution:\n    def pairs(self, v, n):\n        return v", 0, 1),
        (
            LIVE_CALL,
            "class Solution:\n    def pairs(self, v: List[int], n: int) -> int:\n        return [v] if v else v",
            1,
            1,
        ),
    ],
)
def test_programs_are_graded_as_their_judges_do(
    row: dict[str, Any], answer: str, n_visible: int, n_hidden: int, executors: Any, tmp_path: Path
) -> None:
    one = graded(task_of(tmp_path, row), executors, answer)
    assert (one.n_visible_passed, one.n_hidden_passed) == (n_visible, n_hidden)


def test_a_model_reads_the_test_and_what_the_program_printed(executors: Any, tmp_path: Path) -> None:
    task, texts = task_of(tmp_path, APPS), load_wording("plain")
    (message,) = wording.first_turn(task, texts)
    assert message["content"].startswith("Read n and n numbers, print their sum.\n\nThe program reads from standard")
    assert "assert run('2\\n1 2\\n') == Printed('3.0\\n')" in message["content"]
    assert "class Printed" not in message["content"]
    said = feedback.feedback(graded(task, executors, "print(input())"), texts)
    assert "run('2\\n1 2\\n') returned '2\\n', expected Printed('3.0\\n')" in said
    said = feedback.feedback(graded(task, executors, "x = input()\n\nprint(1 / 0)"), texts)
    assert "run('2\\n1 2\\n') raised ZeroDivisionError: division by zero (line 3)" in said
    said = feedback.feedback(graded(task, executors, "x = 1\n\nreturn x"), texts)
    assert said.startswith("Your program raised SyntaxError: 'return' outside function (line 3)\nreturn x")
    said = feedback.feedback(graded(task, executors, "x = 1\nprint("), texts)
    assert said.startswith("Your program raised SyntaxError: '(' was never closed (line 2)\nprint(")
    (message,) = wording.first_turn(task_of(tmp_path, APPS, 0, 1), texts)
    assert "run(text)" in message["content"]
    assert "must define" not in message["content"]


def test_a_call_that_the_prompt_shows_is_no_hidden_test(tmp_path: Path) -> None:
    shown = APPS_CALL | {"question": "Add two numbers: add(3, 4) is 7."}
    assert task_of(tmp_path, shown).hidden == ()
    twice = CONTESTS | {"private_tests": {"input": ["2\n", "5\n"], "output": ["4", "10"]}}
    assert task_of(tmp_path, twice).hidden[0] == "assert run('5\\n') == Printed('10')"


def test_a_row_whose_own_program_fails_is_left_out(executors: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    wrong = APPS | {"problem_id": 9, "solutions": ["print(1)"]}
    path.write_text("".join(f"{json.dumps(row)}\n" for row in (APPS, wrong, CONTESTS, LIVE, APPS_CALL, LIVE_CALL)))
    left_out: LeftOutRows = {}
    tasks = list(usable_tasks(path, None, executors, left_out))
    assert [task.task_id for task in tasks] == ["7", "1_A.-Twice", "abc_1", "8", "3001"]
    assert list(left_out) == ["9"]


class Bomb:
    def __reduce__(self) -> Any:
        return print, ("loaded",)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (APPS | {"input_output": "{"}, "field 'input_output' is not JSON"),
        (APPS | {"input_output": {"inputs": ["1"], "outputs": []}}, "inputs and outputs that do not match"),
        (LIVE | {"private_test_cases": "nothing"}, "field 'private_test_cases' is not JSON"),
        (
            LIVE | {"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(Bomb()))).decode()},
            "field 'private_test_cases' is not JSON",
        ),
        (APPS_CALL | {"input_output": {"fn_name": "f", "inputs": ["abc"], "outputs": [1]}}, "a test calls f with"),
        (LIVE | {"public_test_cases": [{"input": "1"}]}, "has a test without input or output"),
        (LIVE_CALL | {"public_test_cases": [{"input": "1 2", "output": "1"}]}, "a test of a function is not JSON"),
    ],
)
def test_a_wrong_row_is_named(
    row: dict[str, Any], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=rf"row 1: .*{named}|row 1: {named}"):
        task_of(tmp_path, row)
    assert "loaded" not in capsys.readouterr().out
