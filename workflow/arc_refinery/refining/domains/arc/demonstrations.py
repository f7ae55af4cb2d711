"""Programs for SFT on ARC: those of the tasks themselves, and every program that ran, in hindsight.

A task's own source solves it only without augmentation. In hindsight, a program is correct for the task that its own
outputs make:

    task        12 -> 21, 30 -> 03     test 12 -> 21
    program     returns the grid itself
    hindsight   12 -> 12, 30 -> 30     test 12, answered by this program; others are wrong
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from arc_refinery.arc.metrics import mean_pixel_score
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.barc.generator import has_held_out_text
from arc_refinery.refining.domain import GradedAttempt
from arc_refinery.refining.domains.arc.grading import outputs_seen
from arc_refinery.refining.domains.arc.prompts import Template, body_of, completed_answer, first_turn, transform_program
from arc_refinery.refining.domains.arc.records import Attempt, Prompt
from arc_refinery.refining.prompts import extract_code
from arc_refinery.sandbox import Executor, Program, Status

logger = logging.getLogger(__name__)


def is_generated(task: Task) -> bool:
    return task.origin.startswith("generated")


def source_answers(tasks: Iterable[Task], template: Template, executor: Executor) -> dict[str, str]:
    """Return answers with the tasks' own programs, by task id, if the program gives every train and test output."""
    executed: deque[tuple[Task, str]] = deque()
    counts: Counter[str] = Counter()

    def programs() -> Iterator[Program]:
        for task in tasks:
            counts["tasks"] += 1
            bare = is_generated(task)  # in pretraining, such programs had no comment on their concepts
            program = transform_program(task.source, bare)
            text = program and completed_answer(program, template.assistant_prefix)
            if text:
                executed.append((task, text))
                inputs = tuple(pair.input for pair in task.pairs)
                yield Program(task.task_id, str(extract_code(text)), inputs)

    answers: dict[str, str] = {}
    for outcome in executor.run(programs()):
        task, answer = executed.popleft()
        if outcome.status == Status.ok and all(
            np.array_equal(output, pair.output) for output, pair in zip(outcome.outputs, task.pairs, strict=True)
        ):
            answers[task.task_id] = answer
    n_tasks = counts["tasks"]
    logger.info(
        "%d of %d tasks left out: their source does not reproduce their outputs", n_tasks - len(answers), n_tasks
    )
    return answers


def may_be_learned(tasks: Iterable[Task]) -> Callable[[GradedAttempt], bool]:
    """Programs of the generator's evaluation sets are never learned, even if sampling finds one."""
    generated = {task.task_id for task in tasks if is_generated(task)}
    return lambda graded: (
        not (graded.attempt.task_id in generated and has_held_out_text(body_of(graded.attempt.completion)))
    )


def in_hindsight(
    attempts: Sequence[GradedAttempt], template: Template, may_be_learned: Callable[[GradedAttempt], bool]
) -> Iterator[tuple[GradedAttempt, Attempt]]:
    """Yield an attempt to refine and the answer to learn, for each program with train grids of its own.

    The attempt, on the same prompt, is the one whose grids are nearest; without one, it is the answer itself.
    """
    ran = [graded for graded in attempts if graded.verdict.status == Status.ok]
    seen: set[bytes] = set()
    for answer in ran:
        grids = _train_grids(answer)
        if grids in seen or not may_be_learned(answer):
            continue
        seen.add(grids)
        on_prompt = (other for other in ran if other.prompt.prompt_id == answer.prompt.prompt_id)
        others = [other for other in on_prompt if _train_grids(other) != grids]
        wanted = answer.verdict.detail.train_outputs
        nearest = max(
            others, key=lambda other: mean_pixel_score(other.verdict.detail.train_outputs, wanted), default=answer
        )
        yield nearest._replace(prompt=_hindsight_prompt(answer, template)), answer.attempt


def _train_grids(graded: GradedAttempt) -> bytes:
    return b"".join(bytes(grid.shape) + grid.tobytes() for grid in graded.verdict.detail.train_outputs)


def _hindsight_prompt(graded: GradedAttempt, template: Template) -> Prompt:
    """Return an attempt's prompt with its program's grids as the outputs of the train pairs."""
    prompt: Prompt = graded.prompt
    outputs = zip(prompt.detail.train, outputs_seen(prompt, graded.verdict), strict=True)
    train = tuple(Pair(pair.input, output) for pair, output in outputs)
    messages = first_turn(Task(prompt.task_id, train, prompt.detail.test, ""), template)
    return replace(prompt, messages=tuple(messages), detail=replace(prompt.detail, train=train))
