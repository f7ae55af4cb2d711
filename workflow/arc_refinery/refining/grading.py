"""Grade attempts: take the program out of each answer, execute it, record what came out. The domain knows how."""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any

from tqdm import tqdm

from arc_refinery.programs import without_first_thought
from arc_refinery.records import Attempt, Verdict
from arc_refinery.refining.domain import Answer, Domain
from arc_refinery.sandbox import Executor

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
            subjects = domain.subjects(batch, tasks)
            answers = [Answer(attempt.completion, subject) for attempt, subject in zip(batch, subjects, strict=True)]
            with closing(grades_of(domain, answers, executors)) as grades:
                for attempt, grade in zip(batch, grades, strict=True):
                    yield verdict_of(domain, attempt, tasks[attempt.task_id], grade)
                    progress.update()


def grades_of(domain: Domain, answers: Sequence[Answer], executors: tuple[Executor, ...]) -> Generator[Any, None, None]:
    """Yield the domain's grades of answers, in order; it does not see the thoughts before them."""
    yield from domain.grade([Answer(without_first_thought(text), subject) for text, subject in answers], executors)


def verdict_of(domain: Domain, attempt: Attempt, task: Any, grade: Any) -> Verdict:
    result = domain.result(grade, attempt, task)
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
