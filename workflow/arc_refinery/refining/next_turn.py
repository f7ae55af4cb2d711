"""Prompts of turn 2 and later: incorrect attempts, best first, with their execution results.

Hidden checks are not used: attempts are selected by the checks that prompts show, or that feedback may reveal, and
feedback is on those alone.
A second turn of ARC, for the embedded model, on a task with one train pair (domains/arc/prompts/template.py):

    <|user|>
    input 1x2
    1 10
    output 1x2
    1 01<|assistant|>```python
    from common import *

    def transform(grid):
        return grid
    ```<|end|><|user|>Executing your program gave:
    pair 1 wrong, pixel similarity 0%, given 1x2
    1 10
    Write a corrected program.<|assistant|>
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby, islice
from typing import Any, assert_never

from arc_refinery.domains.domain import Domain, GradedAttempt, Question
from arc_refinery.domains.first_turn import rendered
from arc_refinery.domains.prompts import Renderer
from arc_refinery.records import Prompt
from arc_refinery.refining.config import FeedbackKind, History
from arc_refinery.refining.grading import can_be_refined
from arc_refinery.sandbox import Status


@dataclass(frozen=True, slots=True)
class NextTurnPlan:
    """Settings of the next turn: a task's prompts cycle through its best parents until the budget is spent."""

    branch: str  # part of the prompt ids
    n_considered: int  # attempts per task that may become parents, from the first
    n_parents: int
    n_predictions: int
    batch_size: int  # completions per prompt
    include_errors: bool
    feedback: FeedbackKind = "real"
    history: History = "whole"


# Controls that some tasks have no prompts for, and why
LEFT_OUT: Mapping[FeedbackKind, str] = {
    "twin": "no two wrong attempts have different results, so there is no twin",
    "stale": "no wrong attempt that is refined passes a check that feedback may reveal",
    "other-rule": "there is no wrong attempt at a paired task",
}


def without(control: FeedbackKind) -> str:
    """Return the note, in a file of prompts, on the number of tasks that are left out."""
    return f"n_tasks_without_{control}"


def next_turn_prompts(
    domain: Domain,
    graded: Iterable[GradedAttempt],
    plan: NextTurnPlan,
    wording: Any,
    renderer: Renderer,
    counts: Counter[str] | None = None,
) -> Iterator[Prompt]:
    """Yield the next turn's prompts, none for tasks without parents; in `graded`, a task's attempts are consecutive.

    `counts` counts the tasks `without` what the control shows, which have no prompts.
    """
    with_parents = (
        parents
        for _, attempts in groupby(graded, key=lambda parent: parent.attempt.task_id)
        if (parents := best_incorrect(domain, list(islice(attempts, plan.n_considered)), plan.include_errors))
    )
    for asked in _questions(domain, with_parents, plan, wording):
        if not asked and counts is not None:
            counts[without(plan.feedback)] += 1
        for start, (parent, question) in zip(range(0, plan.n_predictions, plan.batch_size), cycle(asked)):
            number = start // plan.batch_size
            yield rendered(
                domain.prompt_class,
                question,
                f"{parent.prompt.task_id}/{plan.branch}-{number:03d}",
                parent.prompt.task_id,
                min(plan.batch_size, plan.n_predictions - start),
                renderer,
                parent.prompt.turn + 1,
                parent.attempt.attempt_id,
            )


def _questions(
    domain: Domain, with_parents: Iterable[list[GradedAttempt]], plan: NextTurnPlan, wording: Any
) -> Iterator[list[tuple[GradedAttempt, Question]]]:
    """Yield the best parents of each task, each with what is asked; none of a task that the control leaves out."""

    def after(parent: GradedAttempt, executed: GradedAttempt | None, *grade: Any) -> tuple[GradedAttempt, Question]:
        return parent, domain.next_turn(parent, executed, plan.history, wording, *grade)

    paired: dict[str, list[GradedAttempt]] = {}
    if plan.feedback == "other-rule":
        with_parents = [parents[: plan.n_parents] for parents in with_parents]
        paired = {_partner(parents[0].attempt.task_id): parents for parents in with_parents}
    for parents in with_parents:
        best = parents[: plan.n_parents]
        match plan.feedback:
            case "real":
                yield [after(parent, parent) for parent in best]
            case "none":
                yield [after(parent, None) for parent in best]
            case "fresh":
                yield [(parent, domain.fresh(parent, wording)) for parent in best]
            case "twin":
                twins = [_twin(domain, parents, index, plan, wording) for index in range(len(best))]
                yield [after(*both) for both in zip(best, twins, strict=True) if both[1]]  # all have one, or none
            case "stale":
                grades = [domain.stale(parent.prompt, domain.grade_of(parent)) for parent in best]
                both = zip(best, grades, strict=True)
                yield [after(parent, parent, grade) for parent, grade in both if grade is not None]
            case "other-rule":
                others = paired.get(parents[0].attempt.task_id, [])
                yield [after(parent, other) for parent, other in zip(best, cycle(others))]
            case _:
                assert_never(plan.feedback)


def _partner(task_id: str) -> str:
    """Return the id of the paired task, with the other rule: `sum-a` of `sum-b`; empty if the id has no such end."""
    ends = {"-a": "-b", "-b": "-a"}
    return task_id[:-2] + ends[task_id[-2:]] if task_id[-2:] in ends else ""


def _twin(
    domain: Domain, parents: Sequence[GradedAttempt], index: int, plan: NextTurnPlan, wording: Any
) -> GradedAttempt | None:
    """Return the next parent of the same task with other results, as if it had answered this parent's prompt."""
    parent = parents[index]
    own = domain.next_turn(parent, parent, plan.history, wording).messages
    others = (other._replace(prompt=parent.prompt) for other in [*parents[index + 1 :], *parents[:index]])
    return next(
        (other for other in others if domain.next_turn(parent, other, plan.history, wording).messages != own), None
    )


def best_incorrect(domain: Domain, attempts: Sequence[GradedAttempt], include_errors: bool) -> list[GradedAttempt]:
    """Return the attempts to refine: those that ran and are wrong on a check that a prompt may show, best first.

    With `include_errors`, those that raised follow. One per fingerprint; without one, per program.
    """

    def order(graded: GradedAttempt) -> tuple[Any, ...]:
        ran = graded.verdict.status == Status.ok
        return (0, domain.rank(graded.verdict)) if ran else (1,)

    wrong = sorted((g for g in attempts if can_be_refined(g.verdict, domain, include_errors)), key=order)
    distinct: dict[str, GradedAttempt] = {}
    for graded in wrong:
        distinct.setdefault(graded.verdict.fingerprint or graded.verdict.program_hash, graded)
    return list(distinct.values())
