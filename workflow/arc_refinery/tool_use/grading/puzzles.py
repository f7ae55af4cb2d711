"""ARC's puzzles as questions: the answer is a program `transform`, or the output grids of the tests.

text        "[...] Example 1, input:\\n10\\n00\\n\\nExample 1, output:\\n01\\n00\\n[...] Test 1, input:\\n02\\n00[...]"
reference   {"train": [{"input": [[1, 0], [0, 0]], "output": ...}], "test": [{"input": ..., "output": [[2, 0], ...]}]}
answer      "```python\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```", or "```\\n20\\n00\\n```"

Tools that run Python have the puzzle, without the outputs of its tests, and a check of the examples.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from arc_refinery.arc.grids import Grid, GridError, as_grid
from arc_refinery.arc.kaggle import tasks_in
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.programs import blocks_of, defined_names, last_program
from arc_refinery.records.tool_use import Question

IN_TOOL = (
    " It has the puzzle: examples, a list of pairs (input, output) of arrays; tests, a list of input arrays; and "
    "check(f), which prints on which examples a function f(grid) is right."
)
_QUESTION = """A rule turns input grids into output grids. A digit is the colour of a cell.

{grids}

Write a Python function transform(grid) that follows the rule, in one ```python block. grid is a numpy array, and so \
is what it returns. It is run on the tests. Or write the output of each test, in order, each in a ``` block of its \
own."""
_SETUP = """import numpy as np
examples = [{examples}]
tests = [{tests}]
def check(f):
    for number, (given, wanted) in enumerate(examples, 1):
        try:
            got = np.array(f(given.copy()))
        except Exception as error:
            print(f"example {{number}}: {{type(error).__name__}}: {{error}}")
            continue
        if got.shape != wanted.shape:
            print(f"example {{number}}: wrong, the shape is {{got.shape}}, expected {{wanted.shape}}")
        elif (got != wanted).any():
            print(f"example {{number}}: wrong in {{int((got != wanted).sum())}} of {{wanted.size}} cells")
        else:
            print(f"example {{number}}: right")
"""


def puzzle_question(task: Task) -> Question:
    sides = {"train": task.train, "test": task.test}
    known = {
        side: [{"input": pair.input.tolist(), "output": pair.output.tolist()} for pair in pairs]
        for side, pairs in sides.items()
    }
    return Question(task.task_id, question_text(task), "arc", json.dumps(known))


def question_text(task: Task) -> str:
    shown = [
        f"Example {number}, {side}:\n{_rows(grid)}"
        for number, pair in enumerate(task.train, 1)
        for side, grid in (("input", pair.input), ("output", pair.output))
    ]
    shown += [f"Test {number}, input:\n{_rows(pair.input)}" for number, pair in enumerate(task.test, 1)]
    return _QUESTION.format(grids="\n\n".join(shown))


def puzzle_of(question: Question) -> Task:
    (task,) = tasks_in({question.question_id: json.loads(question.reference)}, Path(question.question_id))
    return task


def setup_of(question: Question) -> str:
    """Return the code that a tool runs before the model's; empty for other questions."""
    if question.kind != "arc":
        return ""
    task = puzzle_of(question)
    examples = ", ".join(f"({_array(pair.input)}, {_array(pair.output)})" for pair in task.train)
    return _SETUP.format(examples=examples, tests=", ".join(_array(pair.input) for pair in task.test))


def program_of(answer: str) -> str | None:
    """Return the program in an answer; None if it defines no `transform`."""
    code = last_program(answer, {"transform"})
    return code if code and "transform" in defined_names(code) else None


def grids_of(answer: str, n: int) -> tuple[Grid, ...]:
    """Return the last `n` blocks of an answer that are grids."""
    grids = []
    for _, block, _ in blocks_of(answer.replace("\r\n", "\n")):
        lines = [re.sub(r"[\s,]", "", line) for line in block.split("\n")]
        if not all(line.isdecimal() for line in lines if line):
            continue
        rows = [list(map(int, line)) for line in lines if line]
        try:
            grids.append(as_grid(rows))
        except GridError:
            continue
    return tuple(grids[-n:])


def is_right(outputs: Sequence[Grid], tests: Sequence[Pair]) -> bool:
    return len(outputs) == len(tests) and all(
        np.array_equal(output, pair.output) for output, pair in zip(outputs, tests, strict=True)
    )


def outputs_text(question: Question) -> str:
    """Return the outputs of the tests, for people."""
    return "\n\n".join(_rows(pair.output) for pair in puzzle_of(question).test)


def _rows(grid: Grid) -> str:
    return "\n".join("".join(map(str, row)) for row in grid.tolist())


def _array(grid: Grid) -> str:
    return f"np.array({grid.tolist()})"
