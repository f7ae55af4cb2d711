"""Read JSON files of ARC tasks: folders of tasks, Kaggle's files, and the original scripts' `dataset_*.json.gz`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from arc_refinery import files
from arc_refinery.arc.grids import UNKNOWN, Grid, GridError, TooLargeError, as_grid
from arc_refinery.arc.tasks import Pair, Task
from arc_refinery.errors import InputError
from arc_refinery.rows import read_rows

T = TypeVar("T")
_MAPPING = "a mapping from task ids"
_Pairs = Annotated[list[dict[str, Any]], Field(min_length=1)]


class TooLargeTaskError(InputError):
    """A grid of a task has a longer side than ARC's grids have."""


class _Task(BaseModel):
    train: _Pairs
    test: _Pairs


def read_challenges(path: Path, solutions: Path | None = None) -> Iterator[Task]:
    """Yield the tasks of a file or folder (`read_tasks`); raises `InputError`.

    A test output is the pair's own `output` if it has one (data sets do, challenges do not), else the grid in
    `solutions`, ``{task_id: [grid, ...]}``, else `UNKNOWN`.
    """
    yield from tasks_in(read_tasks(path), path, solutions)


def read_set(path: Path, solutions: Path | None, only: str | None) -> list[Task]:
    """Return the tasks of an evaluation set, all or those listed in the file `only`, whatever else there is."""
    wanted = selected(read_tasks(path), read_ids(only), str(path), str(only))
    try:
        return list(tasks_in(wanted, path, solutions))
    except TooLargeTaskError as error:
        raise InputError(f"{error}; list the tasks to keep in `only`") from None


def read_ids(path: str | None) -> list[str] | None:
    """Read ids from a text file, one per line; text after # is a comment."""
    if path is None:
        return None
    text = files.read_text(Path(path), "a text file with one task id per line")
    names = [line for line in (line.partition("#")[0].strip() for line in text.splitlines()) if line]
    if twice := [name for name, n in Counter(names).items() if n > 1]:
        raise InputError(f"{path}: lists {twice[0]} twice; remove one")
    if not names:
        raise InputError(f"{path}: lists no task; expected one task id per line")
    return names


def selected(tasks: Mapping[str, T], only: list[str] | None, where: str, list_file: str) -> Mapping[str, T]:
    """Return all tasks, or those in `only`, in its order; raise `InputError` for an unknown id."""
    if unknown := [task_id for task_id in only or () if task_id not in tasks]:
        raise InputError(f"{list_file}: {unknown[0]} is not a task of {where}; correct the list of ids")
    return tasks if only is None else {task_id: tasks[task_id] for task_id in only}


def tasks_in(content: Mapping[str, Any], path: Path, solutions: Path | None = None) -> Iterator[Task]:
    """Yield the tasks of the content of such a file."""
    answers = read_json(solutions) if solutions else {}
    origin = path.resolve().name.partition(".json")[0]
    for task_id, task in content.items():
        where = f"{path}: task {task_id}"
        files.checked(_Task, task, where, "lists `train` and `test` of {input, output} pairs")
        train, test = task["train"], task["test"]
        if solutions:
            if task_id not in answers:
                raise InputError(
                    f"{solutions}: task {task_id} is missing, expected the outputs of all tasks of {path}; do the two "
                    "files belong together?"
                )
            test = _answered(test, answers[task_id], f"{solutions}: task {task_id}")
        yield Task(task_id, _pairs(train, f"{where}: train"), _pairs(test, f"{where}: test", UNKNOWN), origin)


