"""Problems become tasks: as many train pairs as ARC tasks have, and one test pair, drawn from the problem's examples.

examples    0 1 2 3 4 5 6 7      with `n_hidden` = 2; drawn: 1 2 4 to train on and 0 to test
task        train 1 2 4, test 0, hidden 6 7

As in the published data, a draw with too many cells is repeated, up to ten times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery import records
from arc_refinery.arc.arrow_grids import FlatGrids, list_array, pair_array
from arc_refinery.arc.tasks import Problem, Task
from arc_refinery.barc.rows import RowBlock, read_block
from arc_refinery.seeding import stream

# Number of ARC tasks by number of train pairs, as counted in the published experiment
TRAIN_PAIRS = {2: 355, 3: 1281, 4: 433, 5: 123, 6: 43, 7: 17, 8: 6, 10: 2}
MIN_EXAMPLES = 3
DRAWS = 10
_SIZES, _ENDS = np.array([*TRAIN_PAIRS]), np.cumsum([*TRAIN_PAIRS.values()])


@dataclass(frozen=True, slots=True)
class _Draw:
    """Examples of a problem, by index."""

    train: NDArray[np.int64]
    test: int


def tasks_from_problems(
    problems: Iterable[Problem], max_cells: int, seed: int, left_out: Counter[str], n_hidden: int = 0
) -> Iterator[Task]:
    """Yield one task per problem: with as many train pairs as ARC tasks have, and one test pair.

    The last `n_hidden` examples become hidden pairs. `left_out` counts the problems that are too small or too large, by
    reason.
    """
    for problem in problems:
        n_usable = len(problem.examples) - n_hidden
        examples, hidden = problem.examples[:n_usable], problem.examples[n_usable:]
        cells = np.array([pair.input.size + pair.output.size for pair in examples], np.int64)
        drawn = _draw(problem.problem_id, cells, max_cells, seed)
        if isinstance(drawn, str):
            left_out[drawn] += 1
            continue
        train, test = tuple(examples[index] for index in drawn.train), (examples[drawn.test],)
        yield Task(problem.problem_id, train, test, problem.origin, problem.source, hidden)


def tasks_of_rows(rows: RowBlock, max_cells: int, seed: int) -> tuple[pa.Table, Counter[str], Counter[str]]:
    """Return the tasks of BARC rows, how many rows give none, and how many pairs were left out, by reason."""
    problems, pairs_left_out = read_block(rows)
    n_pairs, ends = problems.n_pairs, np.cumsum(problems.n_pairs)
    starts = ends - n_pairs
    cells = problems.grids.heights * problems.grids.widths
    cells_per_pair = cells[::2] + cells[1::2]
    draws = [
        _draw(problem_id, cells_per_pair[start:end], max_cells, seed)
        for problem_id, start, end in zip(problems.problem_ids, starts.tolist(), ends.tolist(), strict=True)
    ]
    makes_task = np.array([isinstance(drawn, _Draw) for drawn in draws], bool)
    is_train, is_test = np.zeros((2, cells_per_pair.size), bool)
    for drawn, start in zip(draws, starts.tolist(), strict=True):
        if isinstance(drawn, _Draw):
            is_train[start + drawn.train] = is_test[start + drawn.test] = True
    n_train = np.array([drawn.train.size for drawn in draws if isinstance(drawn, _Draw)], np.int64)
    nothing = np.zeros_like(n_train)
    columns = {
        "task_id": list(compress(problems.problem_ids, makes_task)),
        "train": list_array(n_train, _pairs(problems.grids, is_train)),
        "test": list_array(nothing + 1, _pairs(problems.grids, is_test)),
        "origin": ["barc"] * nothing.size,
        "source": list(compress(problems.sources, makes_task)),
        "hidden": list_array(nothing, _pairs(problems.grids, np.zeros_like(is_test))),
    }
    reasons = Counter(drawn for drawn in draws if isinstance(drawn, str))
    return pa.table(columns, records.schema(Task)), reasons, pairs_left_out


def _pairs(grids: FlatGrids, is_selected: NDArray[np.bool_]) -> pa.Array:
    """Return the pairs i for which ``is_selected[i]`` is true."""
    inputs, outputs = np.zeros((2, 2 * is_selected.size), bool)
    inputs[::2] = outputs[1::2] = is_selected
    return pair_array(grids.select(inputs), grids.select(outputs))


def _draw(problem_id: str, cells: NDArray[np.int64], max_cells: int, seed: int) -> _Draw | str:
    """Draw examples for a task, in the problem's order; `cells`: of each example. Or return why they make none."""
    if cells.size < MIN_EXAMPLES:
        return f"fewer than {MIN_EXAMPLES} examples"
    rng = stream(seed, "pairs of a task", problem_id)
    ends = _ENDS[cells.size > _SIZES]
    for _ in range(DRAWS):
        n_train = _SIZES[ends.searchsorted(rng.random() * ends[-1], side="right")]
        *train, test = rng.permutation(cells.size)[: n_train + 1].tolist()
        if cells[train].sum() + cells[test] <= max_cells:
            return _Draw(np.sort(train), test)
    return f"more than {max_cells} cells"
