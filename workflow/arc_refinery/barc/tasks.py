"""Problems become tasks: as many train pairs as ARC tasks have, and one test pair.

examples    0 1 2 3 4 5 6 7      with `n_hidden` = 2, and three train pairs drawn
task        train 0 1 2, test 3, hidden 6 7
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.arrow_grids import FlatGrids, list_array, pair_array
from arc_refinery.barc.rows import RowBlock, read_block
from arc_refinery.problems import Problem
from arc_refinery.seeding import stream
from arc_refinery.tasks import Task

# Number of ARC tasks by number of train pairs, as counted in the published experiment
TRAIN_PAIRS = {2: 355, 3: 1281, 4: 433, 5: 123, 6: 43, 7: 17, 8: 6, 10: 2}
TRAIN_SHARES = np.cumsum([*TRAIN_PAIRS.values()]) / sum(TRAIN_PAIRS.values())
MIN_EXAMPLES = 3


def tasks_from_problems(
    problems: Iterable[Problem], max_cells: int, seed: int, left_out: Counter[str], n_hidden: int = 0
) -> Iterator[Task]:
    """Yield one task per problem: with as many train pairs as ARC tasks have, and one test pair.

    The last `n_hidden` examples become hidden pairs. `left_out` counts the problems that are too small or too large, by
    reason.
    """
    for problem in problems:
        n_usable = len(problem.examples) - n_hidden
        n_train = _n_train(problem.problem_id, n_usable, seed)
        train, test = problem.examples[:n_train], problem.examples[n_train : n_train + 1]
        hidden = problem.examples[n_usable:]
        task = Task(problem.problem_id, train, test, problem.origin, problem.source, hidden)
        if reason := _obstacle(n_usable, task.n_cells, max_cells):
            left_out[reason] += 1
        else:
            yield task


def tasks_of_rows(rows: RowBlock, max_cells: int, seed: int) -> tuple[pa.Table, Counter[str], Counter[str]]:
    """Return the tasks of BARC rows, how many rows give none, and how many pairs were left out, by reason."""
    problems, pairs_left_out = read_block(rows)
    n_pairs, ends = problems.n_pairs, np.cumsum(problems.n_pairs)
    cells = problems.grids.heights * problems.grids.widths
    before = np.concatenate([[0], np.cumsum(cells[::2] + cells[1::2])])  # cells of all pairs before a pair
    drawn = [_n_train(*row, seed) for row in zip(problems.problem_ids, n_pairs.tolist(), strict=True)]
    n_train = np.array(drawn, np.int64)
    n_cells = before[ends - n_pairs + n_train + 1] - before[ends - n_pairs]
    reasons = [_obstacle(*row, max_cells) for row in zip(n_pairs.tolist(), n_cells.tolist(), strict=True)]
    makes_task = np.array([not reason for reason in reasons], bool)

    place = np.arange(n_pairs.sum()) - np.repeat(ends - n_pairs, n_pairs)  # of a pair in its problem
    n_train_of_pair = np.repeat(np.where(makes_task, n_train, -1), n_pairs)  # -1: no pair is train or test
    nothing = np.zeros_like(n_train[makes_task])
    columns = {
        "task_id": list(compress(problems.problem_ids, makes_task)),
        "train": list_array(n_train[makes_task], _pairs(problems.grids, place < n_train_of_pair)),
        "test": list_array(nothing + 1, _pairs(problems.grids, place == n_train_of_pair)),
        "origin": ["barc"] * nothing.size,
        "source": list(compress(problems.sources, makes_task)),
        "hidden": list_array(nothing, _pairs(problems.grids, np.zeros_like(place, bool))),
    }
    return pa.table(columns, records.schema("tasks")), Counter(filter(None, reasons)), pairs_left_out


def _pairs(grids: FlatGrids, chosen: NDArray[np.bool_]) -> pa.Array:
    """Return the pairs i for which ``chosen[i]`` is true."""
    inputs, outputs = np.zeros((2, 2 * chosen.size), bool)
    inputs[::2] = outputs[1::2] = chosen
    return pair_array(grids.select(inputs), grids.select(outputs))


def _n_train(problem_id: str, n_usable: int, seed: int) -> int:
    """Draw the number of train pairs of a task."""
    drawn = TRAIN_SHARES.searchsorted(stream(seed, "train pairs", problem_id).random(), side="right")
    return min([*TRAIN_PAIRS][drawn], n_usable - 1)


def _obstacle(n_usable: int, n_cells: int, max_cells: int) -> str:
    """Return why a problem makes no task; empty if it makes one."""
    if n_usable < MIN_EXAMPLES:
        return f"fewer than {MIN_EXAMPLES} examples"
    return f"more than {max_cells} cells" if n_cells > max_cells else ""
