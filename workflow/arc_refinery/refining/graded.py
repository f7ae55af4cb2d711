"""Attempts with their prompts and verdicts, as the next turn and demonstrations read them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.domains.domain import Domain, GradedAttempt
from arc_refinery.records import Attempt, Prompt, RecordError


def read_graded(domain: Domain, files: BranchFiles, excluded: Collection[str] = ()) -> Iterator[GradedAttempt]:
    """Yield the attempts of a branch in the prompts' order of tasks, except those on the tasks `excluded`.

    Raises `RecordError` if prompts, attempts and verdicts do not match one to one (`records.check_branch`).
    """
    records.check_branch(files, domain.prompt_class, domain.attempt_class)
    prompts = {prompt.prompt_id: prompt for prompt in records.read(files.prompts, domain.prompt_class)}
    task_ids = dict.fromkeys(prompt.task_id for prompt in prompts.values())
    order = {task_id: index for index, task_id in enumerate(task_ids)}
    shards: list[Iterator[GradedAttempt]] = []
    for job, verdicts in enumerate(files.verdicts):
        start, n_verdicts = 0, records.count(verdicts)
        for attempts in files.attempts_of_job(job):
            stop = start + records.count(attempts)
            rows = np.zeros(n_verdicts, bool)
            rows[start:stop] = True
            shards.append(_read_shard(domain, prompts, attempts, verdicts, rows))
            start = stop
    graded = merge(*shards, key=lambda entry: order[entry.attempt.task_id])
    return (entry for entry in graded if entry.attempt.task_id not in excluded)


def read_attempts(domain: Domain, files: BranchFiles, attempt_ids: Collection[str]) -> dict[str, GradedAttempt]:
    """Read some attempts of a branch by id, with their prompts and verdicts; only these rows are kept in memory."""
    attempts, verdicts = (
        {row.attempt_id: row for path in paths for row in _rows(path, cls, "attempt_id", attempt_ids)}
        for paths, cls in ((files.attempts, domain.attempt_class), (files.verdicts, domain.verdict_class))
    )
    if missing := sorted({*attempt_ids} - (attempts.keys() & verdicts.keys())):
        raise RecordError(f"{files.folder}: has no attempt {missing[0]}. {records.remake(files.prompts)}")
    prompt_ids = {attempt.prompt_id for attempt in attempts.values()}
    prompts = {row.prompt_id: row for row in _rows(files.prompts, domain.prompt_class, "prompt_id", prompt_ids)}
    return {
        name: GradedAttempt(prompts[attempts[name].prompt_id], attempts[name], verdicts[name]) for name in attempt_ids
    }


def program_of(domain: Domain, graded: GradedAttempt) -> str:
    """Return the program of an attempt; empty if it has none."""
    return domain.program(graded.attempt.completion, domain.subject(graded.prompt)) or ""


def _rows(path: Path, cls: type[Any], column: str, wanted: Collection[str]) -> Iterator[Any]:
    return records.read(path, cls, np.isin(records.texts(path, cls, column), list(wanted)))


def check_tasks(paths: Iterable[Path], tasks_path: Path, tasks: Collection[str]) -> None:
    """Raise `RecordError` unless all attempts in files are on these tasks."""
    for path in paths:
        columns = records.columns(path, Attempt, ["attempt_id", "task_id"])
        for name, task_id in zip(*(column.to_pylist() for column in columns), strict=True):
            if task_id not in tasks:
                raise RecordError(
                    f"{path}: the task {task_id} of the attempt {name} is not in {tasks_path}; give the tasks that the "
                    "attempts answer"
                )


def _read_shard(
    domain: Domain, prompts: Mapping[str, Prompt], attempts: Path, verdicts: Path, rows: NDArray[np.bool_]
) -> Iterator[GradedAttempt]:
    """Yield the attempts of a file, whose verdicts are some rows of another file."""
    pairs = zip(
        records.read(attempts, domain.attempt_class), records.read(verdicts, domain.verdict_class, rows), strict=True
    )
    for attempt, verdict in pairs:
        yield GradedAttempt(prompts[attempt.prompt_id], attempt, verdict)
