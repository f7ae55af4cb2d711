"""A problem's own program as the answer that a model learns: what is kept, what goes, what an answer begins with."""

import ast

import pytest

from arc_refinery.barc.generator import ProblemDifficulty, generate_problem, program_body
from arc_refinery.domains.arc.demonstrations import completed_answer, transform_program
from arc_refinery.domains.arc.prompts import compact_answer
from arc_refinery.domains.prompts import extract_code

BARC = '''\
from common import *

import numpy as np
from typing import *

# concepts:
# filling, "main" colors

# description:
# Fill each shape; the main() color of é stays.

SIZE = 3


def helper(grid, depth):
    # calls itself through main
    return main(grid) if depth else grid


@lru_cache
def main(input_grid: np.ndarray) -> np.ndarray:
    """main docs"""
    é = "é"; result = helper(input_grid, 0) if é else main(input_grid)
    main_color = SIZE
    return result


# makes
# inputs
def generate_input():
    return np.zeros((SIZE, SIZE))


# kept: a comment of its own
SAMPLE = generate_input()
if __name__ == "__main__":
    visualize(generate_input, main)
'''
EXPECTED = '''\
from common import *

import numpy as np
from typing import *

# concepts:
# filling, "main" colors

# description:
# Fill each shape; the main() color of é stays.

SIZE = 3


def helper(grid, depth):
    # calls itself through main
    return transform(grid) if depth else grid


@lru_cache
def transform(input_grid: np.ndarray) -> np.ndarray:
    """main docs"""
    é = "é"; result = helper(input_grid, 0) if é else transform(input_grid)
    main_color = SIZE
    return result'''


def test_generated_problems_have_the_answers_that_pretraining_showed():
    difficulty = ProblemDifficulty(max_side=6, compositions=0.5)
    for number in range(150):
        problem, statements = generate_problem(difficulty, 3, "pretraining", 11, "answers", number)
        program = transform_program(problem.source, bare=True)
        assert completed_answer(str(program), "") == compact_answer(program_body(statements))


def test_a_barc_program_keeps_all_but_what_makes_inputs():
    assert transform_program(BARC) == EXPECTED
    assert transform_program(BARC.replace("\n", "\r\n")) == EXPECTED


def test_without_generate_input_nothing_but_the_name_changes():
    assert (
        transform_program("import numpy\ndef main(g):\n    return g") == "import numpy\ndef transform(g):\n    return g"
    )


def test_bare_programs_lose_comments_between_statements_only():
    source = "from common import *\n# out\nX = 1  # in\n\n\n# out\ndef main(g):\n    # in\n    return g\n"
    expected = "from common import *\n\nX = 1  # in\n\ndef transform(g):\n    # in\n    return g"
    assert transform_program(source, bare=True) == expected


@pytest.mark.parametrize(
    "source", ["", "def main(:", "def transform(g):\n    return g", "main = 3", "def main(g):\n\0"]
)
def test_what_has_no_main_has_no_program(source: str):
    assert transform_program(source) is None


PROGRAM = "from common import *\n\nimport numpy as np\n\ndef transform(g):\n    return g"


@pytest.mark.parametrize(
    ("prefix", "answer"),
    [
        ("", f"```python\n{PROGRAM}\n```"),
        ("Let's solve this.", f"Let's solve this.\n```python\n{PROGRAM}\n```"),
        ("Here is the code:\n```python", f"Here is the code:\n```python\n{PROGRAM}\n```"),
        ("Code:\n```python\nfrom common import *\n\nimport numpy", f"Code:\n```python\n{PROGRAM}\n```"),
    ],
)
def test_an_answer_begins_with_the_prefix_and_holds_the_whole_program(prefix: str, answer: str):
    assert completed_answer(PROGRAM, prefix) == answer
    assert answer.startswith(prefix)
    assert extract_code(answer) == f"{PROGRAM}\n"


def test_a_prefix_that_begins_another_program_fits_none():
    assert completed_answer(PROGRAM, "```python\nimport scipy") is None


def test_a_program_that_would_close_its_block_fits_no_answer():
    fenced = PROGRAM + '\n\nTEXT = """\n```\n"""'
    assert ast.parse(fenced)
    assert completed_answer(fenced, "") is None
