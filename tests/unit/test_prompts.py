"""What the model reads, to the character, and which program is taken out of what it writes."""

from typing import Any

import numpy as np
import pytest

from arc_refinery.grids import Grid, as_grid
from arc_refinery.prompts import (
    answer,
    encode_grid,
    error_feedback,
    execution_feedback,
    extract_code,
    first_turn,
    next_turn,
)
from arc_refinery.tasks import Pair, Task


def pair(given: list[Any], wanted: list[Any]) -> Pair:
    return Pair(as_grid(given), as_grid(wanted))


@pytest.fixture
def task() -> Task:
    """Transposition: two train pairs, one test pair."""
    train = (pair([[1, 2]], [[1], [2]]), pair([[0, 3], [4, 0]], [[0, 4], [3, 0]]))
    return Task("t", train, (pair([[5, 6]], [[5], [6]]),), "by-hand")


@pytest.fixture
def three() -> tuple[Task, tuple[Grid, ...]]:
    """Three train pairs that want 12/34, and outputs: the right one, one cell wrong, a row too few."""
    wanted = pair([[0]], [[1, 2], [3, 4]])
    outputs = as_grid([[1, 2], [3, 4]]), as_grid([[1, 2], [3, 0]]), as_grid([[1, 2]])
    return Task("t", (wanted,) * 3, (pair([[5]], [[7, 7]]),), "by-hand"), outputs


def test_a_compact_grid_is_its_shape_and_numbered_rows_of_digits():
    assert encode_grid(as_grid([[1, 2, 3], [4, 5, 0]]), "compact") == "2x3\n1 123\n2 450"


def test_compact_row_numbers_start_at_one_and_reach_thirty():
    lines = encode_grid(np.zeros((30, 1), np.uint8), "compact").split("\n")
    assert (lines[0], lines[1], lines[30]) == ("30x1", "1 0", "30 0")
    assert len(lines) == 31


def test_a_barc_grid_is_rows_of_colour_names():
    grid = as_grid([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    assert encode_grid(grid, "barc") == "Black Blue Red Green Yellow\nGray Pink Orange Teal Maroon"


def test_a_compact_first_turn_is_the_train_pairs_alone(task: Task):
    assert first_turn(task, "compact") == [
        {
            "role": "user",
            "content": (
                "\ninput 1x2\n1 12\noutput 2x1\n1 1\n2 2"  # pair 1
                "\ninput 2x2\n1 03\n2 40\noutput 2x2\n1 04\n2 30"  # pair 2
            ),
        }
    ]


def test_a_barc_first_turn_is_barcs_own_text(task: Task):
    system, user = first_turn(task, "barc")
    assert system == {
        "role": "system",
        "content": "You are a world-class puzzle solver with exceptional pattern recognition skills and expertise in "
        "Python programming. Your task is to analyze puzzles and provide Python solutions.",
    }
    assert user["role"] == "user"
    assert user["content"] == (
        "Given input-output grid pairs as reference examples, carefully observe the patterns to predict the output "
        "grid for new test input. Each pair follows the same transformation rule. Grids are 2D arrays represented as "
        "strings, with cells (colors) separated by spaces and rows by newlines.\n"
        "Here are the input and output grids for the reference examples:\n"
        "----------------\n"
        "Example 1\nInput:\nBlue Red\n\nOutput:\nBlue\nRed\n\n\n"
        "Example 2\nInput:\nBlack Green\nYellow Black\n\nOutput:\nBlack Yellow\nGreen Black\n\n"
        "----------------\n"
        "Here is the input grid for the test example:\n"
        "Input:\nGray Pink\n\n"
        "Write a Python function `transform` that can convert any given input grid to its corresponding output grid "
        "based on the pattern observed in the reference examples."
    )


@pytest.mark.parametrize("template", ["compact", "barc"])
def test_a_first_turn_does_not_depend_on_the_tests_answer(task: Task, template: Any):
    other = Task("t", task.train, (Pair(task.test[0].input, as_grid([[9, 9, 9]])),), "by-hand")
    assert first_turn(task, template) == first_turn(other, template)


def test_a_next_turn_is_the_conversation_the_models_own_answer_and_the_feedback():
    conversation = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert next_turn(conversation, "my program", "it failed") == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "my program"},
        {"role": "user", "content": "it failed"},
    ]
    assert len(conversation) == 2  # the one that was given is not changed


