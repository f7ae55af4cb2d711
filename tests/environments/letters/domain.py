"""Tasks, prompts, grades and feedback.

task       {"word": "bread"}        "Write a text with the letters b, r, e, a, d."
answer     "I had eggs."            status ok, score 0.6
feedback   in the form `letters`:   "Your text lacks b, r. Write a better text."
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arc_refinery import grades
from arc_refinery.domains import domain
from arc_refinery.domains.domain import Answer, Question
from arc_refinery.evaluation.metrics import Metric
from arc_refinery.models.chat import Message
from arc_refinery.records.refining import NO_CODE
from arc_refinery.rows import text_field
from arc_refinery.sandbox import Status


@dataclass(frozen=True, slots=True)
class Word:
    KIND: ClassVar = "tasks"
    task_id: str
    word: str
    origin: str = ""

    @property
    def letters(self) -> list[str]:
        return list(dict.fromkeys(self.word))


@dataclass(frozen=True, slots=True)
class Grade(grades.Grade):
    missing: str = ""
    share: float = 0.0  # of the letters that the text has

    @property
    def score(self) -> float:
        return self.share if self.is_valid else 0.0

    @property
    def is_solved(self) -> bool:
        return self.score == 1.0


class Domain(domain.Domain):
    task_class, grade_class, n_executors = Word, Grade, 0
    checks, shown, hidden = "letters", "letters", ""
    columns, metrics = ("share",), (Metric("letters there", "share"),)

    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Word | None:
        word = text_field(row, "word", where).lower()
        return Word(task_id, word) if word.isalpha() else None

    def wording(self, template: str, form: str) -> str:
        super().wording(template, form)  # refuses a template
        return form or "letters"

    def first_turn(self, task: Word, rng: np.random.Generator, own: Any, wording: str) -> Question:
        question = f"Write a text with the letters {', '.join(task.letters)}."
        return Question([Message(role="user", content=question)])

    def feedback(self, prompt: Any, grade: Grade, wording: str) -> str:
        missing = ", ".join(grade.missing) if wording == "letters" else f"{len(grade.missing)} of the letters"
        return f"Your text lacks {missing}. {self.no_feedback(wording)}"

    def no_feedback(self, wording: str) -> str:
        return "Write a better text."

    def program(self, text: str, subject: Any) -> str:
        return text

    def grade(self, answers: Sequence[Answer], executors: Any) -> Generator[Grade, None, None]:
        for text, word in answers:
            missing = [letter for letter in word.letters if letter not in text.lower()]
            status = Status.ok if text.strip() else NO_CODE
            yield Grade(status, "", text, "".join(missing), 1 - len(missing) / len(word.letters))
