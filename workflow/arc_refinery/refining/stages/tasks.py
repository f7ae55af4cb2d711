"""Stages that make or collect tasks."""

import logging
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from arc_refinery import records
from arc_refinery.config import REPORT, TUNING, Line, LineOrNone, PositiveInt, Sandbox, Seed, marked
from arc_refinery.domains.domain import LeftOut, LoadedDomain
from arc_refinery.outputs import Writes, records_file
from arc_refinery.refining.config import Problems, TaskSet
from arc_refinery.refining.training_tasks import TEMPLATE_ROWS, deal_tasks, overlaps, overlaps_of
from arc_refinery.stages import Files


def tasks(
    domain: LoadedDomain,
    problems: Problems,
    sandbox: Sandbox,
    tasks_per_part: PositiveInt | None,
    seed: Seed,
    *,
    n_jobs: PositiveInt = 1,
    output: Annotated[Files, Writes(records_file, "tasks")],
) -> None:
    """Make the tasks to train on, from generated problems or from rows, and split them into parts.

    Without `tasks_per_part`, all tasks are dealt evenly. There is an output per part.
    """
    settings = problems.model_dump() | {"tasks_per_part": tasks_per_part}
    left_out = LeftOut()

    def notes() -> dict[str, Any]:
        return {"problems_left_out": dict(left_out.problems), "pairs_left_out": dict(left_out.pairs)}

    n_wanted = len(output) * (tasks_per_part or 0)
    tables = domain.training_tables(problems, n_wanted, seed, n_jobs, left_out, sandbox)
    with ExitStack() as files:
        writers = [records.writer(path, domain.task_class, seed, settings, notes) for path in output]
        add = [files.enter_context(writer) for writer in writers]
        for part, dealt in deal_tasks(domain.task_class, tables, len(output), tasks_per_part, seed, left_out):
            add[part](dealt)
    _log(left_out.pairs, "pairs")
    _log(left_out.problems, "problems")


def evaluation_tasks(
    domain: LoadedDomain,
    task_set: TaskSet,
    sandbox: Sandbox,
    *,
    output: Annotated[Path, Writes(records_file, "tasks")],
) -> None:
    """Collect the tasks of one evaluation set."""
    left_out: Counter[str] = Counter()
    found = domain.all_of_set(task_set, left_out, sandbox, "heldout")
    settings = {"set": task_set.model_dump(exclude=marked(type(task_set), TUNING, REPORT))}
    seed = getattr(task_set, "seed", None) or 0
    records.write(output, domain.task_class, found, seed, settings, lambda: {"problems_left_out": dict(left_out)})
    _log(left_out, task_set.unit)


def overlap(
    domain: LoadedDomain,
    messages: Line | None = None,
    template: LineOrNone = "",
    n_rows: PositiveInt | None = None,
    *,
    trained: Files,
    evaluated: Files,
    output: Annotated[Path, Writes(records_file, "overlaps")],
) -> None:
    """Find the tasks to train on that are evaluated, too, under the same id or in another form.

    `messages` is a file or folder of rows that the model was trained on before, in the words of `template`.
    """
    same_tasks = domain.same_tasks({path.stem: records.read(path, domain.task_class) for path in evaluated})
    rows = list(overlaps(domain.task_class, trained, same_tasks))
    for task in domain.tasks_in_messages(Path(messages), template, n_rows) if messages else ():
        rows += overlaps_of(task, TEMPLATE_ROWS, same_tasks)
    records.write(output, records.Overlap, rows, 0, {})
    for path in evaluated:
        n_trained = len({row.evaluated_id for row in rows if row.evaluated_in == path.stem})
        logging.info("%s: %d of %d tasks are also among those to train on", path, n_trained, records.count(path))


def _log(left_out: Counter[str], what: str) -> None:
    for reason, n in sorted(left_out.items()):
        logging.info("%d %s left out: %s", n, what, reason)
