"""Recognize tasks of evaluation sets among others.

Two tasks are one if, under one of the 8 symmetries and one permutation of the colours, more than half of the pairs of
the one with fewer pairs are pairs of the other. So neither augmentation nor the order of pairs matters, nor a pair that
was added, corrected or moved from train to test.

    0934a4d8    train a b c d, test e
    x7          train e d, test c, turned left, with blue and red swapped     the same task
"""

from collections.abc import Iterable, Mapping
from itertools import chain

import numpy as np

from arc_refinery.arc.augment import Augmentation
from arc_refinery.arc.tasks import Task

SYMMETRIES = [Augmentation(n_rotations, transpose) for transpose in (False, True) for n_rotations in range(4)]


_Colors = tuple[int, ...]  # colours of a pair, in the order in which they appear
_Pairs = dict[bytes, set[_Colors]]  # each pair with its colours numbered in that order, and the colours themselves


_Form = tuple[tuple[str, str], _Pairs]  # (set, task id), and the pairs of the task as one of the symmetries shows them


class EvaluatedTasks:
    """The tasks of evaluation sets, to be recognised among others."""

    def __init__(self, sets: Mapping[str, Iterable[Task]]) -> None:
        self._by_id: dict[str, list[str]] = {}  # names of the sets
        self._by_pair: dict[bytes, list[_Form]] = {}
        for name, tasks in sets.items():
            for task in tasks:
                self._by_id.setdefault(task.task_id, []).append(name)
                for symmetry in SYMMETRIES:
                    form = (name, task.task_id), _numbered(task.map_grids(symmetry.apply))
                    for pair in form[1]:
                        self._by_pair.setdefault(pair, []).append(form)

    def same_as(self, task: Task) -> dict[tuple[str, str], str]:
        """Return the evaluated tasks that a task is, as {(set, task id): "id" or "content"}."""
        pairs = _numbered(task)
        forms = {id(form): form for pair in pairs for form in self._by_pair.get(pair, ())}
        same = {key: "content" for key, others in forms.values() if _are_same_task(pairs, others)}
        return same | {(name, task.task_id): "id" for name in self._by_id.get(task.task_id, ())}


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
