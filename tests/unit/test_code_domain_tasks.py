"""Tasks of domain `code`: rows of each form, which tests are shown, which rows are left out, and equal tasks."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from messages import Wording as Golden

from arc_refinery.domains.code.check_function import CheckFunction
from arc_refinery.domains.code.config import FORMS
from arc_refinery.domains.code.domain import Domain
from arc_refinery.domains.code.feedback import feedback
from arc_refinery.domains.code.grading import Executors, grade, usable_tasks
from arc_refinery.domains.code.tasks import CodeTask, LeftOutRows, described, read_tasks
from arc_refinery.domains.code.wording import Wording
from arc_refinery.errors import InputError

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


def read(tmp_path: Path, *rows: Any, n_shown: int | None = None) -> tuple[list[CodeTask], LeftOutRows]:
    left_out: LeftOutRows = {}
    return list(read_tasks(written(tmp_path, *rows), n_shown, left_out)), left_out


def only(tmp_path: Path, row: Any, n_shown: int | None = None) -> CodeTask:
    ((task,), left_out) = read(tmp_path, row, n_shown=n_shown)
    assert left_out == {}
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


TRIPLE = {
    "task_id": "t",
    "prompt": 'def triple(n):\n    """Three times n.\n    >>> triple(2)\n    6\n    """\n',
    "canonical_solution": "    return 3 * n\n",
    "entry_point": "triple",
    "test": "def check(candidate):\n    assert candidate(2) == 6\n    assert candidate(5) == 15\n",
}
CHECK = "def check(candidate):\n    "
LOOP = CHECK + "inputs = [[2], [5]]\n    results = [6, 15]\n    for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
HELPER = "def assertion(out, exp, atol):\n    assert out == exp\n"
FIVE = ["assert triple(5) == 15"]
METHOD = ["assert Solution().triple(n=5) == 15"]


@pytest.mark.parametrize(
    ("changes", "hidden"),
    [
        ({"test": f"{TRIPLE['test']}\ncheck(triple)\n"}, FIVE),
        ({"test": f"{TRIPLE['test'].replace('candidate', 'triple')}\ncheck(triple)\n", "entry_point": None}, FIVE),
        ({"canonical_solution": None}, FIVE),
        ({"canonical_solution": "\n"}, FIVE),
        ({"test": f"{LOOP}        assert candidate(*inp) == exp"}, FIVE),
        (
            {"test": f"{HELPER}{LOOP}        assertion(candidate(*inp), exp, 0)"},
            ["assert assertion(triple(5), 15, 0) is None"],
        ),
        ({"test": f"CASES = {{5: 15}}\n{CHECK}for x, y in CASES.items():\n        assert candidate(x) == y"}, FIVE),
        (
            {"test": f"X = [5]\nY = [15]\n{CHECK}for i in range(len(X)):\n        assert candidate(X[i]) == Y[i]"},
            FIVE,
        ),
        (
            {"test": f"{CHECK}got = candidate(2)\n    assert got == 6\n    got = candidate(5)\n    assert got == 15"},
            FIVE,
        ),
        ({"test": f"{TRIPLE['test']}\nif __name__ == '__main__':\n    check(triple)\n"}, FIVE),
        (
            {"prompt": "Write triple(n).", "canonical_solution": "def triple(n): return 3 * n"},
            FIVE,
        ),
        ({"prompt": "import math\n", "canonical_solution": None}, None),  # nothing says what it does
        ({"test": f"{CHECK}for x in rows():\n        assert candidate(x) == 15"}, None),  # not an assert
        ({"test": f"{TRIPLE['test']}    print('ok')\n    return True\n"}, FIVE),
        (
            {
                "prompt": "import math\nZERO = 0\nclass Solution:\n    def triple(self, n):\n        ",
                "canonical_solution": "return 3 * n + ZERO",
                "entry_point": "Solution().triple",
                "test": f"{CHECK}assert candidate(n = 2) == 6\n    assert candidate(n = 5) == 15",
            },
            METHOD,
        ),
        (
            {
                "prompt": "from math import *\nclass Node: pass\n",
                "canonical_solution": None,
                "completion": "class Solution:\n    def triple(self, n):\n        return floor(3.0 * n)",
                "problem_description": "Triple it.",
                "starter_code": "class Solution:\n    def triple(self, n):\n        ",
                "entry_point": "Solution().triple",
                "test": f"{CHECK}assert candidate(n = 2) == 6\n    assert candidate(n = 5) == 15",
            },
            METHOD,
        ),
    ],
)
def test_other_rows_in_the_form_of_humaneval(
    tmp_path: Path, code_executors: Executors, changes: dict[str, Any], hidden: list[str] | None
):
    row = {key: value for key, value in (TRIPLE | changes).items() if value is not None}
    left_out: LeftOutRows = {}
    tasks = list(usable_tasks(written(tmp_path, row, SANITIZED), None, code_executors, left_out))[:-1]
    assert [list(task.hidden) or list(task.shown) for task in tasks] == ([hidden] if hidden else []), described(
        left_out
    )


@pytest.mark.parametrize(
    ("body", "tests"),
    [
        ("x = [1, 2]\nx.append(3)\nassert candidate(3) == x[-1]", ["assert triple(3) == x[-1]"]),
        ("x = [1, 2]\nx[0] = 9\nassert candidate(3) == x[0]", ["assert triple(3) == x[0]"]),
        ("x = [1]\nx += [9]\nassert candidate(3) == x[1]", ["assert triple(3) == x[1]"]),
        (
            "for x in [3]:\n    assert candidate([x for x in [1]]) == x",
            ["assert triple([x for x in [1]]) == 3"],
        ),
        ("for x in [3]:\n    assert candidate(x) == (lambda x: x)(9)", ["assert triple(3) == (lambda x: x)(9)"]),
        ("for x in [1, 2]:\n    assert candidate(x) == 3\n    return", ["assert triple(1) == 3"]),
        ("for x in [1e999]:\n    assert candidate(x) == x", ["assert triple(1e309) == 1e309"]),
    ],
)
def test_values_of_a_check_are_those_at_the_place(body: str, tests: list[str]):
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    assert CheckFunction(f"def check(candidate):\n{lines}", "triple", "row 1").tests == tests


def test_a_check_that_hides_the_candidate_in_a_function_of_its_own_leaves_the_row_out(tmp_path: Path):
    check = (
        "def check(candidate):\n    def ok(x): assert candidate(x) == 3 * x\n    ok(1)\n    assert candidate(0) == 0\n"
    )
    tasks, left_out = read(tmp_path, TRIPLE | {"test": check})
    assert not tasks
    assert next(iter(left_out.values()))[0] == "a test is not an assert"


def test_what_a_prompt_defines_before_the_entry_point_is_setup(tmp_path: Path):
    row = TRIPLE | {"prompt": f"import math\ndef add(a, b):\n    return a + b\n\n{TRIPLE['prompt']}"}
    task = only(tmp_path, row | {"canonical_solution": "    return add(n, 2 * n)\n"})
    assert (task.names, task.imports, task.setup) == (
        ("triple",),
        ("import math",),
        "def add(a, b):\n    return a + b",
    )
    assert task.reference == f"{TRIPLE['prompt']}    return add(n, 2 * n)"


@pytest.mark.parametrize("test", [TRIPLE["test"], "x = 1"])
def test_a_row_without_a_name_to_call_is_an_error(tmp_path: Path, test: str):
    row = {key: value for key, value in TRIPLE.items() if key != "entry_point"} | {"test": test}
    with pytest.raises(InputError, match=r"mine\.jsonl: row 1: field 'entry_point' is missing"):
        read(tmp_path, row)


@pytest.mark.parametrize(
    ("row", "reason", "detail"),
    [
        (
            {"prompt": "p", "entry_point": "f", "base_input": [[1]], "plus_input": [[2]]},
            "no tests",
            "tests is missing; the row has prompt, entry_point, base_input, plus_input",
        ),
        (
            {"prompt": "p", "tests": ["x = f(2)\nassert x == 3"]},
            "a test is not an assert",
            "x = f(2); expected asserts, behind imports and names of literals",
        ),
    ],
)
def test_what_a_row_lacks_is_said(tmp_path: Path, row: dict[str, Any], reason: str, detail: str):
    tasks, left_out = read(tmp_path, row)
    assert (tasks, left_out) == ([], {"mine-000001": (reason, detail)})


def test_the_suite_of_mbpp_plus_is_not_used_which_the_log_says(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    only(tmp_path, MBPP | {"test": "assert double(9) == 18"})
    assert "field 'test' of 1 rows is not used" in caplog.text


def test_names_of_literals_and_imports_before_an_assert_are_a_part_of_it(tmp_path: Path):
    tests = ["x = [1, 2]\nassert total(x) == 3", "from math import isclose\nassert isclose(total([2]), 2)"]
    task = only(tmp_path, {"prompt": "Add.", "tests": tests}, n_shown=2)
    assert task.shown == ("assert total([1, 2]) == 3", "assert isclose(total([2]), 2)")
    assert task.imports == ("from math import isclose",)


def test_endless_iterators_of_equal_calls_are_two_tests(tmp_path: Path, code_executors: Executors):
    code = "def evens():\n    n = 0\n    while True:\n        yield n\n        n += 2"
    tests = ["assert list(islice(evens(), 3)) == [0, 2, 4]", "assert next(evens()) == 0"]
    row = {"prompt": "Evens.", "setup": "from itertools import islice", "tests": tests, "reference": code}
    (task,) = usable_tasks(written(tmp_path, row), None, code_executors, {})
    assert (task.shown, task.hidden) == ((tests[0],), (tests[1],))


IMPORT = 'from typing import List\n\ndef biggest(xs: List[int]) -> int:\n    """Largest."""'
HELP = 'def is_even(n): return n % 2 == 0\n\ndef evens(xs):\n    """Even numbers."""'
EVENS = "assert evens([1, 2, 4]) == [2, 4]"


@pytest.mark.parametrize(
    ("starter", "test", "code", "is_right"),
    [
        (IMPORT, "assert biggest([1, 3]) == 3", "def biggest(xs: List[int]) -> int:\n    return max(xs)", True),
        (HELP, EVENS, "def evens(xs):\n    return [x for x in xs if is_even(x)]", True),
        (HELP, EVENS, "    return [x for x in xs if is_even(x)]", True),
        (
            HELP,
            EVENS,
            "    found = []\n    for x in xs:\n        if is_even(x): found.append(x)\n    return found",
            True,
        ),
        (HELP, EVENS, "def is_even(n): return n == 4\ndef evens(xs): return [x for x in xs if is_even(x)]", False),
        (HELP, EVENS, "def odds(xs): return xs", False),
        (HELP, EVENS, "print(is_even(2))", False),
        ("LIMIT = 3\ndef low(xs):", "assert low([1, 5]) == [1]", "return [x for x in xs if x < LIMIT]", True),
        (
            'class Pair:\n    def both(self, a, b):\n        """Add."""\n',
            "assert Pair().both(1, 2) == 3",
            "        return a + b",
            True,
        ),
        (
            "class Pair:\n    def both(self, a, b): ...",
            "assert Pair().both(1, 2) == 3",
            "def both(self, a, b): return a + b",
            True,
        ),
        (
            "def low(xs):\n    raise NotImplementedError\n\ndef limit():\n    return 3",
            "assert low([1, 5]) == [1]",
            "    return [x for x in xs if x < limit()]",
            True,
        ),
        (
            "try:\n    import json\nexcept ImportError:\n    json = None\ndef text(x):",
            "assert text(1) == '1'",
            "def text(x): return json.dumps(x)",
            True,
        ),
        (
            "SQUARES, LAST = {}, 1\nLAST += 2\nfor n in range(LAST): SQUARES[n] = n * n\ndef square(n):",
            "assert square(2) == 4",
            "def square(n): return SQUARES[n]",
            True,
        ),
    ],
)
def test_a_program_has_what_its_starter_gives(
    tmp_path: Path, code_executors: Executors, starter: str, test: str, code: str, is_right: bool
):
    task = only(tmp_path, {"prompt": "Complete it.", "starter": starter, "tests": [test]})
    (graded,) = grade([(f"```python\n{code}\n```", task)], code_executors)
    assert graded.is_solved == is_right, graded


def test_the_beginning_of_a_starter_is_not_a_program(tmp_path: Path, code_executors: Executors):
    task = only(tmp_path, {"prompt": "Complete it.", "starter": HELP, "tests": [EVENS]})
    (graded,) = grade([("```python\ndef odds(xs): return xs\n```", task)], code_executors)
    assert graded.shown[0].error == "NameError: name 'evens' is not defined"


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
        (OWN | {"tests": [], "hidden_tests": ["assert triple(1) == 3"]}, "no tests"),
        (HUMANEVAL | {"test": "def check(candidate):\n    pass"}, "no tests"),
        (OWN | {"tests": ["triple(1) == 3"]}, "a test is not an assert"),
        (OWN | {"tests": ["assert triple(1"]}, "a test is not an assert"),
        (
            HUMANEVAL
            | {
                "prompt": "def largest(xs):\n",
                "test": "def check(f):\n    for n in f([1]):\n        assert f([n]) == n",
            },
            "a test is not an assert",
        ),
        (MBPP | {"code": "def twice(n): return 2 * n"}, "the entry point is not defined"),
        (HUMANEVAL | {"entry_point": "smallest"}, "the entry point is not defined"),
        (HUMANEVAL | {"canonical_solution": "  return ("}, "the entry point is not defined"),
        (OWN | {"tests": ["assert 1 == 1"]}, "the entry point is not defined"),
        (MBPP | {"test_list": ["assert list(map(double, [1])) == [2]", "assert double(1) == 2"]}, "a test cannot"),
        (OWN | {"setup": "x ="}, "a test cannot"),
        (
            MBPP | {"challenge_test_list": ["assert  double( 2)==4"]},
            "a hidden test makes only calls that prompts show",
        ),
        (
            MBPP | {"challenge_test_list": ["assert double(2) != 5"]},
            "a hidden test makes only calls that prompts show",
        ),
        (OWN | {"hidden_tests": OWN["tests"][:1]}, "a hidden test makes only calls that prompts show"),
        (OWN | {"starter": "# assert triple(2) == 6\n"}, "a hidden test makes only calls that prompts show"),
        (MBPP | {"code": "def double(n): return 4"}, "its own program fails a test"),
        (OWN | {"reference": "def triple(n): exit()"}, "its own program fails a test"),
    ],
)
def test_rows_that_cannot_be_used_are_counted_and_named(
    tmp_path: Path, code_executors: Executors, row: dict[str, Any], reason: str
):
    left_out: LeftOutRows = {}
    tasks = list(usable_tasks(written(tmp_path, row, SANITIZED), None, code_executors, left_out))
    assert [task.task_id for task in tasks] == ["mbpp-3"]
    ((name, (why, _)),) = left_out.items()
    assert name in ("mbpp-2", "HumanEval-7", "mine-000001")
    assert why.startswith(reason)


@pytest.mark.parametrize(
    ("row", "detail"),
    [
        (OWN | {"setup": "import asyncio"}, "No module named 'asyncio'"),
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
    left_out: LeftOutRows = {}
    assert len(list(usable_tasks(written(tmp_path, row, SANITIZED), None, code_executors, left_out))) == 1
    ((reason, n),) = described(left_out).items()
    assert reason.startswith("no program could pass its tests here (mine-000001): ")
    assert reason.endswith(detail)
    assert n == 1


def test_a_set_of_which_nothing_is_left_is_refused(tmp_path: Path, code_executors: Executors, wording: Golden):
    failing = MBPP | {"code": "def double(n): return 4"}
    for rows in ([failing, OWN | {"tests": []}], []):
        with pytest.raises(InputError) as refusal:
            list(usable_tasks(written(tmp_path, *rows), None, code_executors, {}))
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
    same_as = Domain().same_tasks({"a": [mbpp, humaneval], "b": [own]})
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
