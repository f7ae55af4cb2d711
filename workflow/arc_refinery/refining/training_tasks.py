"""Tasks to train on: dealt into parts, and those that are evaluated, too, under the same id or in another form."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.domains.domain import LeftOut
from arc_refinery.errors import InputError
from arc_refinery.records import Overlap
from arc_refinery.seeding import stream

TEMPLATE_ROWS = "template_rows"  # in the column of the part or set: rows that the model was trained on before

SameTasks = Callable[[Any], dict[tuple[str, str], str]]  # of a task: {(set, task id): "id" or "content"}


def deal_tasks(
    cls: type[records.RecordClass],
    tables: Iterable[pa.Table],
    n_parts: int,
    tasks_per_part: int | None,
    seed: int,
    left_out: LeftOut,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield (part, some of its tasks) until all are dealt; parts keep the order of the tasks in `tables`.

    The number of tasks is known only at the end, so they wait in a temporary file, not in memory.
    """
    with TemporaryFile() as waiting:
        n_tasks = 0
        with pa.ipc.new_stream(waiting, records.schema(cls)) as stream:
            for table in tables:
                stream.write_table(table)
                n_tasks += len(table)
        parts = split_into_parts(n_tasks, n_parts, tasks_per_part, seed)
        if n_spare := int((parts < 0).sum()):
            left_out.problems["not needed for the parts"] = n_spare
        waiting.seek(0)
        start = 0
        for batch in pa.ipc.open_stream(waiting):
            batch_parts = parts[start : start + len(batch)]
            start += len(batch)
            for part in range(n_parts):
                is_in_part = batch_parts == part
                yield part, pa.table(batch if is_in_part.all() else batch.filter(pa.array(is_in_part)))


def split_into_parts(n_tasks: int, n_parts: int, tasks_per_part: int | None, seed: int) -> NDArray[np.int64]:
    """Assign each task a part, 0 .. n_parts - 1, or -1 for none, by a seeded shuffle; raise `InputError` if too few.

    Parts have `tasks_per_part` tasks each, or divide all tasks into parts whose sizes differ by at most one.
    """
    wanted = n_tasks if tasks_per_part is None else n_parts * tasks_per_part
    if n_tasks < max(wanted, n_parts):
        raise InputError(
            f"the problems give {n_tasks} tasks, but parts.n_parts x parts.tasks_per_part asks for "
            f"{max(wanted, n_parts)}; lower one of them, or let `problems` give more tasks"
        )
    parts = np.full(n_tasks, -1)
    parts[stream(seed, "parts").permutation(n_tasks)[:wanted]] = np.sort(np.arange(wanted) % n_parts)
    return parts


def overlaps(cls: type[Any], files: Iterable[Path], same_tasks: SameTasks) -> Iterator[Overlap]:
    """Yield the tasks of files of tasks that are evaluated."""
    for path in files:
        for task in records.read(path, cls):
            yield from overlaps_of(task, path.stem, same_tasks)


def overlaps_of(task: Any, tasks: str, same_tasks: SameTasks) -> Iterator[Overlap]:
    """Yield a record for each evaluated task that a task of the part or set `tasks` is."""
    for (evaluated_in, evaluated_id), by in sorted(same_tasks(task).items()):
        name = f"{tasks}/{task.task_id}/{evaluated_in}/{evaluated_id}"
        yield Overlap(name, tasks, task.task_id, evaluated_in, evaluated_id, by)


def read_overlap(folder: Path) -> list[Overlap]:
    """Return the tasks to train on that are evaluated, too; `folder` holds an experiment's results."""
    path = folder / "training/overlap.parquet"
    return list(records.read(path, Overlap)) if path.exists() else []


def left_out(path: Path | None) -> set[str]:
    """Return the ids of the tasks that are not to be trained on, from a file of overlaps."""
    return {overlap.task_id for overlap in records.read(path, Overlap)} if path else set()
