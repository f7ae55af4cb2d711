"""Prompts of turn 2 and later: incorrect attempts, best first, with their execution results.

Hidden checks are not used: attempts are selected by the checks that prompts show, and feedback is on those alone.
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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, groupby, islice
from typing import Any, assert_never

from arc_refinery.errors import InputError
from arc_refinery.records import Prompt
from arc_refinery.refining.config import FeedbackKind, History
from arc_refinery.refining.domain import Domain, GradedAttempt
from arc_refinery.refining.first_turn import rendered
from arc_refinery.refining.prompts import Renderer
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


WITHOUT_TWIN = "n_tasks_without_twin"  # all of whose parents have the same results

# An attempt to refine, and the one whose feedback is shown
Refined = tuple[GradedAttempt, GradedAttempt | None]


def next_turn_prompts(
    domain: Domain,
    graded: Iterable[GradedAttempt],
    plan: NextTurnPlan,
    wording: Any,
    renderer: Renderer,
    counts: Counter[str] | None = None,
) -> Iterator[Prompt]:
    """Yield the next turn's prompts, none for tasks without parents; in `graded`, a task's attempts are consecutive.

    `counts` counts the tasks `WITHOUT_TWIN`, which have no prompts with the feedback `twin`.
    """
    with_parents = (
        parents
        for _, attempts in groupby(graded, key=lambda parent: parent.attempt.task_id)
        if (parents := best_incorrect(domain, list(islice(attempts, plan.n_considered)), plan.include_errors))
    )
    for refined in _with_executed(domain, with_parents, plan, wording, Counter() if counts is None else counts):
        for start, (parent, executed) in zip(range(0, plan.n_predictions, plan.batch_size), cycle(refined)):
            number = start // plan.batch_size
            yield rendered(
                domain.prompt_class,
                domain.next_turn(parent, executed, plan.history, wording),
                f"{parent.prompt.task_id}/{plan.branch}-{number:03d}",
                parent.prompt.task_id,
                min(plan.batch_size, plan.n_predictions - start),
                renderer,
                parent.prompt.turn + 1,
                parent.attempt.attempt_id,
            )


def _with_executed(
    domain: Domain,
    with_parents: Iterable[list[GradedAttempt]],
    plan: NextTurnPlan,
    wording: Any,
    counts: Counter[str],
) -> Iterator[Sequence[Refined]]:
    """Yield the best parents of each task, at least one, with the attempts whose feedback is shown."""
    match plan.feedback:
        case "real":
            yield from ([(parent, parent) for parent in parents[: plan.n_parents]] for parents in with_parents)
        case "none":
            yield from ([(parent, None) for parent in parents[: plan.n_parents]] for parents in with_parents)
        case "twin":
            for parents in with_parents:
                twins = [
                    _twin(domain, parents, index, plan, wording) for index in range(min(len(parents), plan.n_parents))
                ]
                if twins[0]:  # then all parents have one: some differ
                    yield list(zip(parents, twins, strict=False))
                else:
                    counts[WITHOUT_TWIN] += 1
        case "other-task":
            tasks = [parents[: plan.n_parents] for parents in with_parents]
            if len(tasks) == 1:
                raise InputError("feedback other-task: only one task has incorrect attempts, but two are needed")
            for parents, others in zip(tasks, tasks[-1:] + tasks[:-1], strict=True):
                n_prompts = -(-plan.n_predictions // plan.batch_size)
                yield list(islice(zip(cycle(parents), cycle(others)), n_prompts))
        case _:
            assert_never(plan.feedback)


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
    """Return the attempts to refine: those that ran and are wrong on a check that the prompt shows, best first.

    With `include_errors`, those that raised follow. One per fingerprint; without one, per program.
    """
    wrong = [graded for graded in attempts if graded.verdict.status == Status.ok and graded.verdict.score < 1.0]
    wrong.sort(key=lambda graded: domain.rank(graded.verdict))
    if include_errors:
        wrong += [graded for graded in attempts if graded.verdict.status in domain.failures_to_refine]
    distinct: dict[str, GradedAttempt] = {}
    for graded in wrong:
        distinct.setdefault(graded.verdict.fingerprint or graded.verdict.program_hash, graded)
    return list(distinct.values())
