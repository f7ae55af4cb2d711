"""Tasks to train on that are evaluated, too: under the same id, or as the same task in another form.

Two tasks are one if, under one of the 8 symmetries and one permutation of the colours, more than half of the pairs of
the one with fewer pairs are pairs of the other. So neither augmentation nor the order of pairs matters, nor a pair that
was added, corrected or moved from train to test.

    0934a4d8    train a b c d, test e
    x7          train e d, test c, turned left, with blue and red swapped     the same task
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from arc_refinery import records
from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.tasks import Task
from arc_refinery.records import Overlap

TEMPLATE_ROWS = "template_rows"  # in the column of the part or set: rows that the model was trained on before
SYMMETRIES = [Augmentation(n_rotations, transpose) for transpose in (False, True) for n_rotations in range(4)]

_Colors = tuple[int, ...]  # colours of a pair, in the order in which they appear
_Pairs = dict[bytes, set[_Colors]]  # each pair with its colours numbered in that order, and the colours themselves


@dataclass(frozen=True, slots=True)
class _Form:
    """An evaluated task, as one of the symmetries shows it."""

    tasks: str
    task_id: str
    pairs: _Pairs


class EvaluatedTasks:
    """The tasks of evaluation sets, to be recognised among others."""

    def __init__(self, sets: Mapping[str, Iterable[Task]]) -> None:
        self._by_id: dict[str, list[str]] = {}  # names of the sets
        self._by_pair: dict[bytes, list[_Form]] = {}
        for name, tasks in sets.items():
            for task in tasks:
                self._by_id.setdefault(task.task_id, []).append(name)
                for symmetry in SYMMETRIES:
                    form = _Form(name, task.task_id, _numbered(task.map_grids(symmetry.apply)))
                    for pair in form.pairs:
                        self._by_pair.setdefault(pair, []).append(form)

    def same_as(self, task: Task) -> dict[tuple[str, str], str]:
        """Return the evaluated tasks that a task is, as {(set, task id): "id" or "content"}."""
        pairs = _numbered(task)
        forms = {id(form): form for pair in pairs for form in self._by_pair.get(pair, ())}
        same = {(form.tasks, form.task_id): "content" for form in forms.values() if _are_same_task(pairs, form.pairs)}
        return same | {(name, task.task_id): "id" for name in self._by_id.get(task.task_id, ())}


def overlaps(files: Iterable[Path], evaluated: EvaluatedTasks) -> Iterator[Overlap]:
    """Yield the tasks of files of tasks that are evaluated."""
    for path in files:
        for task in records.read(path, Task):
            yield from overlaps_of(task, path.stem, evaluated)


def overlaps_of(task: Task, tasks: str, evaluated: EvaluatedTasks) -> Iterator[Overlap]:
    """Yield a record for each evaluated task that a task of the part or set `tasks` is."""
    for (evaluated_in, evaluated_id), by in sorted(evaluated.same_as(task).items()):
        name = f"{tasks}/{task.task_id}/{evaluated_in}/{evaluated_id}"
        yield Overlap(name, tasks, task.task_id, evaluated_in, evaluated_id, by)


def read_overlap(folder: Path) -> list[Overlap]:
    """Return the tasks to train on that are evaluated, too; `folder` holds an experiment's results."""
    path = folder / "training/overlap.parquet"
    return list(records.read(path, Overlap)) if path.exists() else []


def left_out(path: Path | None) -> set[str]:
    """Return the ids of the tasks that are not to be trained on, from a file of overlaps."""
    return {overlap.task_id for overlap in records.read(path, Overlap)} if path else set()


def _numbered(task: Task) -> _Pairs:
    """Return the pairs whose output is known, with their colours numbered."""
    pairs: _Pairs = {}
    for pair in chain(task.train, task.test):
        if pair.output.size:
            cells = np.concatenate([pair.input.ravel(), pair.output.ravel()])
            colors, first, index = np.unique(cells, return_index=True, return_inverse=True)
            order = np.argsort(first)
            shapes = bytes([*pair.input.shape, *pair.output.shape])
            content = shapes + np.argsort(order).astype(np.uint8)[index].tobytes()
            pairs.setdefault(content, set()).add(tuple(colors[order].tolist()))
    return pairs


def _are_same_task(pairs: _Pairs, others: _Pairs) -> bool:
    n_least = min(len(pairs), len(others))
    common = pairs.keys() & others.keys()
    if len(common) < min(2, n_least) or 2 * len(common) <= n_least:
        return False
    # one permutation must recolour all of them; pairs that occur in several colours do not show which
    renamed = {
        both
        for pair in common
        if len(pairs[pair]) == len(others[pair]) == 1
        for both in zip(*pairs[pair], *others[pair], strict=True)
    }
    return len(renamed) == len({old for old, _ in renamed}) == len({new for _, new in renamed})
