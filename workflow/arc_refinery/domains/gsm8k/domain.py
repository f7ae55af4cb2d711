"""The domain `gsm8k`: an answer ends with a number, and feedback is about the calculations that it writes.

task       {"question": "Ann has 2 hats and buys 30. How many?", "number": "32", "solution": "2+30=<<2+30=32>>32"}
answer     "2 + 30 = 33\\n#### 33"          score 0.0 (of one calculation), not solved
feedback   "2 + 30 = 33 is wrong: 2 + 30 is 32."

The number is hidden: no prompt and no feedback depends on it.
"""

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from arc_refinery import grades
from arc_refinery.answers import final_number, marked_number
from arc_refinery.asserts.rows import plain_words
from arc_refinery.calculator import CalculatorError, calculate
from arc_refinery.config import Sandbox
from arc_refinery.domains import domain
from arc_refinery.domains.domain import NOT_SHOWN, Answer, Question
from arc_refinery.domains.gsm8k.config import TaskSet
from arc_refinery.domains.gsm8k.generator import gsm8k_row
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.programs import after_thought
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refining.config import Split
from arc_refinery.rows import text_field
from arc_refinery.sandbox import Executor, Status
from arc_refinery.seeding import stream_seed

REQUEST = "Write each calculation as `2 * 3 = 6`. End your answer with `#### ` and the number, for instance `#### 42`."
_MARKED = re.compile(r"<<[^<>]*>>")  # the data set's calculations
_DIGITS = r"\d+(?:,\d{3})*(?:\.\d+)?"
_NUMBER, _SIGN = rf"[$€£]?{_DIGITS}%?", "[-+*/×÷−]"
_CALCULATION = re.compile(  # its result is not the beginning of another calculation, as in 2 * 3 + 4 = 6 + 4 = 10
    rf"(?<![\w.,^:√])((?:\(\s*)*{_NUMBER}(?:[\s()]*{_SIGN}[\s()]*{_NUMBER}){{1,30}}(?:\s*\))*)\s*=\s*"
    rf"([$€£]?-?{_DIGITS})(?![\w%]|[.,]\d|\s*\^|\s+\d+/\d|\s*{_SIGN}\s*[\d(])"
)
_CONTINUED = re.compile(rf"(?:{_SIGN}|\bx|\bof|\btimes|\d\s)[\s(]*\Z")  # before it, as in 60 hats * 2 / 3 = 40


@dataclass(frozen=True, slots=True)
class Problem:
    KIND: ClassVar = "tasks"
    task_id: str
    question: str
    number: str  # the correct answer
    solution: str = ""  # the worked answer, with its calculations marked <<48/2=24>>
    origin: str = ""


@dataclass(frozen=True, slots=True)
class WrongCalculation:
    written: str
    expression: str
    value: str


@dataclass(frozen=True, slots=True)
class NumberGrade(grades.Grade):
    """An answer's number, and the calculations that it writes."""

    n_calculations: int = 0
    wrong: tuple[WrongCalculation, ...] = ()
    said: str = ""  # the number
    hidden_right: bool = False  # whether it is the correct one

    @property
    def score(self) -> float:
        """Share of the calculations that are right; 1 without any, 0 without a number."""
        if not self.is_valid:
            return 0.0
        return 1 - len(self.wrong) / self.n_calculations if self.n_calculations else 1.0

    @property
    def is_solved(self) -> bool:
        return self.hidden_right


