"""Grade answers: extract the program, execute it on grids, compare. Shards and rewards use the same code.

answer   "```python\\ndef transform(grid):\\n    return np.fliplr(grid)\\n```" on the inputs [[1, 0]] and [[2, 0]],
         whose outputs are [[0, 1]] and [[5, 2]]
grade    status "ok", outputs [[0, 1]] and [[0, 2]], correct grids 0.5, pixel score 0.75
"""

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from tqdm import tqdm

from arc_refinery.arc.grids import Grid, fingerprint
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score
from arc_refinery.arc.tasks import Task
from arc_refinery.records import Attempt, Verdict
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refining.config.rewards import Grade
from arc_refinery.refining.prompts import extract_code, has_closed_code
from arc_refinery.sandbox import Executor, Program

ATTEMPTS_AT_ONCE = 2000  # attempts of a shard that are in memory


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer, and the pairs to execute its program on, in the form shown to the model."""

    text: str
    inputs: tuple[Grid, ...]
    truths: tuple[Grid, ...]


def grade_answers(answers: Sequence[Answer], executor: Executor) -> Generator[Grade, None, None]:
    """Yield grades in order. A failing program is a grade; a failing sandbox raises.

    Consecutive equal programs on equal inputs are executed once.
    """
    codes = [extract_code(answer.text) for answer in answers]
    programs = (
        Program(str(index), code, answer.inputs)
        for index, (code, answer) in enumerate(zip(codes, answers, strict=True))
        if code is not None
    )
    with closing(executor.run(programs)) as outcomes:
        for code, answer in zip(codes, answers, strict=True):
            if code is None:
                yield Grade(NO_CODE)
                continue
            outcome = next(outcomes)
            yield Grade(str(outcome.status), outcome.error, outcome.outputs, answer.truths, code)


def grade_attempts(
    attempts: Iterable[Attempt],
    tasks: Mapping[str, Task],
    executor: Executor,
    n_attempts: int | None = None,
    outputs: Mapping[str, tuple[Grid, ...]] | None = None,
) -> Iterator[Verdict]:
    """Yield one verdict per attempt, in order, in constant memory. `n_attempts` is for the progress bar only.

    With `outputs`, the parents' grids by id, programs run on these instead of the task's inputs.
    """
    remaining = iter(attempts)
    with tqdm(total=n_attempts, unit="attempt", mininterval=5) as progress:
        while batch := list(islice(remaining, ATTEMPTS_AT_ONCE)):
            with closing(grade_answers(list(_answers(batch, tasks, outputs)), executor)) as grades:
                for attempt, graded in zip(batch, grades, strict=True):
                    yield verdict_of(attempt, tasks[attempt.task_id], graded)
                    progress.update()


def verdict_of(attempt: Attempt, task: Task, graded: Grade) -> Verdict:
    """Return an attempt's verdict on the original task, with augmentation and order of the train pairs undone."""
    outputs: tuple[Grid, ...] = ()
    if graded.outputs:
        seen_order = _seen_order(attempt, task)
        undone = {
            index: attempt.augmentation.undo(grid) for index, grid in zip(seen_order, graded.outputs, strict=True)
        }
        outputs = tuple(undone[index] for index in range(len(task.pairs)))
    train, test = outputs[: len(task.train)], outputs[len(task.train) :]
    truths = [pair.output for pair in task.pairs]
    train_truth, test_truth = truths[: len(task.train)], truths[len(task.train) :]
    visible = outputs[: len(task.train + task.test)]  # without hidden pairs
    return Verdict(
        attempt_id=attempt.attempt_id,
        prompt_id=attempt.prompt_id,
        task_id=attempt.task_id,
        turn=attempt.turn,
        program_hash="" if graded.code is None else hashlib.sha256(graded.code.encode()).hexdigest()[:16],
        program_length=len(graded.code or ""),
        has_closed_code=has_closed_code(attempt.completion),
        status=graded.status,
        error=graded.error,
        train_outputs=train,
        test_outputs=test,
        fingerprint=fingerprint(visible) if visible else "",
        train_pixel_score=mean_pixel_score(train, train_truth) if train else 0.0,
        train_correct_grids=correct_grids(train, train_truth) if train else 0.0,
        test_pixel_score=mean_pixel_score(test, test_truth) if test else 0.0,
        test_correct_grids=correct_grids(test, test_truth) if test else 0.0,
    )


def _seen_order(attempt: Attempt, task: Task) -> list[int]:
    """Return the task's pairs, train, test and hidden, by index in the order of the attempt's prompt."""
    return [*attempt.train_order, *range(len(task.train), len(task.pairs))]


def _answers(
    attempts: Iterable[Attempt], tasks: Mapping[str, Task], outputs: Mapping[str, tuple[Grid, ...]] | None
) -> Iterator[Answer]:
    """Yield the attempts' answers. Consecutive ones that run on the same grids share them."""
    seen_as = None
    inputs: tuple[Grid, ...] = ()
    for attempt in attempts:
        parent_id = attempt.parent_id if outputs is not None else ""
        if seen_as != (seen_as := (attempt.task_id, parent_id, attempt.augmentation, attempt.train_order)):
            task = tasks[attempt.task_id]
            grids = tuple(pair.input for pair in task.pairs) if outputs is None else outputs[parent_id]
            inputs = tuple(attempt.augmentation.apply(grids[index]) for index in _seen_order(attempt, task))
        yield Answer(attempt.completion, inputs, ())  # verdict_of compares on the original task
