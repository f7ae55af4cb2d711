"""The tool `python`: what lasts from call to call in an episode."""

import re
from collections.abc import Iterator

import pytest
from messages import Wording

from arc_refinery.sandbox import Executor, Limits
from arc_refinery.tool_use.config import ToolChoice
from arc_refinery.tool_use.tools.built_in_tools import NO_OUTPUT, PYTHON_MODULES
from arc_refinery.tool_use.tools.toolbox import Toolbox


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    """It can import sympy, as in a job that offers the tool."""
    with Executor(1, Limits(cpu_seconds=2.0, wall_seconds=30.0, memory_mb=512), modules=PYTHON_MODULES) as executor:
        yield executor


def session(executor: Executor, *codes: str, seconds: float | None = None) -> list[str]:
    """The results of an episode's calls."""
    tools = Toolbox([ToolChoice(tool="python", seconds=seconds)], executor)
    return [tools.run("python", {"code": code}).text for code in codes]


@pytest.mark.parametrize(
    ("codes", "results"),
    [
        (["x = 6", "x * 7"], [NO_OUTPUT, "42"]),
        (["print('a')\n1", "print('b')\n2", "3"], ["a\n1", "b\n2", "3"]),  # earlier output is not shown again
        (["def f(n): return n + 1", "f(1)", "f(f(1))"], [NO_OUTPUT, "2", "3"]),
        (["import math", "math.comb(5, 2)"], [NO_OUTPUT, "10"]),
        (
            ["xs = []", "xs.append(1)", "xs.append(2)", "xs"],
            [NO_OUTPUT, NO_OUTPUT, NO_OUTPUT, "[1, 2]"],
        ),
        (["import numpy as np\na = np.arange(6).reshape(2, 3)", "int((a @ a.T).sum())"], [NO_OUTPUT, "83"]),
        (["class A:\n    n = 1\na = A()", "a.n += 1", "a.n"], [NO_OUTPUT, NO_OUTPUT, "2"]),
        (["import sys\nout = sys.stdout", "print('kept', file=out)"], [NO_OUTPUT, "kept"]),
        (["x = 6\nprint(x)\nexit()", "x * 7", "quit()", "x"], ["6", "42", NO_OUTPUT, "6"]),
        (
            ["import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint(1)", "print(2)"],
            ["1", "2"],
        ),
        (["import sys\nx = sys.stdout.buffer.write(b'1')", "print(2)"], ["1", "2"]),
    ],
)
def test_names_last_for_the_episode(executor: Executor, codes: list[str], results: list[str]):
    assert session(executor, *codes) == results


@pytest.mark.slow
def test_a_call_that_fails_leaves_nothing(executor: Executor, wording: Wording):
    codes = "x = 1", "x = 2\nprint(x)\n1 / 0", "x", "y = 3\nwhile True: pass", "y"
    first, wrong, value, too_long, gone = session(executor, *codes, seconds=0.5)
    assert (first, value) == (NO_OUTPUT, "1")
    assert wrong.startswith("Error: ZeroDivisionError: ")
    assert wrong.endswith(" (line 3)\nOutput before the error: 2")
    assert too_long.startswith("Error: Timeout: ")
    assert re.findall(r"[\d.]+", too_long) == ["1.5", "2"]  # seconds of three calls, and calls before
    assert gone.startswith("Error: NameError: name 'y' ")
    for text in (wrong, too_long, gone):
        wording(text)


@pytest.mark.slow
def test_each_call_has_the_whole_time_limit(executor: Executor):
    busy = "import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass\n'done'"
    assert session(executor, busy, busy, busy) == ["'done'"] * 3


def test_chance_goes_on_where_the_call_before_left_it(executor: Executor):
    import random

    random_numbers = random.Random(0)
    expected = [str(random_numbers.randrange(1000)) for _ in range(3)]
    assert session(executor, "import random\nrandom.randrange(1000)", *["random.randrange(1000)"] * 2) == expected


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("solve(x**2 - 5*x + 6, x)", "[2, 3]"),
        ("integrate(x**2, (x, 0, 3))", "9"),
        ("diff(sin(x), x)", "cos(x)"),
        ("limit(sin(x) / x, x, 0)", "1"),
        ("Matrix([[2, 0], [0, 3]]).eigenvals()", "{2: 1, 3: 1}"),
        ("factorint(360)", "{2: 3, 3: 2, 5: 1}"),
        ("summation(1 / n**2, (n, 1, oo))", "pi**2/6"),
        ("float(nsolve(cos(x) - x, x, 1)) - 0.739 < 0.001", "True"),
        ("lambdify(x, x**2)(3)", "9"),
        ("refine(sqrt(x**2), Q.positive(x))", "x"),
        ("simplify(sin(x)**2 + cos(x)**2)", "1"),
        ("solveset(x**2 - 1, x)", "{-1, 1}"),
        ("reduce_inequalities([x**2 < 4], x)", "(-2 < x) & (x < 2)"),
    ],
)
def test_sympy_computes(executor: Executor, code: str, result: str):
    assert session(executor, "from sympy import *\nx, n = symbols('x n')", code)[1] == result


def test_sympy_is_only_there_for_this_tool(executor: Executor, wording: Wording):
    with Executor(1, Limits()) as other:
        (text,) = session(other, "import sympy")
    assert text.startswith("Error: ModuleNotFoundError: ")
    assert text.endswith("'sympy' (line 1)")
    wording(text)
