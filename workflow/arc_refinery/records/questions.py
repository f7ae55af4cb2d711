"""Questions for the model, and the references that its answers are compared with."""

from dataclasses import dataclass
from typing import ClassVar, Literal

QuestionKind = Literal["gsm8k", "code_exec", "exact_match"]


@dataclass(frozen=True, slots=True)
class Asserts:
    """Tests of a program: statements like `assert f(2) == 4`."""

    statements: tuple[str, ...]
    imports: tuple[str, ...] = ()  # imports that the statements need
    setup: str = ""  # code that the statements need, such as arguments for the program


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a data set."""

    KIND: ClassVar = "questions"
    question_id: str
    text: str  # as the model reads it
    kind: QuestionKind  # how an answer is checked
    reference: str  # the correct answer: a number, a text, or a program that passes the asserts
    solution: str = ""  # for gsm8k: the worked answer, with its calculations marked <<48/2=24>>
    asserts: Asserts | None = None  # for code_exec
