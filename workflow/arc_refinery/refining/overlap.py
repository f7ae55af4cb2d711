"""Tasks to train on that are evaluated, too: under the same id, or as the same task in another form."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.records import Overlap

TEMPLATE_ROWS = "template_rows"  # in the column of the part or set: rows that the model was trained on before

SameTasks = Callable[[Any], dict[tuple[str, str], str]]  # of a task: {(set, task id): "id" or "content"}


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