def task_files(folder: Path) -> list[Path]:
    """Return the .json and .json.gz files below a folder, sorted by name, without hidden ones."""
    paths = (path for path in sorted(folder.rglob("*")) if path.name.endswith((".json", ".json.gz")) and path.is_file())
    return [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def read_tasks(path: Path) -> dict[str, Any]:
    """Return the unchecked tasks of a file or folder by their ids. Raises `InputError`.

    {"a": {"train": [{"input", "output"}], "test": [...]}}      a file of tasks, as Kaggle's and the original scripts'
    {"train": [...], "test": [...]}                             one task, whose id is the file's name: 0934a4d8.json
    [{"id": "a", "train": [...], "test": [...]}]                a list, or JSON lines, with `id` or `task_id`
    0934a4d8.json, Copy/Copy1.json, ...                         a folder of such files of one task, as ARC is published

    Other fields are ignored. Files may be gzipped.
    """
    if not path.is_dir():
        return _tasks_of_file(path)
    tasks: dict[str, Any] = {}
    for file in task_files(path):
        content = files.read_json(file, "one task")
        if not _is_task(content):
            raise InputError(
                f"{file}: holds no single task with `train` and `test`; in a folder, each file is one task: name this "
                "file itself, or remove it"
            )
        name = _id_of(file.relative_to(path))
        if name in tasks:
            raise InputError(f"{path}: has two files of the task {name}, as .json and .json.gz; remove one")
        tasks[name] = content
    if not tasks:
        raise InputError(f"{path}: is a folder without .json files; expected one for each task, <id>.json")
    return tasks


def read_json(path: Path) -> dict[str, Any]:
    """Read a mapping from task ids from a .json or .json.gz file; raises `InputError`."""
    return dict(files.read_json(path, _MAPPING, dict[str, Any]))


def _tasks_of_file(path: Path) -> dict[str, Any]:
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        content: Any = list(read_rows(path))
    else:
        content = files.read_json(path, _MAPPING)
    if _is_task(content):
        return {_id_of(Path(path.name)): content}
    if isinstance(content, list):
        return _with_ids(content, path)
    files.checked(dict[str, Any], content, str(path), _MAPPING)
    if not content:
        raise InputError(f"{path}: has no tasks; expected at least one")
    return dict(content)


def _with_ids(items: list[Any], path: Path) -> dict[str, Any]:
    """Return the tasks of a list by their ids."""
    tasks: dict[str, Any] = {}
    for number, item in enumerate(items, 1):
        name = (item.get("id") or item.get("task_id")) if isinstance(item, dict) else None
        if not isinstance(name, str):
            raise InputError(
                f"{path}: holds a list whose item {number} has no id; expected tasks with `id`, `train` and `test`, or "
                "a mapping from task ids"
            )
        if name in tasks:
            raise InputError(f"{path}: has two tasks with the id {name}; remove one")
        tasks[name] = item
    if not tasks:
        raise InputError(f"{path}: has no tasks; expected at least one")
    return tasks


def _is_task(content: Any) -> bool:
    """Whether this is one task rather than a mapping from ids, which may be `train`."""
    return isinstance(content, dict) and any(isinstance(content.get(field), list) for field in ("train", "test"))


def _id_of(path: Path) -> str:
    return path.as_posix().removesuffix(".gz").removesuffix(".json")


def _answered(rows: list[dict[str, Any]], grids: Any, where: str) -> list[dict[str, Any]]:
    """Return test pairs with the solutions as the outputs that they lack."""
    if isinstance(grids, list) and any(isinstance(grid, dict) and "attempt_1" in grid for grid in grids):
        raise InputError(f"{where}: has attempt_1, so this is a submission; expected the file of solutions")
    if not isinstance(grids, list) or len(grids) != len(rows):
        content = f"{len(grids)} items" if isinstance(grids, list) else files.in_words(grids)
        raise InputError(f"{where}: holds {content}, expected a list of {len(rows)} grids, one for each test input")
    outputs = [{"output": _grid({"output": grid}, "output", f"{where}: grid {n}")} for n, grid in enumerate(grids)]
    return [output | row for output, row in zip(outputs, rows, strict=True)]


def _pairs(rows: list[dict[str, Any]], where: str, missing: Grid | None = None) -> tuple[Pair, ...]:
    """Read pairs; `missing` replaces missing outputs, which are errors without it."""
    return tuple(
        Pair(_grid(row, "input", f"{where} pair {number}"), _grid(row, "output", f"{where} pair {number}", missing))
        for number, row in enumerate(rows)
    )


def _grid(row: dict[str, Any], field: str, where: str, missing: Grid | None = None) -> Grid:
    if missing is not None and row.get(field) is None:
        return missing
    try:
        return as_grid(row.get(field))
    except GridError as error:
        kind = TooLargeTaskError if isinstance(error, TooLargeError) else InputError
        raise kind(f"{where}: field {field!r}: {error}") from None
