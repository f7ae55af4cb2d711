"""Read JSON files of ARC tasks: Kaggle's challenges and solutions, and the original scripts' `dataset_*.json.gz`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from arc_refinery import reading
from arc_refinery.errors import InputError
from arc_refinery.grids import UNKNOWN, Grid, GridError, as_grid
from arc_refinery.tasks import Pair, Task


class ChallengeError(InputError):
    """A file of tasks cannot be used; the message names the file, task and field, and what was expected."""


def read_challenges(path: Path, solutions: Path | None = None) -> Iterator[Task]:
    """Yield the tasks of a .json or .json.gz file ``{task_id: {"train": [{"input", "output"}], "test": [{"input"}]}}``.

    A test output is the pair's own `output` if it has one (data sets do, challenges do not), else the grid in
    `solutions`, ``{task_id: [grid, ...]}``, else `UNKNOWN`. Other fields are ignored. Raises `ChallengeError`.
    """
    yield from tasks_in(read_json(path), path, solutions)


def tasks_in(content: Mapping[str, Any], path: Path, solutions: Path | None = None) -> Iterator[Task]:
    """Yield the tasks of the content of such a file."""
    answers = read_json(solutions) if solutions else {}
    for task_id, task in content.items():
        where = f"{path}: task {task_id}"
        train, test = (_rows(task, field, where) for field in ("train", "test"))
        if solutions:
            test = _answered(test, answers.get(task_id), f"{solutions}: task {task_id}")
        origin = path.name.partition(".json")[0]
        yield Task(task_id, _pairs(train, f"{where}: train"), _pairs(test, f"{where}: test", UNKNOWN), origin)


def read_json(path: Path) -> dict[str, Any]:
    """Read a mapping from task ids from a .json or .json.gz file; raises `ChallengeError`."""
    content = reading.read_json(path, "a mapping from task ids", ChallengeError)
    if not isinstance(content, dict):
        raise ChallengeError(f"{path}: holds a {type(content).__name__}, expected a mapping from task ids")
    return content


def _rows(task: Any, field: str, where: str) -> list[dict[str, Any]]:
    rows = task.get(field) if isinstance(task, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ChallengeError(f"{where}: field {field!r} is missing, empty or not a list of {{input, output}} pairs")
    return rows


def _answered(rows: list[dict[str, Any]], grids: Any, where: str) -> list[dict[str, Any]]:
    """Return test pairs with the solutions as the outputs that they lack."""
    if not isinstance(grids, list) or len(grids) != len(rows):
        raise ChallengeError(f"{where}: expected a list of {len(rows)} grids, one for each test input")
    outputs = [{"output": _grid({"grid": grid}, "grid", f"{where}: {n}")} for n, grid in enumerate(grids)]
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
        raise ChallengeError(f"{where}: field {field!r}: {error}") from None
