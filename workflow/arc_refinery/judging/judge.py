"""Verdicts of attempts: take the program out, execute it on the task as the model saw it, compare."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from tqdm import tqdm

from arc_refinery.grids import Grid, fingerprint
from arc_refinery.metrics import correct_grids, mean_pixel_score
from arc_refinery.prompts import extract_code
from arc_refinery.records import Attempt, Verdict
from arc_refinery.sandbox import Executor, Outcome, Program
from arc_refinery.tasks import Task

NO_CODE = "no_code"


def judge(attempts: Iterable[Attempt], tasks: Mapping[str, Task], executor: Executor) -> Iterator[Verdict]:
    """One verdict for each attempt, in order. Equal programs that answer one prompt are executed once."""
    listed = list(attempts)
    codes = [extract_code(attempt.completion) for attempt in listed]
    programs: dict[str, Program] = {}
    for attempt, code in zip(listed, codes, strict=True):
        if code is not None:
            name = _program_id(attempt, code)
            if name not in programs:
                task = tasks[attempt.task_id].reorder_train(attempt.train_order)
                inputs = tuple(attempt.augmentation.apply(pair.input) for pair in task.pairs)
                programs[name] = Program(name, code, inputs)
    running = tqdm(executor.run(programs.values()), total=len(programs), unit="program", mininterval=5)
    outcomes = {outcome.program_id: outcome for outcome in running}
    for attempt, code in zip(listed, codes, strict=True):
        outcome = None if code is None else outcomes[_program_id(attempt, code)]
        yield verdict(attempt, tasks[attempt.task_id], code, outcome)


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


def _program_id(attempt: Attempt, code: str) -> str:
    return f"{attempt.prompt_id}/{hashlib.sha256(code.encode()).hexdigest()}"
