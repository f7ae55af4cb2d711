"""Texts of ARC's turns: the task, feedback from executing a program, and answers of the embedded model."""

from arc_refinery.arc.grids import Grid
from arc_refinery.arc.metrics import pixel_score
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.domains.arc.prompts.template import Template
from arc_refinery.domains.prompts import fill
from arc_refinery.models.chat import Message

# Beginning and end of the embedded model's answers
ANSWER_HEAD = "```python\nfrom common import *\n\ndef transform(grid):\n"


ANSWER_TAIL = "    return grid\n```"


def first_turn(task: Task, template: Template) -> list[Message]:
    """Return the conversation that asks for a task's program."""
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


def execution_feedback(
    task: Task, outputs: tuple[Grid, ...], template: Template, revealed: tuple[Pair, Grid] | None = None
) -> str:
    """Return feedback on each train pair, in the template's form, and on a `revealed` one, with the program's grid.

    `outputs` are the program's grids for the train inputs; nothing about the test pairs is ever fed back.
    """
    pairs = enumerate(zip(task.train, outputs, strict=True), 1)
    on_pairs = [_feedback_on_pair(number, output, pair.output, template) for number, (pair, output) in pairs]
    if revealed:
        (pair, output), number, write = revealed, len(task.train) + 1, template.notation.write
        facts = {"number": number, "input": write(pair.input), "output": write(pair.output)}
        on_pairs += [fill(template.feedback.revealed, facts), _feedback_on_pair(number, output, pair.output, template)]
    return "".join([template.feedback.head, *on_pairs, template.feedback.tail])


def _feedback_on_pair(number: int, output: Grid, expected: Grid, template: Template) -> str:
    notation, texts = template.notation, template.feedback
    if template.form == "residual":
        return fill(
            texts.residual, {"number": number, "input": notation.write(output), "output": notation.write(expected)}
        )
    score = pixel_score(output, expected)
    if score == 1.0:
        return fill(texts.correct, {"number": number})
    has_other_shape = output.shape != expected.shape
    facts = {
        "number": number,
        "similarity": min(round(100 * score), 99),  # a wrong grid never shows 100 %
        "other_shape": fill(texts.other_shape, {"shape": shape_text(expected)}) if has_other_shape else "",
        "grid": ("" if notation.shows_shape else f"{shape_text(output)}:\n") + notation.write(output),
    }
    return fill(texts.wrong, facts)


def shape_text(grid: Grid) -> str:
    return f"{grid.shape[0]}x{grid.shape[1]}"


def error_feedback(error: str, template: Template) -> str:
    """Return feedback for a program that raised: the exception's type, message and line."""
    return fill(template.feedback.error, {"error": error}) + template.feedback.tail


def compact_answer(body: str) -> str:
    """Return a completion in the embedded model's format; `body` is indented and ends without a line break."""
    return f"{ANSWER_HEAD}{body}\n{ANSWER_TAIL}"


def body_of(answer: str) -> str:
    """Return the `body` inside a `compact_answer`; for any other answer, the whole text."""
    return answer.removeprefix(ANSWER_HEAD).removesuffix(f"\n{ANSWER_TAIL}")
