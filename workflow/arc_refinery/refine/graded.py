"""Attempts with their prompts and verdicts, as the next turn and demonstrations read them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.grids import Grid
from arc_refinery.records import Attempt, Prompt, RecordError, Verdict


@dataclass(frozen=True, slots=True)
class GradedAttempt:
    """An attempt with its prompt and its verdict."""

    prompt: Prompt
    attempt: Attempt
    verdict: Verdict


def read_graded(files: BranchFiles) -> Iterator[GradedAttempt]:
    """Yield all attempts of a branch in the prompts' order of tasks, whatever their shard.

    Raises `RecordError` where attempts and verdicts do not match one to one.
    """
    prompts = {prompt.prompt_id: prompt for prompt in records.read_prompts(files.prompts)}
    place = {task_id: number for number, task_id in enumerate(dict.fromkeys(one.task_id for one in prompts.values()))}
    shards: list[Iterator[GradedAttempt]] = []
    for job, verdicts in enumerate(files.verdicts):
        start, n_verdicts = 0, records.count(verdicts)
        for attempts in files.attempts_of_job(job):
            stop = start + records.count(attempts)
            chosen = np.zeros(n_verdicts, bool)
            chosen[start:stop] = True
            shards.append(_of_shard(prompts, attempts, verdicts, chosen))
            start = stop
        if start != n_verdicts:
            raise RecordError(
                f"{verdicts}: {n_verdicts} verdicts, expected {start}, one per attempt. {records.remake(verdicts)}"
            )
    return merge(*shards, key=lambda one: place[one.attempt.task_id])


def read_outputs(paths: Iterable[Path], attempt_ids: Collection[str]) -> dict[str, tuple[Grid, ...]]:
    """Return the outputs of some attempts from files of verdicts: for all pairs of the task, in its form and order."""
    found: dict[str, tuple[Grid, ...]] = {}
    for path in paths:
        chosen = np.isin(records.texts(path, "verdicts", "attempt_id"), list(attempt_ids))
        found |= {one.attempt_id: one.train_outputs + one.test_outputs for one in records.read_verdicts(path, chosen)}
    return found


def _of_shard(
    prompts: Mapping[str, Prompt], attempts: Path, verdicts: Path, chosen: NDArray[np.bool_]
) -> Iterator[GradedAttempt]:
    """Yield the attempts of a file, whose verdicts are the chosen rows of another."""
    pairs = zip(records.read_attempts(attempts), records.read_verdicts(verdicts, chosen), strict=True)
    for attempt, verdict in pairs:
        if attempt.attempt_id != verdict.attempt_id:
            raise RecordError(
                f"{verdicts}: verdict on {verdict.attempt_id} in the place of {attempt.attempt_id} of {attempts}. "
                f"{records.remake(verdicts)}"
            )
        yield GradedAttempt(prompts[attempt.prompt_id], attempt, verdict)
