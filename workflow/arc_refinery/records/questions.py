"""What is asked of the model, and what its answer is held against."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gsm8k", "code_exec", "exact_match"]


@dataclass(frozen=True, slots=True)
class Asserts:
    """How a program is tested: statements like `assert f(2) == 4`."""

    statements: tuple[str, ...]
    imports: tuple[str, ...] = ()  # that the statements need
    setup: str = ""  # code that the statements need, such as values to call the program on


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a data set."""

    question_id: str
    text: str  # what the model reads
    kind: Kind  # how an answer is checked
    reference: str  # the right answer: a number, a text, or a program that passes the asserts
    solution: str = ""  # of GSM8K: the worked answer, with its calculations marked <<48/2=24>>
    asserts: Asserts | None = None  # of code_exec