class Domain(domain.Domain):
    task_class, grade_class = Problem, NumberGrade
    n_executors, failures_to_refine = 0, (NO_CODE,)
    unused: ClassVar = NOT_SHOWN
    answers_are_programs = False
    checks, shown, hidden = "calculations", "calculations", "the number"
    columns = ("n_calculations",)

    def task(self, row: Mapping[str, Any], task_id: str, where: str) -> Problem:
        text, answer = text_field(row, "question", where), text_field(row, "answer", where)
        solution, mark, number = answer.rpartition("####")
        if not mark or final_number(f"#### {number}") is None:
            last = answer.strip().rpartition("\n")[2]
            raise InputError(f"{where}: field 'answer' ends in {last!r:.60}; expected a last line like '#### 72'")
        return Problem(task_id, text, number.strip(), solution.rstrip())

    def tasks_of_set(
        self, task_set: TaskSet, left_out: Counter[str], sandbox: Sandbox, split: Split
    ) -> Iterator[Problem]:
        if task_set.source != "generator":
            yield from super().tasks_of_set(task_set, left_out, sandbox, split)
            return
        levels, first = task_set.levels, task_set.first_row
        seed = stream_seed(task_set.seed or 0, task_set.name)  # otherwise two sets would have the same problems
        for number in range(first, first + int(task_set.n_tasks or 0)):
            name = f"{number:06d}"
            yield self.task(gsm8k_row(levels[number % len(levels)], split, seed, number), name, name)

    def content(self, task: Problem) -> str:
        return plain_words(task.question)

    def first_turn(self, task: Problem, rng: np.random.Generator, own: None, wording: None) -> Question:
        return Question([Message(role="user", content=f"{task.question}\n\n{REQUEST}")])

    def feedback(self, prompt: Any, grade: NumberGrade, wording: None) -> str:
        if not grade.is_valid:
            said = "Your answer has no number behind `####`."
        elif grade.wrong:
            said = "\n".join(f"{one.written} is wrong: {one.expression} is {one.value}." for one in grade.wrong)
        else:
            said = "The calculations of your answer are right."
        return f"{said}\n\n{self.no_feedback(wording)}"

    def no_feedback(self, wording: None) -> str:
        return f"Correct your answer. {REQUEST}"

    def program(self, text: str, task: Problem) -> str | None:
        number = final_number(after_thought(text))
        return None if number is None else str(number)

    def has_closed_code(self, text: str) -> bool:
        return marked_number(after_thought(text)) is not None

    def grade(self, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[NumberGrade, None, None]:
        for text, task in answers:
            number = final_number(text)
            if number is None:
                yield NumberGrade(NO_CODE)
                continue
            found = [*calculations(text)]
            wrong = tuple(one for one, is_right in found if not is_right)
            is_right = number == final_number(f"#### {task.number}")
            yield NumberGrade(str(Status.ok), "", str(number), len(found), wrong, str(number), is_right)

    # With tools

    def asked(self, task: Problem) -> str:
        return task.question

    def correct(self, task: Problem) -> str:
        return task.number

    def worked(self, task: Problem) -> str:
        return task.solution

    def final_answer(self, task: Problem) -> str:
        return f"#### {task.number}"

    def is_marked(self, text: str) -> bool:
        return marked_number(text) is not None and final_number(text) is not None

    # Demonstrations

    def source_answers(
        self, tasks: Iterable[Problem], wording: None, executors: tuple[Executor, ...]
    ) -> dict[str, str]:
        return {task.task_id: f"{_MARKED.sub('', task.solution)}\n{self.final_answer(task)}" for task in tasks}

    def broken(self, task: Problem, answer: str, rng: np.random.Generator) -> Iterator[str]:
        """Yield the answer with another number in one place."""
        places = list(re.finditer(r"\d+", answer))
        while places:
            place = places[int(rng.integers(len(places)))]
            other = str(int(place[0]) + int(rng.integers(1, 10)))
            yield f"{answer[: place.start()]}{other}{answer[place.end() :]}"


def calculations(text: str) -> Iterator[tuple[WrongCalculation, bool]]:
    """Yield the calculations that an answer writes, `expression = number`, and whether each is right.

    A number with decimals may be rounded to them.
    """
    for match in _CALCULATION.finditer(_MARKED.sub("", text)):
        if _CONTINUED.search(match.string, 0, match.start()):
            continue
        expression, said = match[1].strip(), match[2]
        while expression.startswith("(") and expression.count("(") > expression.count(")"):
            expression = expression[1:].lstrip()  # it opens a remark
        plain = re.sub(r"[$€£,]", "", expression).replace("%", "/100")
        try:
            value = calculate(plain)
            exact, given = Fraction(value), Fraction(re.sub(r"[$€£,]", "", said))
        except (CalculatorError, ValueError):
            continue
        rounded = Fraction(1, 2 * 10 ** len(said.partition(".")[2])) if "." in said else 0
        rounded = max(rounded, abs(exact) / 10**11)  # the calculator gives 12 digits
        yield WrongCalculation(f"{expression} = {said}", expression, value), abs(exact - given) <= rounded
