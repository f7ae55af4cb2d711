"""Attempts with their prompts and verdicts, as the next turn and demonstrations read them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.tasks import Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.records import Attempt, Prompt, RecordError, Verdict


@dataclass(frozen=True, slots=True)
class GradedAttempt:
    """An attempt with its prompt and its verdict."""

    prompt: Prompt
    attempt: Attempt
    verdict: Verdict


def read_graded(files: BranchFiles, excluded: Collection[str] = ()) -> Iterator[GradedAttempt]:
    """Yield the attempts of a branch in the prompts' order of tasks, except those on the tasks `excluded`.

    Raises `RecordError` if prompts, attempts and verdicts do not match one to one (`records.check_branch`).
    """
    records.check_branch(files)
    prompts = {prompt.prompt_id: prompt for prompt in records.read(files.prompts, Prompt)}
    task_ids = dict.fromkeys(prompt.task_id for prompt in prompts.values())
    order = {task_id: index for index, task_id in enumerate(task_ids)}
    shards: list[Iterator[GradedAttempt]] = []
    for job, verdicts in enumerate(files.verdicts):
        start, n_verdicts = 0, records.count(verdicts)
        for attempts in files.attempts_of_job(job):
            stop = start + records.count(attempts)
            rows = np.zeros(n_verdicts, bool)
            rows[start:stop] = True
            shards.append(_read_shard(prompts, attempts, verdicts, rows))
            start = stop
    graded = merge(*shards, key=lambda entry: order[entry.attempt.task_id])
    return (entry for entry in graded if entry.attempt.task_id not in excluded)


def read_outputs(paths: Iterable[Path], attempt_ids: Collection[str]) -> dict[str, tuple[Grid, ...]]:
    """Return the outputs of some attempts from files of verdicts: for all pairs of the task, in its form and order."""
    outputs: dict[str, tuple[Grid, ...]] = {}
    for path in paths:
        rows = np.isin(records.texts(path, Verdict, "attempt_id"), list(attempt_ids))
        for verdict in records.read(path, Verdict, rows):
            outputs[verdict.attempt_id] = verdict.train_outputs + verdict.test_outputs
    return outputs


def check_attempts(
    paths: Iterable[Path], tasks_path: Path, tasks: Mapping[str, Task], outputs: Mapping[str, tuple[Grid, ...]] | None
) -> None:
    """Raise `RecordError` unless all attempts are on these tasks; with `outputs`, also on parents that have some."""
    for path in paths:
        columns = records.columns(path, Attempt, ["attempt_id", "task_id", "train_order", "parent_id"])
        for name, task_id, order, parent_id in zip(*(column.to_pylist() for column in columns), strict=True):
            task = tasks.get(task_id)
            if task is None or sorted(order) != list(range(len(task.train))):
                what = "is not in" if task is None else "has other train pairs in"
                raise RecordError(
                    f"{path}: the task {task_id} of the attempt {name} {what} {tasks_path}; give the tasks that the "
                    "attempts answer"
                )
            if outputs is not None and len(outputs.get(parent_id, ())) != len(task.pairs):
                raise RecordError(
                    f"{path}: the attempt {name} refines {parent_id!r}, which has no outputs for {task_id} in the "
                    "files of --parents; give the verdicts on the attempts that it refines"
                )


def _read_shard(
    prompts: Mapping[str, Prompt], attempts: Path, verdicts: Path, rows: NDArray[np.bool_]
) -> Iterator[GradedAttempt]:
    """Yield the attempts of a file, whose verdicts are some rows of another file."""
    pairs = zip(records.read(attempts, Attempt), records.read(verdicts, Verdict, rows), strict=True)
    for attempt, verdict in pairs:
        yield GradedAttempt(prompts[attempt.prompt_id], attempt, verdict)
