"""The domain: its tasks, prompts, grades and feedback. A program gets a number `n` and prints a text.

task       {"question": "Print twice n.", "shown": [{"n": 3, "output": "6"}], "hidden": [{"n": 10, "output": "20"}]}
answer     "```python\\nprint(n + 2)\\n```"
feedback   "For n = 3 your program printed '5', expected '6'. Write a corrected program."

Change each part to what your tasks are; arc_refinery/domains/domain.py has all members that a domain may have.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arc_refinery import grades
from arc_refinery.domains import domain
from arc_refinery.domains.domain import Answer, Question
from arc_refinery.errors import InputError
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.models.chat import Message
from arc_refinery.records.refining import NO_CODE
from arc_refinery.rows import text_field
from arc_refinery.sandbox import Executor, Script, Status

AGAIN = "Write a corrected program."


@dataclass(frozen=True, slots=True)
class Case:
    n: int
    output: str


# Change: the fields of a task. They may be texts, numbers, booleans, tuples of these, or dataclasses of these.
@dataclass(frozen=True, slots=True)
class Task:
    KIND: ClassVar = "tasks"
    task_id: str
    question: str
    shown: tuple[Case, ...]  # in the prompt
    hidden: tuple[Case, ...]  # also decide whether a task is solved; no prompt and no feedback may depend on them
    origin: str = ""


# Change: what is known about an answer when it has been executed. Feedback reads it, and tables its numbers.
@dataclass(frozen=True, slots=True)
class Grade(grades.Grade):
    printed: tuple[str, ...] = ()  # for the shown cases
    shown_right: float = 0.0  # share of the shown cases
    hidden_right: float = 0.0

    @property
    def score(self) -> float:
        return self.shown_right

    @property
    def is_solved(self) -> bool:
        return self.shown_right == self.hidden_right == 1.0


class Domain(domain.Domain):
    task_class, grade_class = Task, Grade
    checks, shown, hidden = "cases", "shown cases", "hidden cases"  # words of the report
    columns = ("shown_right", "hidden_right")  # numbers of a grade that tables have, shares from 0 to 1
    metrics = (Metric("shown cases right", "shown_right"), Metric("hidden cases right", "hidden_right"))

    # Change: how a row of your file becomes a task. None leaves the row out, and the report counts it.
    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Task | None:
        shown, hidden = _cases(row, "shown", where), _cases(row, "hidden", where)
        return Task(task_id, text_field(row, "question", where), shown, hidden) if shown else None

    # Change: the prompt of a first turn.
    def first_turn(self, task: Task, rng: np.random.Generator, own: Any, wording: Any) -> Question:
        examples = "\n".join(f"For n = {case.n} it prints {case.output!r}." for case in task.shown)
        question = f"Write a Python program in a ```python block. {task.question}\n{examples}"
        return Question([Message(role="user", content=question)])

    # Change: how answers are graded. A sandbox runs the programs (docs/internals.md), and never gets expected outputs.
    # A domain that executes nothing has `n_executors = 0`, and no executors here.
    def grade(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[Grade, None, None]:
        programs = [self.program(text, task) for text, task in answers]
        outcomes = executors[0].run(
            Script("", (f"n = {case.n}", program), interactive=True, program=1)  # a process of its own for each case
            for program, (_, task) in zip(programs, answers, strict=True)
            if program is not None
            for case in (*task.shown, *task.hidden)
        )
        for program, (_, task) in zip(programs, answers, strict=True):
            if program is None:
                yield Grade(NO_CODE)
                continue
            shown = [next(outcomes) for _ in task.shown]
            hidden = [next(outcomes) for _ in task.hidden]
            failed = next((outcome for outcome in shown if outcome.status is not Status.ok), shown[0])
            printed = tuple(outcome.printed.strip() for outcome in shown)
            right = [text == case.output for text, case in zip(printed, task.shown, strict=True)]
            hidden_right = [o.printed.strip() == case.output for o, case in zip(hidden, task.hidden, strict=True)]
            yield Grade(
                status=failed.status,
                error=failed.error,
                code=program,
                printed=printed,
                shown_right=sum(right) / len(right) if failed.status is Status.ok else 0.0,
                hidden_right=sum(hidden_right) / len(hidden_right) if hidden_right else 1.0,
            )

    # Change: what the model reads about its answer. `prompt.detail` is the task.
    def feedback(self, prompt: Any, grade: Grade, wording: Any) -> str:
        if not grade.is_valid:
            return f"Your program failed: {grade.error}. {AGAIN}"
        wrong = [
            f"For n = {case.n} your program printed {printed!r}, expected {case.output!r}."
            for case, printed in zip(prompt.detail.shown, grade.printed, strict=True)
            if printed != case.output
        ]
        return " ".join([*wrong, AGAIN])

    # Change: what it reads in the control with `feedback: none`.
    def no_feedback(self, wording: Any) -> str:
        return AGAIN


def _cases(row: Mapping[str, Any], field: str, where: str) -> tuple[Case, ...]:
    try:
        return tuple(Case(int(case["n"]), str(case["output"])) for case in row[field])
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{where}: field {field!r} is not a list of objects with n and output") from None
