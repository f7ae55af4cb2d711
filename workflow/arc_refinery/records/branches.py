"""Check that files belong together: every prompt of a branch has its attempts, and each of them a verdict.

Two shards of prompts for two completions each, on the tasks a and b:

    prompts.parquet       a/turn1-000, b/turn1-000
    attempts/000.parquet  a/turn1-000/000, a/turn1-000/001     verdicts/000.parquet  the same ids in the same order
    attempts/001.parquet  b/turn1-000/000, b/turn1-000/001     verdicts/001.parquet

So the prompts alone say which rows each file has, and in which order.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from arc_refinery.branch_files import BranchFiles
from arc_refinery.records.files import RecordError, check_made_from, columns, remake
from arc_refinery.records.refining import Attempt, Prompt, Verdict, attempt_id
from arc_refinery.records.schemas import RecordClass, field_types
from arc_refinery.records.tool_use import Episode

T = TypeVar("T")

_PROMPT_COLUMNS = ["prompt_id", "task_id", "turn", "parent_id"]
_EPISODE_COLUMNS = ["episode_id", "question_id"]
_VERDICT_COLUMNS = ["attempt_id", "prompt_id", "task_id", "turn"]


def in_shard(task_ids: Sequence[str], shard: int, n_shards: int, tasks_per_batch: int = 1) -> list[bool]:
    """Return which of these are on the tasks of every `n_shards`-th batch of tasks, from batch `shard`."""
    batch = batch_numbers(task_ids, tasks_per_batch)
    return [batch[task_id] % n_shards == shard for task_id in task_ids]


def batch_numbers(task_ids: Iterable[str], tasks_per_batch: int) -> dict[str, int]:
    """Return the number of each task's batch: the first tasks that occur are batch 0, the next ones batch 1."""
    return {task_id: number // tasks_per_batch for number, task_id in enumerate(dict.fromkeys(task_ids))}


def batches_of_shard(items: Sequence[T], size: int, shard: int, n_shards: int) -> list[Sequence[T]]:
    """Split items into batches and return every `n_shards`-th, from batch `shard`."""
    return [items[start : start + size] for start in range(0, len(items), size)][shard::n_shards]


def check_episodes(path: Path, questions: Path, question_ids: Sequence[str], n_episodes: int) -> None:
    """Raise `RecordError` unless a file has `n_episodes` episodes on each of these questions, in their order."""
    rows = [(attempt_id(name, number), name) for name in question_ids for number in range(n_episodes)]
    expected = pa.table(
        [pa.array(names, pa.string()) for names in (zip(*rows, strict=True) if rows else ([], []))], _EPISODE_COLUMNS
    )
    _compare(path, columns(path, Episode, _EPISODE_COLUMNS), expected, str(questions))
    check_made_from(path, [questions])


def check_branch(
    files: BranchFiles, prompt_class: type[RecordClass] = Prompt, attempt_class: type[RecordClass] = Attempt
) -> None:
    """Raise `RecordError` unless the branch's attempts answer its prompts, and its verdicts are on these, one to one.

    Only ids are read, hashes of the files that others were made from, and what the `detail` of attempts repeats of
    their prompts'.
    """
    detail = field_types(attempt_class).get("detail")
    shared = [*_PROMPT_COLUMNS, *(f"detail.{name}" for name in (field_types(detail) if detail else ()))]
    prompts = columns(files.prompts, prompt_class, [*shared, "n_predictions"])
    task_ids = prompts["task_id"].to_pylist()
    shards = iter(range(files.n_shards))
    for job, verdicts in enumerate(files.verdicts):
        expected = []
        for attempts, shard in zip(files.attempts_of_job(job), shards, strict=False):
            is_in_shard = pa.array(in_shard(task_ids, shard, files.n_shards, files.tasks_per_batch), pa.bool_())
            shard_ids = _attempts_on(prompts.filter(is_in_shard), shared)
            source = f"shard {shard} of {files.n_shards} of {files.prompts}"
            _compare(attempts, columns(attempts, attempt_class, shard_ids.column_names), shard_ids, source)
            check_made_from(attempts, [files.prompts])
            expected.append(shard_ids)
        job_ids = pa.concat_tables(expected).select(_VERDICT_COLUMNS)
        names = " and ".join(dict.fromkeys(map(str, (files.attempts_of_job(job)[0], files.attempts_of_job(job)[-1]))))
        _compare(verdicts, columns(verdicts, Verdict, _VERDICT_COLUMNS), job_ids, names)
        check_made_from(verdicts, files.attempts_of_job(job))


def _attempts_on(prompts: pa.Table, names: list[str]) -> pa.Table:
    """Return the ids of all attempts on some prompts."""
    numbers = prompts["n_predictions"].to_pylist()
    ids = [
        attempt_id(prompt_id, number)
        for prompt_id, n in zip(prompts["prompt_id"].to_pylist(), numbers, strict=True)
        for number in range(n)
    ]
    rows = prompts.select(names).take(np.repeat(np.arange(len(prompts)), numbers))
    return rows.add_column(0, "attempt_id", pa.array(ids, pa.string()))


def _compare(path: Path, in_file: pa.Table, expected: pa.Table, source: str) -> None:
    """Raise `RecordError` unless the ids in a file are the expected ones, in their order."""
    if in_file.equals(expected):
        return
    row_id = expected.column_names[0]
    if in_file[row_id] == expected[row_id]:
        name = next(name for name in expected.column_names if in_file[name] != expected[name])
        raise RecordError(f"{path}: its column {name!r} is not that of {source}. {remake(path)}")
    rows = zip(in_file[row_id].to_pylist(), expected[row_id].to_pylist(), strict=False)
    first = next(
        (f"row {n} is {row}, expected {other}; " for n, (row, other) in enumerate(rows, 1) if row != other), ""
    )
    raise RecordError(
        f"{path}: {first}{len(in_file)} rows, expected {len(expected)}, those of {source}. "
        f"Is the number of shards right? {remake(path)}"
    )
