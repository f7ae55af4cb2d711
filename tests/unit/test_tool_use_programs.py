"""Which block of an answer is its program."""

import pytest

from arc_refinery import programs

PROGRAM = "def double(n):\n    return 2 * n\n"
NAMES = {"double"}


def block(code: str, tag: str = "python", fence: str = "```") -> str:
    return f"{fence}{tag}\n{code.rstrip()}\n{fence}\n"


@pytest.mark.parametrize(
    "answer",
    [
        block(PROGRAM),
        block(PROGRAM, "Python"),
        block(PROGRAM, "python3"),
        block(PROGRAM, "py"),
        block(PROGRAM, ""),
        block(PROGRAM, "python", "~~~"),
        f"Program:\n{block(PROGRAM)}Output:\n{block('4', '')}",
        f"Program:\n{block(PROGRAM)}Example:\n{block('double(2)')}",
        f"{block('4', '')}{block(PROGRAM)}",
        f"{block('def double(n): return 0')}Better:\n{block(PROGRAM)}",
        f"{block(PROGRAM)}To run it:\n{block('python double.py', 'bash')}",
        "1. Write it:\n   ```python\n   def double(n):\n       return 2 * n\n   ```\n2. Done.",
        f"```python\n{PROGRAM}",  # cut off
        block(PROGRAM).replace("\n", "\r\n"),
        block(PROGRAM, "python", "````"),
        f"- {block(PROGRAM)}",
        f"1. {block(PROGRAM)}Output:\n{block('4', '')}",
        f"Here: {block(PROGRAM)}",
        f"```python\n{PROGRAM.rstrip()}```",
        f"```python\n{PROGRAM.rstrip()}```\nExample:\n{block('double(2)')}",
        f"```python\n{PROGRAM}``` Done.",
        f"```python\n{PROGRAM}{block('double(2)')}",  # not closed before the example
        f"- ```double(n)``` is it.\n{block(PROGRAM)}",
        f"I write it in ```python\n{block(PROGRAM)}",
        f"It starts with ```python\nand ends with ```.\n{block(PROGRAM)}",
        f"```\nOutput ``` 4\n```\n{block(PROGRAM)}",
        f"{block(PROGRAM)}{block('from solution import double')}",
        f"{block(PROGRAM)}{block('double = double(2)')}",
        f"{block(PROGRAM)}{block('sorted = [double(2)]')}",
    ],
)
def test_the_program_is_found(answer: str):
    code = programs.tested_program(answer, NAMES)
    assert code is not None
    assert code.strip() == PROGRAM.strip()


def test_a_program_may_redefine_a_builtin():
    code = "def sum(a, b):\n    return a - b\n"
    assert programs.tested_program(f"{block(code)}Example:\n{block('sum(3, 2)')}", {"sum"}) == code


def test_a_docstring_may_hold_a_fence():
    code = 'def double(n):\n    """Twice n.\n\n    ```\n    double(2)\n    ```\n    """\n    return 2 * n\n'
    assert programs.tested_program(f"{block(code)}Output:\n{block('4', '')}", NAMES) == code


@pytest.mark.parametrize(
    "program",
    [
        "double = lambda n: 2 * n",
        "if True:\n    def double(n):\n        return 2 * n",
        "from functools import partial\nfrom operator import mul\ndouble = partial(mul, 2)",
        "from collections.abc import Callable\ndouble: Callable[[int], int] = lambda n: 2 * n",
    ],
)
def test_a_function_can_be_defined_in_other_ways(program: str):
    assert str(programs.tested_program(f"{block(program)}Example:\n{block('double(2)')}", NAMES)).strip() == program


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        (f"{block('x = 1')}{block('y = 2')}", "y = 2"),  # none defines it: the last one
        (f"{block('x = (')}{block('1 +')}", "1 +"),  # nor parses
        (f"{block('1', '')}{block('2', '')}", "2"),
    ],
)
def test_without_the_function_the_last_block_counts(answer: str, program: str):
    assert str(programs.tested_program(answer, NAMES)).strip() == program


@pytest.mark.parametrize("answer", ["", "double(n) is 2 * n", PROGRAM, block("ls", "bash")])
def test_an_answer_without_a_block_has_no_program(answer: str):
    assert programs.tested_program(answer, NAMES) is None


@pytest.mark.parametrize(
    "text",
    [
        *(block(line) for line in ["(", '"""', "def double(n):", "x```", "(```", '"""x```']),
        "```python\nx```\n",
        "a ```python\n",
        "```python\ndef f(): pass```\n",
        " " * 20,
    ],
)
def test_a_long_answer_of_many_fences_is_read_line_by_line(text: str):
    """Parsing the code up to each fence took 21 s for 500 of them."""
    assert programs.tested_program(f"{text * 5000}a{block(PROGRAM)}", NAMES) is not None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (f"{PROGRAM}assert double(2) == 5\n", PROGRAM.strip()),
        (f"{PROGRAM}\n# Test cases\nassert double(\n    2\n) == 5, 'wrong'\n", f"{PROGRAM}\n# Test cases"),
        (f"assert True\n{PROGRAM}", f"\n{PROGRAM}".rstrip()),  # lines keep their numbers
        ("def double(n):\n    assert n\n    return 2 * n\n", None),
        (f"{PROGRAM}n = 2; assert double(n) == 5\n", None),
        (f"{PROGRAM}if True:\n    assert double(2) == 5\n", None),
        ("def double(n) return 2 * n\nassert double(2) == 4\n", None),  # does not parse
    ],
)
def test_asserts_of_a_program_are_not_run(code: str, expected: str | None):
    assert programs.tested_program(block(code), NAMES) == (f"{code.rstrip()}\n" if expected is None else expected)
