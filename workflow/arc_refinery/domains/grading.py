"""Grades of answers, checked: a domain of the user's own may give anything."""

import asyncio
import inspect
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from arc_refinery.domains.domain import Answer, Domain
from arc_refinery.errors import InputError
from arc_refinery.grades import Grade
from arc_refinery.programs import without_first_thought
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Status

STATUSES = (NO_CODE, *map(str, Status))


def grades_of(
    domain: Domain,
    answers: Sequence[Answer],
    executors: tuple[Executor, ...],
    names: Sequence[str],
    is_final: bool = False,
) -> Generator[Any, None, None]:
    """Yield the domain's grades of answers, in order; it does not see the thoughts before them.

    `is_final`: of episodes with tools. Raises `InputError` with the name of the answer for a grade that no record could
    hold.
    """
    expected = f"expected one grade per answer, in order, for {len(answers)} answers"
    n = 0
    with domain.calling("grade", f"{names[0]} to {names[-1]}" if names else "no answers"):
        grade_all = domain.grade_final if is_final else domain.grade
        grades: Any = grade_all([Answer(without_first_thought(text), subject) for text, subject in answers], executors)
        if inspect.iscoroutine(grades):
            grades = asyncio.run(grades)
        if not isinstance(grades, Iterable):
            raise InputError(f"domain {domain.package}: grade gives {grades!r:.60}; {expected}")
        for n, grade in enumerate(grades, 1):
            if n > len(names):
                break
            where, kind = f"domain {domain.package}: {names[n - 1]}", Grade if is_final else domain.grade_class or Grade
            if not isinstance(grade, kind):
                raise InputError(f"{where}: its grade is {grade!r:.60}; expected a {kind.__name__}")
            if not isinstance(grade.error, str) or not isinstance(grade.code, str | None):
                fault = f"the error {grade.error!r:.60} and the code {grade.code!r:.60}; expected texts"
                raise InputError(f"{where}: its grade has {fault}")
            if is_final or domain.grade_class:
                check_grade(where, grade.status, grade.score, grade.is_solved)
            yield grade
    if n != len(names):
        raise InputError(f"domain {domain.package}: grade gives {'more' if n > len(names) else n}; {expected}")


def check_grade(where: str, status: Any, score: Any, solved: Any) -> None:
    """Raise `InputError` unless tables, selection and rewards can read these."""
    if status not in STATUSES:
        fault = f"the status {status!r:.60}; expected one of {', '.join(STATUSES)}"
    elif not isinstance(score, int | float | np.floating) or not 0 <= score <= 1:
        fault = f"the score {score!r:.60}; expected a number from 0 to 1"
    elif not isinstance(solved, bool | np.bool_):
        fault = f"is_solved = {solved!r:.60}; expected True or False"
    elif solved and status != Status.ok:
        fault = f"is_solved = True with the status {status}; expected {Status.ok}"
    else:
        return
    raise InputError(f"{where}: its grade has {fault}")
