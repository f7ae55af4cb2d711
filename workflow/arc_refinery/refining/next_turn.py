"""Prompts of turn 2 and later: incorrect attempts, best first, with their execution results.

Expected outputs of test pairs are not used: attempts are selected by their train pairs, and feedback shows only those.
A second turn of the embedded model, on a task with one train pair (prompts/template.py has more forms of feedback):

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import assert_never

from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.errors import InputError
from arc_refinery.models.chat import Message
from arc_refinery.records import Prompt
from arc_refinery.refining.config import FeedbackKind, History, Selection
from arc_refinery.refining.graded import GradedAttempt
from arc_refinery.refining.prompts import (
    RESIDUAL_ONLY,
    Renderer,
    Template,
    error_feedback,
    execution_feedback,
    first_turn,
    next_turn,
    no_feedback,
    opening,
)
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
    select: Selection = "best-distinct"
    history: History = "whole"


def next_turn_prompts(
    graded: Iterable[GradedAttempt], plan: NextTurnPlan, template: Template, renderer: Renderer
) -> Iterator[Prompt]:
    """Yield the next turn's prompts, none for tasks without parents; in `graded`, a task's attempts are consecutive."""
    with_parents = (
        parents[: plan.n_parents]
        for _, attempts in groupby(graded, key=lambda parent: parent.attempt.task_id)
        if (parents := best_incorrect(list(islice(attempts, plan.n_considered)), plan.include_errors, plan.select))
    )
    for parents, executed in _with_executed(with_parents, plan.feedback):
        for start in range(0, plan.n_predictions, plan.batch_size):
            number = start // plan.batch_size
            parent = parents[number % len(parents)]
            origin = executed[number % len(executed)] if executed else None
            messages = renderer.masked(_conversation(parent, origin, plan, template))
            text, n_tokens = renderer.render(messages)
            task = residual_task(parent) if template.form == RESIDUAL_ONLY else parent.prompt
            yield Prompt(
                prompt_id=f"{parent.prompt.task_id}/{plan.branch}-{number:03d}",
                task_id=parent.prompt.task_id,
                turn=parent.prompt.turn + 1,
                parent_id=parent.attempt.attempt_id,
                augmentation=parent.prompt.augmentation,
                train_order=parent.prompt.train_order,
                messages=tuple(messages),
                text=text,
                n_tokens=n_tokens,
                n_predictions=min(plan.batch_size, plan.n_predictions - start),
                train=task.train,
                test=task.test,
            )


def _conversation(
    parent: GradedAttempt, executed: GradedAttempt | None, plan: NextTurnPlan, template: Template
) -> list[Message]:
    """Return the conversation to answer; `executed`: the attempt whose results it shows, None for no feedback."""
    if template.form == RESIDUAL_ONLY:
        return first_turn(residual_task(executed), template) if executed else list(parent.prompt.messages)
    feedback = feedback_on(executed, template) if executed else no_feedback(template)
    earlier = list(parent.prompt.messages)
    return next_turn(opening(earlier) if plan.history == "last" else earlier, parent.attempt.completion, feedback)


def residual_task(parent: GradedAttempt) -> Task:
    """Return the task from an attempt's outputs to the expected ones, in the form that its prompt showed."""
    prompt, verdict = parent.prompt, parent.verdict
    train, test = outputs_seen(parent), map(prompt.augmentation.apply, verdict.test_outputs[: len(prompt.test)])
    return Task(
        prompt.task_id,
        tuple(Pair(output, pair.output) for output, pair in zip(train, prompt.train, strict=True)),
        tuple(Pair(output, pair.output) for output, pair in zip(test, prompt.test, strict=True)),
        "",
    )


def outputs_seen(parent: GradedAttempt) -> tuple[Grid, ...]:
    """Return the outputs for the train pairs, in the form in which the prompt showed these."""
    prompt = parent.prompt
    return tuple(prompt.augmentation.apply(parent.verdict.train_outputs[index]) for index in prompt.train_order)


def _with_executed(
    with_parents: Iterable[list[GradedAttempt]], feedback: FeedbackKind
) -> Iterator[tuple[list[GradedAttempt], list[GradedAttempt]]]:
    """Yield the parents of each task, and the attempts whose feedback is shown: (parents, executed)."""
    match feedback:
        case "real":
            yield from ((parents, parents) for parents in with_parents)
        case "none":
            yield from ((parents, []) for parents in with_parents)
        case "other-task":
            tasks = list(with_parents)
            if len(tasks) == 1:
                raise InputError("feedback other-task: only one task has incorrect attempts, but two are needed")
            yield from zip(tasks, tasks[-1:] + tasks[:-1], strict=True)
        case _:
            assert_never(feedback)


def best_incorrect(
    attempts: Sequence[GradedAttempt], include_errors: bool, select: Selection = "best-distinct"
) -> list[GradedAttempt]:
    """Return attempts with valid outputs that do not solve all train pairs; `best-distinct`: one per set of outputs.

    Ranked by share of correct train grids, then pixel score, then order. With `include_errors`, attempts that raised
    follow; `best-distinct`: one per program.
    """
    wrong = [
        graded for graded in attempts if graded.verdict.status == Status.ok and not graded.verdict.train_is_correct
    ]
    wrong.sort(key=lambda graded: (-graded.verdict.train_correct_grids, -graded.verdict.train_pixel_score))
    if include_errors:
        wrong += [graded for graded in attempts if graded.verdict.status == Status.error]
    if select == "best":
        return wrong
    distinct: dict[str, GradedAttempt] = {}
    for graded in wrong:
        distinct.setdefault(graded.verdict.fingerprint or graded.verdict.program_hash, graded)
    return list(distinct.values())


def feedback_on(parent: GradedAttempt, template: Template) -> str:
    """Return an attempt's execution feedback, in the form in which its prompt showed the task."""
    prompt, verdict = parent.prompt, parent.verdict
    if verdict.status != Status.ok:
        return error_feedback(verdict.error, template)
    return execution_feedback(Task(prompt.task_id, prompt.train, prompt.test, ""), outputs_seen(parent), template)


def refining_conversation(parent: GradedAttempt, template: Template) -> list[Message]:
    """Return the attempt's conversation, its completion, and the execution feedback."""
    return next_turn(list(parent.prompt.messages), parent.attempt.completion, feedback_on(parent, template))
