"""Grade attempts: take the program out of each answer, execute it, record what came out. The domain knows how."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from tqdm import tqdm

from arc_refinery.domains.domain import Answer, Domain
from arc_refinery.domains.grading import check_grade, grades_of
from arc_refinery.records import Attempt, Verdict
from arc_refinery.sandbox import Executor, Status

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


def verdict_of(domain: Domain, attempt: Attempt, task: Any, grade: Any) -> Verdict:
    with domain.calling("result", attempt.attempt_id):
        result = domain.result(grade, attempt, task)
    check_grade(f"domain {domain.package}: {attempt.attempt_id}", grade.status, result.score, result.solved)
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
