"""What the model reads and writes: grids as text, first- and next-turn prompts, code taken out of a completion.

Two templates, named in the config: `compact` is the embedded model's (one token a cell, a number at each row),
`barc` is the one that the BARC models were trained with (Li et al. 2024): colour names, one row a line.
Conversations are lists of `{"role", "content"}` messages; the model's own chat template turns them into tokens.
"""

import re
from typing import Literal, TypedDict

from arc_refinery.grids import Grid
from arc_refinery.metrics import pixel_score
from arc_refinery.tasks import Task

Template = Literal["compact", "barc"]


class Message(TypedDict):
    role: str
    content: str


COLOR_NAMES = ("Black", "Blue", "Red", "Green", "Yellow", "Gray", "Pink", "Orange", "Teal", "Maroon")

BARC_SYSTEM = (
    "You are a world-class puzzle solver with exceptional pattern recognition skills and expertise in Python "
    "programming. Your task is to analyze puzzles and provide Python solutions."
)
BARC_QUESTION = (
    "Given input-output grid pairs as reference examples, carefully observe the patterns to predict the output grid "
    "for new test input. Each pair follows the same transformation rule. Grids are 2D arrays represented as strings, "
    "with cells (colors) separated by spaces and rows by newlines."
)

# Fragments that the embedded model's tokenizer knows as single tokens: prompts are built of them.
COMPACT_INPUT = "\ninput "
COMPACT_OUTPUT = "\noutput "
ANSWER_HEAD = "```python\nfrom common import *\n\ndef transform(grid):\n"
ANSWER_TAIL = "    return grid\n```"
FEEDBACK_HEAD = "Executing your program gave:"
FEEDBACK_PAIR = "\npair "
FEEDBACK_CORRECT = " correct"
FEEDBACK_WRONG = " wrong, pixel similarity "
FEEDBACK_SHAPE = ", expected shape "
FEEDBACK_GIVEN = ", given "
FEEDBACK_ERROR = "Executing your program failed with "
FEEDBACK_TAIL = "\nWrite a corrected program."

_BLOCK = re.compile(r"```(\w*)[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = ("python", "py", "")


def encode_grid(grid: Grid, template: Template) -> str:
    """One grid as text: numbered rows of digits under their shape, or rows of colour names."""
    match template:
        case "compact":
            rows = "".join(f"\n{number} {''.join(map(str, row))}" for number, row in enumerate(grid.tolist(), 1))
            return shape_text(grid) + rows
        case "barc":
            return "\n".join(" ".join(COLOR_NAMES[cell] for cell in row) for row in grid.tolist())


def shape_text(grid: Grid) -> str:
    return f"{grid.shape[0]}x{grid.shape[1]}"


def first_turn(task: Task, template: Template) -> list[Message]:
    """The conversation that asks for a task's program. `compact` leaves the test inputs out: they decide nothing."""
    match template:
        case "compact":
            sides = ((COMPACT_INPUT, pair.input, COMPACT_OUTPUT, pair.output) for pair in task.train)
            text = "".join(
                start + encode_grid(given, template) + middle + encode_grid(wanted, template)
                for start, given, middle, wanted in sides
            )
            return [{"role": "user", "content": text}]
        case "barc":
            examples = "\n\n".join(
                f"Example {number}\nInput:\n{encode_grid(pair.input, template)}\n\n"
                f"Output:\n{encode_grid(pair.output, template)}\n"
                for number, pair in enumerate(task.train, 1)
            )
            test = "\n\n".join(f"Input:\n{encode_grid(pair.input, template)}" for pair in task.test)
            question = (
                f"{BARC_QUESTION}\nHere are the input and output grids for the reference examples:\n----------------\n"
                f"{examples}\n----------------\nHere is the input grid for the test example:\n{test}\n\n"
                "Write a Python function `transform` that can convert any given input grid to its corresponding output "
                "grid based on the pattern observed in the reference examples."
            )
            return [{"role": "system", "content": BARC_SYSTEM}, {"role": "user", "content": question}]


def next_turn(conversation: list[Message], completion: str, feedback: str) -> list[Message]:
    """The conversation that the model had, its own answer, and what executing that answer gave."""
    return [*conversation, {"role": "assistant", "content": completion}, {"role": "user", "content": feedback}]


def execution_feedback(task: Task, outputs: tuple[Grid, ...], template: Template) -> str:
    """For each train pair: that the program's grid matches, or the grid with its similarity and both shapes.

    `outputs` are the program's grids for the train inputs (what they show of the test pairs is never fed back).
    """
    lines = [FEEDBACK_HEAD]
    for number, (pair, output) in enumerate(zip(task.train, outputs, strict=True), 1):
        score = pixel_score(output, pair.output)
        if score == 1.0:
            lines.append(f"{FEEDBACK_PAIR}{number}{FEEDBACK_CORRECT}")
        else:
            expected = FEEDBACK_SHAPE + shape_text(pair.output) if output.shape != pair.output.shape else ""
            given = FEEDBACK_GIVEN + ("" if template == "compact" else "\n") + encode_grid(output, template)
            percent = min(round(100 * score), 99)  # what is wrong is never called 100 %
            lines.append(f"{FEEDBACK_PAIR}{number}{FEEDBACK_WRONG}{percent}%{expected}{given}")
    return "".join(lines) + FEEDBACK_TAIL


def error_feedback(error: str) -> str:
    """What a program that raised is told: the exception's type, message and line."""
    return f"{FEEDBACK_ERROR}{error}{FEEDBACK_TAIL}"


def answer(body: str) -> str:
    """A completion in the form that the embedded model learns: `body` is indented and ends without a line break."""
    return f"{ANSWER_HEAD}{body}\n{ANSWER_TAIL}"


def extract_code(completion: str) -> str | None:
    """The program in a completion: its last block of Python (an unclosed one counts); None where there is none."""
    blocks = [code for language, code in _BLOCK.findall(completion) if language in _PYTHON]
    return blocks[-1] if blocks else None
