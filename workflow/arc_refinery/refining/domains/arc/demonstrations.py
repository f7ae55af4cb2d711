"""Programs for SFT on ARC: those of the tasks themselves. They solve a task only without augmentation."""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from arc_refinery.arc.tasks import Task
from arc_refinery.barc.generator import has_held_out_text
from arc_refinery.refining.domain import GradedAttempt
from arc_refinery.refining.domains.arc.prompts import Template, body_of, completed_answer, transform_program
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
