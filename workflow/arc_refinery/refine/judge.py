"""Verdicts of attempts: take the program out, execute it on the task as the model saw it, compare."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice

from tqdm import tqdm

from arc_refinery.grids import Grid, fingerprint
from arc_refinery.metrics import correct_grids, mean_pixel_score
from arc_refinery.prompts import extract_code
from arc_refinery.records import Attempt, Verdict
from arc_refinery.records.refining import NO_CODE
from arc_refinery.sandbox import Executor, Outcome, Program
from arc_refinery.tasks import Task

ATTEMPTS_AT_ONCE = 2000  # what is in memory of a shard


def judge(
    attempts: Iterable[Attempt], tasks: Mapping[str, Task], executor: Executor, n_attempts: int | None = None
) -> Iterator[Verdict]:
    """One verdict for each attempt, in order; memory does not grow with their number, which only the progress bar uses.

    Equal programs on equal inputs are executed once.
    """
    remaining = iter(attempts)
    with tqdm(total=n_attempts, unit="attempt", mininterval=5) as progress:
        while some := list(islice(remaining, ATTEMPTS_AT_ONCE)):
            codes = [extract_code(attempt.completion) for attempt in some]
            with closing(executor.run(_programs(some, codes, tasks))) as outcomes:
                for attempt, code in zip(some, codes, strict=True):
                    outcome = None if code is None else next(outcomes)
                    yield verdict(attempt, tasks[attempt.task_id], code, outcome)
                    progress.update()


def verdict(attempt: Attempt, task: Task, code: str | None, outcome: Outcome | None) -> Verdict:
    """Grade what executing an attempt's program gave; both are None where the completion holds no program."""
    outputs: tuple[Grid, ...] = ()
    if outcome is not None and outcome.outputs:
        seen_order = [*attempt.train_order, *range(len(task.train), len(task.pairs))]
        undone = {
            place: attempt.augmentation.undo(grid) for place, grid in zip(seen_order, outcome.outputs, strict=True)
        }
        outputs = tuple(undone[place] for place in range(len(task.pairs)))
    train, test = outputs[: len(task.train)], outputs[len(task.train) :]
    train_truth, test_truth = [pair.output for pair in task.train], [pair.output for pair in task.test]
    return Verdict(
        attempt_id=attempt.attempt_id,
        prompt_id=attempt.prompt_id,
        task_id=attempt.task_id,
        turn=attempt.turn,
        program_hash="" if code is None else hashlib.sha256(code.encode()).hexdigest()[:16],
        status=NO_CODE if outcome is None else str(outcome.status),
        error="" if outcome is None else outcome.error,
        train_outputs=train,
        test_outputs=test,
        fingerprint=fingerprint(outputs) if outputs else "",
        train_pixel_score=mean_pixel_score(train, train_truth) if train else 0.0,
        train_correct_grids=correct_grids(train, train_truth) if train else 0.0,
        test_pixel_score=mean_pixel_score(test, test_truth) if test else 0.0,
        test_correct_grids=correct_grids(test, test_truth) if test else 0.0,
    )


def _programs(attempts: Sequence[Attempt], codes: Sequence[str | None], tasks: Mapping[str, Task]) -> Iterator[Program]:
    """What is to be executed: attempts that see a task in the same way stand together, and have the same inputs."""
    seen_as = None
    inputs: tuple[Grid, ...] = ()
    for attempt, code in zip(attempts, codes, strict=True):
        if seen_as != (seen_as := (attempt.task_id, attempt.augmentation, attempt.train_order)):
            pairs = tasks[attempt.task_id].reorder_train(attempt.train_order).pairs
            inputs = tuple(attempt.augmentation.apply(pair.input) for pair in pairs)
        if code is not None:
            yield Program(attempt.attempt_id, code, inputs)
