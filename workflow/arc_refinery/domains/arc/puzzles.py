"""ARC's puzzles as questions of tool use: the answer is a program `transform`, or the output grids of the tests.

text        "[...] Example 1, input:\\n10\\n00\\n\\nExample 1, output:\\n01\\n00\\n[...] Test 1, input:\\n02\\n00[...]"
JSON        {"task_id": "flip", [...], "train": [{"input": [[1, 0], [0, 0]], "output": ...}], "test": [...], [...]}
answer      "```python\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```", or "```\\n20\\n00\\n```"

Tools that run Python have the puzzle, without the outputs of its tests, and a check of the examples. A program has to
be right on hidden pairs, too, whose inputs nobody shows; grids cannot be.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arc_refinery import grades
from arc_refinery.arc.grids import Grid, GridError, as_grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.domain import Answer
from arc_refinery.errors import InputError
from arc_refinery.programs import blocks_of, defined_names, last_program
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Program, Status

TRIAL = "check(transform)"
SIDES = ("train", "test", "hidden")
GIVEN = (
    "It has the puzzle: examples, a list of pairs (input, output) of arrays; tests, a list of input arrays; and "
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


@dataclass(frozen=True, slots=True)
class PuzzleGrade(grades.Grade):
    """Whether a program, or the grids of an answer without one, give the outputs of the tests."""

    is_right: bool = False

    @property
    def score(self) -> float:
        return float(self.is_right)

    @property
    def is_solved(self) -> bool:
        return self.is_right


def question_text(task: Task) -> str:
    """Raises `InputError` for a task whose tests have no outputs."""
    if not all(pair.output.size for pair in task.test):
        raise InputError(f"task {task.task_id}: a test has no output; expected one, or `solutions` of the set")
    shown = [
        f"Example {number}, {side}:\n{_rows(grid)}"
        for number, pair in enumerate(task.train, 1)
        for side, grid in (("input", pair.input), ("output", pair.output))
    ]
    shown += [f"Test {number}, input:\n{_rows(pair.input)}" for number, pair in enumerate(task.test, 1)]
    return _QUESTION.format(grids="\n\n".join(shown))


def to_json(task: Task) -> str:
    words = {"task_id": task.task_id, "origin": task.origin, "source": task.source}
    return json.dumps(words | {side: list(map(_listed, getattr(task, side))) for side in SIDES})


def from_json(text: str) -> Task:
    known = json.loads(text)
    pairs = {side: tuple(map(_pair, known[side])) for side in SIDES}
    return Task(**known | pairs)


def setup_of(task: Task) -> str:
    """Return the code that a tool runs before the model's."""
    examples = ", ".join(f"({_array(pair.input)}, {_array(pair.output)})" for pair in task.train)
    return _SETUP.format(examples=examples, tests=", ".join(_array(pair.input) for pair in task.test))


def grades_of(answers: Sequence[Answer], executor: Executor) -> Iterator[PuzzleGrade]:
    """Yield the grades of answers: by a program's outputs for the tests, or the grids of an answer without one."""
    programs = [program_of(answer.text) for answer in answers]
    outcomes = executor.run(
        Program("", program, tuple(pair.input for pair in _run_on(answer.subject)))
        for program, answer in zip(programs, answers, strict=True)
        if program is not None
    )
    for answer, program in zip(answers, programs, strict=True):
        tests = answer.subject.test
        if program is None:
            outputs = grids_of(answer.text, len(tests))
            shown = "\n\n".join(map(_rows, outputs)) or None
            yield PuzzleGrade(str(Status.ok) if shown else NO_CODE, "", shown, is_right(outputs, tests))
        else:
            outcome = next(outcomes)
            right = is_right(outcome.outputs, _run_on(answer.subject))
            yield PuzzleGrade(str(outcome.status), outcome.error, program, right)


def _run_on(task: Task) -> tuple[Pair, ...]:
    """Return the pairs that a program has to be right on."""
    return task.test + task.hidden


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


def outputs_text(task: Task) -> str:
    """Return the outputs of the tests, for people."""
    return "\n\n".join(_rows(pair.output) for pair in task.test)


def _listed(pair: Pair) -> dict[str, Any]:
    return {"input": pair.input.tolist(), "output": pair.output.tolist()}


def _pair(listed: dict[str, Any]) -> Pair:
    return Pair(as_grid(listed["input"]), as_grid(listed["output"]))


def _rows(grid: Grid) -> str:
    return "\n".join("".join(map(str, row)) for row in grid.tolist())


def _array(grid: Grid) -> str:
    return f"np.array({grid.tolist()})"
