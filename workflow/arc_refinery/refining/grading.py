"""Grade attempts: take the program out of each answer, execute it, record what came out. The domain knows how."""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
from tqdm import tqdm

from arc_refinery.domains.domain import Answer, Domain
from arc_refinery.errors import InputError
from arc_refinery.grades import Grade
from arc_refinery.programs import without_first_thought
from arc_refinery.records import Attempt, Verdict
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Status

STATUSES = (NO_CODE, *map(str, Status))
ATTEMPTS_AT_ONCE = 2000  # attempts of a shard that are in memory


def grade_attempts(
    domain: Domain,
    attempts: Iterable[Attempt],
    tasks: Mapping[str, Any],
    executors: tuple[Executor, ...],
    n_attempts: int | None = None,
) -> Iterator[Verdict]:
    """Yield one verdict per attempt, in order, in constant memory. `n_attempts` is for the progress bar only."""
    remaining = iter(attempts)
    with tqdm(total=n_attempts, unit="attempt", mininterval=5) as progress:
        while batch := list(islice(remaining, ATTEMPTS_AT_ONCE)):
            for verdict in verdicts_of(domain, batch, tasks, executors):
                yield verdict
                progress.update()


def verdicts_of(
    domain: Domain, attempts: Sequence[Attempt], tasks: Mapping[str, Any], executors: tuple[Executor, ...]
) -> Iterator[Verdict]:
    """Yield one verdict per attempt, in order."""
    subjects = domain.subjects(attempts, tasks)
    answers = [Answer(attempt.completion, subject) for attempt, subject in zip(attempts, subjects, strict=True)]
    with closing(grades_of(domain, answers, executors, [attempt.attempt_id for attempt in attempts])) as grades:
        for attempt, grade in zip(attempts, grades, strict=True):
            yield verdict_of(domain, attempt, tasks[attempt.task_id], grade)


def can_be_refined(grade: Any, domain: Domain, include_errors: bool) -> bool:
    """Return whether an answer with this grade, or verdict, gets feedback: wrong or, with `include_errors`, failed."""
    if grade.status == Status.ok:
        return bool(grade.score < 1.0)
    return include_errors and grade.status in domain.failures_to_refine


def grades_of(
    domain: Domain, answers: Sequence[Answer], executors: tuple[Executor, ...], names: Sequence[str]
) -> Generator[Any, None, None]:
    """Yield the domain's grades of answers, in order; it does not see the thoughts before them.

    Raises `InputError` with the name of the answer for a grade that no record could hold.
    """
    expected = f"expected one grade per answer, in order, for {len(answers)} answers"
    n = 0
    with domain.calling("grade", f"{names[0]} to {names[-1]}" if names else "no answers"):
        grades = domain.grade([Answer(without_first_thought(text), subject) for text, subject in answers], executors)
        if not isinstance(grades, Iterable):
            raise InputError(f"domain {domain.package}: grade gives {grades!r:.60}; {expected}")
        for n, grade in enumerate(grades, 1):
            if n > len(names):
                break
            where, kind = f"domain {domain.package}: {names[n - 1]}", domain.grade_class or Grade
            if not isinstance(grade, kind):
                raise InputError(f"{where}: its grade is {grade!r:.60}; expected a {kind.__name__}")
            if not isinstance(grade.error, str) or not isinstance(grade.code, str | None):
                fault = f"the error {grade.error!r:.60} and the code {grade.code!r:.60}; expected texts"
                raise InputError(f"{where}: its grade has {fault}")
            if domain.grade_class:
                _check(where, grade.status, grade.score, grade.is_solved)
            yield grade
    if n != len(names):
        raise InputError(f"domain {domain.package}: grade gives {'more' if n > len(names) else n}; {expected}")


def _check(where: str, status: Any, score: Any, solved: Any) -> None:
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


def verdict_of(domain: Domain, attempt: Attempt, task: Any, grade: Any) -> Verdict:
    with domain.calling("result", attempt.attempt_id):
        result = domain.result(grade, attempt, task)
    _check(f"domain {domain.package}: {attempt.attempt_id}", grade.status, result.score, result.solved)
    own = {} if result.detail is None else {"detail": result.detail}
    verdict: Verdict = domain.verdict_class(
        attempt_id=attempt.attempt_id,
        prompt_id=attempt.prompt_id,
        task_id=attempt.task_id,
        turn=attempt.turn,
        program_hash="" if grade.code is None else hashlib.sha256(grade.code.encode()).hexdigest()[:16],
        program_length=len(grade.code or ""),
        has_closed_code=domain.has_closed_code(attempt.completion),
        status=grade.status,
        error=grade.error,
        fingerprint=result.fingerprint,
        score=result.score,
        solved=result.solved,
        **own,
    )
    return verdict
