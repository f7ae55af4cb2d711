"""The domain `text`: a question with a short text as its answer, equal up to case, space and outer punctuation."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arc_refinery import grades
from arc_refinery.answers import final_text, marked_text, normalized
from arc_refinery.asserts.rows import plain_words
from arc_refinery.domains import domain
from arc_refinery.domains.domain import NOT_SHOWN, Answer, Question
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.programs import after_thought
from arc_refinery.rows import text_field
from arc_refinery.sandbox import Executor, Status

REQUEST = "End your answer with a line `#### ` and the answer, for instance `#### Paris`."


@dataclass(frozen=True, slots=True)
class Asked:
    KIND: ClassVar = "tasks"
    task_id: str
    question: str
    answer: str
    origin: str = ""


@dataclass(frozen=True, slots=True)
class TextGrade(grades.Grade):
    is_marked: bool = False  # as the prompt asks for
    said: str = ""
    hidden_right: bool = False

    @property
    def score(self) -> float:
        return float(self.is_marked)

    @property
    def is_solved(self) -> bool:
        return self.hidden_right


class Domain(domain.Domain):
    task_class, grade_class = Asked, TextGrade
    n_executors = 0
    answers_are_programs = False
    unused: ClassVar = NOT_SHOWN | {"aliases": "only answer counts as correct"}
    checks, shown, hidden = "marks", "mark", "the text"

    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Asked:
        answer = text_field(row, "answer", where)
        if not normalized(answer):
            raise InputError(f"{where}: field 'answer' is {answer!r:.60}; expected letters or digits")
        return Asked(task_id, text_field(row, "question", where), answer)

    def content(self, task: Asked) -> str:
        return plain_words(task.question)

    def first_turn(self, task: Asked, rng: np.random.Generator, own: None, wording: None) -> Question:
        return Question([Message(role="user", content=f"{task.question}\n\n{REQUEST}")])

    def feedback(self, prompt: Any, grade: TextGrade, wording: None) -> str:
        said = "" if grade.is_marked else "Your answer is not marked. "
        return f"{said}{self.no_feedback(wording)}"

    def no_feedback(self, wording: None) -> str:
        return f"Check your answer, and answer again. {REQUEST}"

    def program(self, text: str, task: Asked) -> str:
        return final_text(after_thought(text))

    def has_closed_code(self, text: str) -> bool:
        return marked_text(after_thought(text)) is not None

    def grade(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[TextGrade, None, None]:
        for text, task in answers:
            said = final_text(text)
            is_right = bool(said) and said == normalized(task.answer)
            yield TextGrade(str(Status.ok), "", said, marked_text(text) is not None, said, is_right)

    # With tools

    def asked(self, task: Asked) -> str:
        return task.question

    def correct(self, task: Asked) -> str:
        return task.answer

    def final_answer(self, task: Asked) -> str:
        return f"#### {task.answer}"

    def is_marked(self, text: str) -> bool:
        return marked_text(text) is not None and bool(final_text(text))
