"""Conversations: the first turn, what executing an answer gave, and the program that an answer holds.

They are lists of `{"role", "content"}` messages; the model's own chat template turns them into tokens. Where a template
has an assistant prefix, a conversation that waits for an answer ends with it, as a message of the assistant: the
rendered text ends with the prefix, and the recorded completion is the prefix and what was sampled. So code is taken out
of the whole answer, and the next turn shows the whole answer. Token counts are of what was sampled.
"""

import re
from collections.abc import Sequence

from arc_refinery.grids import Grid
from arc_refinery.messages import Message
from arc_refinery.metrics import pixel_score
from arc_refinery.prompts.template import Template, fill
from arc_refinery.tasks import Task

_BLOCK = re.compile(r"```(\w*)[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_PYTHON = ("python", "py", "")

# What the embedded model's answers begin and end with
ANSWER_HEAD = "```python\nfrom common import *\n\ndef transform(grid):\n"
ANSWER_TAIL = "    return grid\n```"


def first_turn(task: Task, template: Template) -> list[Message]:
    """The conversation that asks for a task's program."""
    write, n_pairs = template.notation.write, len(task.train)
    facts = {"n_pairs": n_pairs, "next_number": n_pairs + 1, "colors": ", ".join(template.notation.colors)}
    pairs = "".join(
        fill(
            (template.between_pairs if index else "") + template.pair,
            facts | {"number": index + 1, "index": index, "input": write(pair.input), "output": write(pair.output)},
        )
        for index, pair in enumerate(task.train)
    )
    tests = template.between_tests.join(fill(template.test, facts | {"input": write(pair.input)}) for pair in task.test)
    messages = [
        Message(role="system", content=fill(template.system, facts)),
        Message(role="user", content=fill(template.user, facts | {"pairs": pairs, "tests": tests})),
        Message(role="assistant", content=template.assistant_prefix),
    ]
    return [message for message in messages if message["content"]]


def split_prefix(conversation: Sequence[Message]) -> tuple[list[Message], str]:
    """What was asked, and the beginning of the answer to it; empty where the model begins by itself."""
    *asked, last = conversation
    return (asked, last["content"]) if last["role"] == "assistant" else ([*asked, last], "")


def next_turn(conversation: Sequence[Message], completion: str, feedback: str) -> list[Message]:
    """The conversation that the model had, its own whole answer, and what executing that answer gave.

    An answer that began with a prefix is followed by one that begins with it too.
    """
    asked, prefix = split_prefix(conversation)
    begun = [Message(role="assistant", content=prefix)] if prefix else []
    said = Message(role="assistant", content=completion)
    return [*asked, said, Message(role="user", content=feedback), *begun]


def execution_feedback(task: Task, outputs: tuple[Grid, ...], template: Template) -> str:
    """For each train pair: that the program's grid matches, or the grid with its similarity and both shapes.

    `outputs` are the program's grids for the train inputs (what they show of the test pairs is never fed back).
    """
    notation, texts = template.notation, template.feedback
    lines = [texts.head]
    for number, (pair, output) in enumerate(zip(task.train, outputs, strict=True), 1):
        score = pixel_score(output, pair.output)
        if score == 1.0:
            lines.append(fill(texts.correct, {"number": number}))
            continue
        has_other_shape = output.shape != pair.output.shape
        facts = {
            "number": number,
            "similarity": min(round(100 * score), 99),  # what is wrong is never called 100 %
            "other_shape": fill(texts.other_shape, {"shape": shape_text(pair.output)}) if has_other_shape else "",
            "grid": ("" if notation.shows_shape else f"{shape_text(output)}:\n") + notation.write(output),
        }
        lines.append(fill(texts.wrong, facts))
    return "".join([*lines, texts.tail])


def shape_text(grid: Grid) -> str:
    return f"{grid.shape[0]}x{grid.shape[1]}"


def error_feedback(error: str, template: Template) -> str:
    """Feedback for a program that raised: the exception's type, message and line."""
    return fill(template.feedback.error, {"error": error}) + template.feedback.tail


def no_feedback(template: Template) -> str:
    """Control: ask for a correction without showing the execution result."""
    return template.feedback.tail


def answer(body: str) -> str:
    """A completion in the form that the embedded model learns: `body` is indented and ends without a line break."""
    return f"{ANSWER_HEAD}{body}\n{ANSWER_TAIL}"


def body_of(answer: str) -> str:
    """The `body` that `answer` was made of; of other answers, the whole text."""
    return answer.removeprefix(ANSWER_HEAD).removesuffix(f"\n{ANSWER_TAIL}")


def extract_code(completion: str) -> str | None:
    """The program in a completion: its last block of Python (an unclosed one counts); None where there is none."""
    blocks = [code for language, code in _BLOCK.findall(completion) if language in _PYTHON]
    return blocks[-1] if blocks else None
