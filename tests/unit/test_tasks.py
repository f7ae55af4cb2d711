"""Tasks: the order of their pairs, their size, and their changed copies."""

from dataclasses import replace

import numpy as np
import pytest
from factories import make_grid, make_task

from arc_refinery.arc.tasks import Pair, Task


def pair(number: int) -> Pair:
    """A 1x2 input and a 2x1 output that tell pairs apart."""
    return Pair(make_grid(f"{number}0"), make_grid("0", f"{number}"))


@pytest.fixture
def task() -> Task:
    train = (pair(1), pair(2), pair(3))
    return make_task("t1", train=train, test=(pair(4),), origin="by-hand", source="def main(grid): ...")


def numbers(pairs: tuple[Pair, ...]) -> list[int]:
    return [int(pair.input[0, 0]) for pair in pairs]


def test_pairs_are_the_train_pairs_then_the_test_pairs_then_the_hidden_ones(task: Task):
    assert numbers(task.pairs) == [1, 2, 3, 4]
    assert numbers(replace(task, hidden=(pair(5), pair(6))).pairs) == [1, 2, 3, 4, 5, 6]


def test_map_grids_changes_inputs_and_outputs_of_train_and_test(task: Task):
    mirrored = task.map_grids(np.fliplr)
    assert [pair.input.tolist() for pair in mirrored.pairs] == [[[0, 1]], [[0, 2]], [[0, 3]], [[0, 4]]]
    (hidden,) = replace(task, hidden=(pair(5),)).map_grids(np.fliplr).hidden
    assert hidden.input.tolist() == [[0, 5]]
    transposed = task.map_grids(np.transpose)
    assert [pair.output.tolist() for pair in transposed.pairs] == [[[0, 1]], [[0, 2]], [[0, 3]], [[0, 4]]]


def test_map_grids_keeps_everything_else_and_the_original(task: Task):
    changed = task.map_grids(np.fliplr)
    assert (changed.task_id, changed.origin, changed.source) == ("t1", "by-hand", "def main(grid): ...")
    assert numbers(task.pairs) == [1, 2, 3, 4]


def test_an_order_names_the_old_place_of_each_new_pair(task: Task):
    # (2, 0, 1) is not its own inverse: read the other way round it would give 2, 3, 1
    reordered = task.reorder_train((2, 0, 1))
    assert numbers(reordered.train) == [3, 1, 2]
    assert numbers(reordered.test) == [4]


@pytest.mark.parametrize("order", [(0, 1), (0, 1, 1), (0, 1, 3), (0, 1, 2, 3), ()])
def test_an_order_that_loses_or_repeats_a_pair_is_refused(task: Task, order: tuple[int, ...]):
    with pytest.raises(ValueError, match=r"task t1: order \(.*\) is not a permutation of its 3 train pairs"):
        task.reorder_train(order)
