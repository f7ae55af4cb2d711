"""Problems become tasks: as many train pairs as ARC tasks have, and one test pair, drawn from the problem's examples.

examples    0 1 2 3 4 5 6 7      with `n_hidden` = 2; drawn: 1 2 4 to train on and 0 to test
task        train 1 2 4, test 0, hidden 6 7

As in the published data, a draw with too many cells is repeated, up to ten times.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arc_refinery import records
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
    left_out: Counter[str] = Counter()
    tables = records.tables(Task, tasks_from_problems(problems, max_cells, seed, left_out))
    tasks = pa.concat_tables([records.schema(Task).empty_table(), *tables]).combine_chunks()
    return tasks, left_out, pairs_left_out


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
