"""Commands of domain `code`: flags of its own on those of every domain."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from arc_refinery import config
from arc_refinery.config import REPORT, TUNING
from arc_refinery.config.flags import FLAT, Without
from arc_refinery.refining.commands import prompts, tasks, training
from arc_refinery.refining.domains.code.config import FORMS, PLAIN, FeedbackForm, Grpo, Problems, TaskSet, wording_files

if TYPE_CHECKING:
    import pyarrow as pa

    from arc_refinery.refining.domain import Domain
    from arc_refinery.refining.domains.code.tasks import CodeTask
    from arc_refinery.refining.parts import LeftOut

NAMED = 5  # rows that are named, of those left out for one reason


class Tasks(tasks.Tasks):
    problems: Annotated[Problems, FLAT]
    sandbox: Annotated[config.Sandbox, FLAT] = config.Sandbox()

    def tables(self, domain: "Domain", n_wanted: int, left_out: "LeftOut") -> "Iterator[pa.Table]":
        from arc_refinery import records

        usable = _usable(domain, self.problems, self.sandbox, self.n_jobs, left_out.problems)
        yield from records.tables(domain.task_class, usable)


class EvaluationTasks(tasks.EvaluationTasks):
    task_set: Annotated[TaskSet, FLAT, Without(TUNING, REPORT)]
    sandbox: Annotated[config.Sandbox, FLAT] = config.Sandbox()

    def tasks(self, left_out: Counter[str]) -> "Iterator[CodeTask]":
        return _usable(self.loaded(), self.task_set, self.sandbox, 1, left_out, self.task_set.first_row)


def _usable(
    domain: "Domain",
    source: Problems | TaskSet,
    sandbox: config.Sandbox,
    n_jobs: int,
    counts: Counter[str],
    first_row: int = 0,
) -> "Iterator[CodeTask]":
    """Yield the tasks of a file whose own programs pass; count the other rows by reason, and name the first ones."""
    from arc_refinery.refining.domains.code.grading import usable_tasks
    from arc_refinery.refining.domains.code.tasks import LeftOut

    path, n_shown, n_wanted = Path(str(source.path)), source.n_shown_tests, source.n_tasks
    left_out = LeftOut()
    with domain.executors(sandbox, n_jobs) as executors:
        try:
            yield from usable_tasks(path, n_shown, executors, left_out, first_row, n_wanted)  # type: ignore[arg-type]
        finally:  # also if only the first ones are wanted
            by_reason: dict[str, list[str]] = {}
            for name, (reason, _) in left_out.rows.items():
                by_reason.setdefault(reason, []).append(name)
            for reason, names in by_reason.items():
                more = ", ..." if len(names) > NAMED else ""
                counts[f"{reason} ({', '.join(names[:NAMED])}{more})"] = len(names)


class Refine(prompts.Refine):
    template: config.Line = PLAIN  # plain, or a folder written by `prompts export --domain code`
    form: FeedbackForm = FORMS[0]  # form of the feedback: failing tests with values, a traceback, or a count


class WriteDemonstrations(prompts.WriteDemonstrations):
    template: config.Line = PLAIN  # plain, or a folder written by `prompts export --domain code`
    form: FeedbackForm = FORMS[0]  # form of the feedback: failing tests with values, a traceback, or a count


class FirstPrompts(prompts.FirstPrompts):
    template: config.Line = PLAIN  # plain, or a folder written by `prompts export --domain code`


class ExportTemplate(prompts.ExportTemplate):
    template: config.Line = PLAIN  # the template to write

    def files(self) -> list[str]:
        return [path.name for path in wording_files(str(self.output))]


class Train(training.Train):
    training: Annotated[Grpo, FLAT]
    template: config.Line = PLAIN  # wording of feedback: plain, or a folder
    form: FeedbackForm = FORMS[0]  # form of that feedback