def test_compact_feedback_says_for_each_train_pair_what_the_program_gave(three: tuple[Task, tuple[Grid, ...]]):
    # pair 2: three of four cells are equal. Pair 3: its two cells are equal, the box that holds both grids has four
    assert execution_feedback(*three, "compact") == (
        "Executing your program gave:"
        "\npair 1 correct"
        "\npair 2 wrong, pixel similarity 75%, given 2x2\n1 12\n2 30"
        "\npair 3 wrong, pixel similarity 50%, expected shape 2x2, given 1x2\n1 12"
        "\nWrite a corrected program."
    )


def test_barc_feedback_shows_grids_in_colour_names_on_lines_of_their_own(three: tuple[Task, tuple[Grid, ...]]):
    lines = execution_feedback(*three, "barc").split("\n")
    assert [line.rstrip() for line in lines] == [
        "Executing your program gave:",
        "pair 1 correct",
        "pair 2 wrong, pixel similarity 75%, given",
        "Blue Red",
        "Green Black",
        "pair 3 wrong, pixel similarity 50%, expected shape 2x2, given",
        "Blue Red",
        "Write a corrected program.",
    ]


@pytest.mark.parametrize("template", ["compact", "barc"])
def test_feedback_shows_neither_the_expected_grid_nor_the_test_pair(
    three: tuple[Task, tuple[Grid, ...]], template: Any
):
    task, outputs = three
    wrong = tuple(as_grid([[0]]) for _ in outputs)
    text = execution_feedback(task, wrong, template)
    assert encode_grid(task.train[0].output, template) not in text
    assert encode_grid(task.test[0].output, template) not in text


def test_feedback_needs_one_output_for_each_train_pair(three: tuple[Task, tuple[Grid, ...]]):
    task, outputs = three
    with pytest.raises(ValueError, match="shorter"):
        execution_feedback(task, outputs[:2], "compact")


def test_a_program_that_raised_is_told_its_exception():
    assert error_feedback("NameError: name 'x' is not defined (line 4)") == (
        "Executing your program failed with NameError: name 'x' is not defined (line 4)\nWrite a corrected program."
    )


def test_an_answer_is_one_code_block_with_a_whole_transform():
    assert answer("    grid = grid.T") == (
        "```python\nfrom common import *\n\ndef transform(grid):\n    grid = grid.T\n    return grid\n```"
    )


def test_the_program_of_an_answer_can_be_taken_out_and_run():
    code = extract_code(answer("    grid = grid[::-1]").replace("from common import *\n", ""))
    namespace: dict[str, Any] = {}
    exec(str(code), namespace)
    assert namespace["transform"]([1, 2, 3]) == [3, 2, 1]


@pytest.mark.parametrize(
    "completion", ["", "I give up.", "def transform(grid): return grid", "`x = 1`", "``` x = 1 ```"]
)
def test_a_completion_without_a_block_has_no_program(completion: str):
    assert extract_code(completion) is None


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```python  \nx = 1\n```", "x = 1\n"),
        ("Let us see.\n\n```python\nx = 1\n\ny = 2\n```\nThat is it.", "x = 1\n\ny = 2\n"),
        ("```python\n```", ""),
    ],
)
def test_the_program_is_what_stands_between_the_fences(completion: str, code: str):
    assert extract_code(completion) == code


def test_of_two_blocks_the_last_one_counts():
    completion = "First try:\n```python\nx = 1\n```\nBetter:\n```py\nx = 2\n```\nDone."
    assert extract_code(completion) == "x = 2\n"


def test_an_unclosed_block_counts():
    assert extract_code("```python\nx = 1\n```\nor\n```python\nx = 2\ny = ") == "x = 2\ny = "
