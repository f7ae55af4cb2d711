"""Commands that write prompts, learn their wording or study their lengths."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from arc_refinery import config
from arc_refinery.arc.tasks import Task
from arc_refinery.branch_files import BranchFiles
from arc_refinery.commands.flags import Command, Files, RulePath
from arc_refinery.commands.outputs import Output, Outputs, Writes, csv, folder_of_files, page, picture, records_file
from arc_refinery.config import ATTEMPTS, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.refining.config import Demonstrations, FeedbackKind, History, Sampling, Selection
from arc_refinery.refining.prompts import FeedbackForm

if TYPE_CHECKING:
    from arc_refinery.refining.graded import GradedAttempt


class PromptFlags(Command):
    """Flags of all commands that write prompts."""

    output: Annotated[Path, RULE, Writes(records_file, "prompts")] = NEEDED  # file to write
    model_path: config.Line  # model whose tokenizer and chat template render the prompts
    template: config.Line  # compact, words, or a folder written by `prompts export` or `learn`
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, instead of the template's own
    overlap: Annotated[Path | None, RULE] = None  # file that `tasks overlap` wrote: its tasks are left out
    seed: config.Seed = 0  # seeds every random choice


class NextTurnFlags(PromptFlags):
    """Flags of all commands that read the attempts of a turn."""

    folder: RulePath = NEEDED  # the turn: prompts.parquet, attempts/<shard>.parquet, verdicts/<grading job>.parquet
    n_shards: Annotated[config.PositiveInt, TUNING]  # number of shards of that turn
    shards_per_grading_job: Annotated[config.PositiveInt, TUNING] = 1  # shards whose verdicts are in one file
    n_considered: config.PositiveInt  # attempts per task that may be used, from the first
    include_errors: bool = False  # also refine programs that raised an exception
    form: FeedbackForm = "given"  # form of the feedback: given grids, pairs of given and expected grids, or cells

    @property
    def files(self) -> BranchFiles:
        return BranchFiles(self.folder, self.n_shards, self.shards_per_grading_job)

    def reads(self) -> list[Path]:
        return [self.files.prompts]  # the command writes such files, too


class FirstPrompts(PromptFlags):
    r"""Write first-turn prompts for a file of tasks.

    Example:
        arc-refinery prompts first --tasks-path mine/part1.parquet --model-path workflow/models/tiny \
            --template compact --max-model-len 1024 --max-output-tokens 48 --n-predictions 8 --batch-size 4 \
            --output mine/turn1/prompts.parquet
    """

    tasks_path: RulePath = NEEDED  # file of tasks
    max_model_len: config.PositiveInt  # tokens of prompt and completion together; longer prompts are dropped
    sampling: Annotated[Sampling, FLAT, Without(ATTEMPTS)]
    branch: config.Line = "turn1"  # part of prompt ids; each branch gets its own augmentations

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.first_turn import first_turn_prompts
        from arc_refinery.refining.overlap import left_out
        from arc_refinery.refining.prompt_files import write_prompts
        from arc_refinery.refining.prompts import Renderer, load_template

        task_ids = records.texts(self.tasks_path, Task, "task_id")
        if not task_ids:
            raise InputError(f"{self.tasks_path}: has no tasks, so there is nothing to ask; make it again")
        excluded = left_out(self.overlap)
        if excluded.issuperset(task_ids):
            raise InputError(
                f"{self.tasks_path}: all of its {len(task_ids)} tasks are also evaluated, so they are left out "
                f"({self.overlap}); train on other tasks, or set training.evaluated_tasks: keep"
            )
        template, renderer = load_template(self.template, self.colors), Renderer(self.model_path)
        answer = self.sampling.max_output_tokens
        renderer.check_template(template, self.max_model_len - answer)
        prompts = first_turn_prompts(
            (task for task in records.read(self.tasks_path, Task) if task.task_id not in excluded),
            self.sampling.n_predictions,
            self.sampling,
            template,
            renderer,
            self.seed,
            self.branch,
        )
        settings = self.sampling.model_dump(exclude=config.marked(Sampling, ATTEMPTS))
        settings |= {"template": asdict(template), "max_model_len": self.max_model_len, "branch": self.branch}
        write_prompts(self.output, prompts, self.max_model_len, answer, self.seed, settings, [self.tasks_path])


class Refine(NextTurnFlags):
    r"""Turn incorrect attempts into next-turn prompts, with execution feedback.

    Example:
        arc-refinery prompts refine --folder mine/turn1 --n-shards 1 --n-considered 8 --branch turn2 --n-parents 2 \
            --n-predictions 8 --batch-size 4 --model-path workflow/models/tiny --template compact \
            --max-model-len 1024 --max-output-tokens 48 --output mine/turn2/prompts.parquet
    """

    branch: config.Line  # part of prompt ids
    max_model_len: config.PositiveInt  # tokens of prompt and completion together; longer prompts are dropped
    max_output_tokens: config.PositiveInt  # longest completion, in tokens
    n_parents: config.PositiveInt  # incorrect attempts per task to cycle through
    n_predictions: config.PositiveInt  # completions per task in the next turn
    batch_size: config.PositiveInt  # completions per prompt
    feedback: FeedbackKind = "real"  # the other values are controls
    select: Selection = "best-distinct"  # which incorrect attempts to refine, best first
    history: History = "whole"  # earlier attempts in the conversation: all, or only the last one

    def run(self) -> None:
        from arc_refinery.refining.graded import read_graded
        from arc_refinery.refining.next_turn import NextTurnPlan, next_turn_prompts
        from arc_refinery.refining.overlap import left_out
        from arc_refinery.refining.prompt_files import write_prompts
        from arc_refinery.refining.prompts import Renderer, load_template

        template = load_template(self.template, self.colors, self.form)
        plan = NextTurnPlan(
            self.branch,
            self.n_considered,
            self.n_parents,
            self.n_predictions,
            self.batch_size,
            self.include_errors,
            self.feedback,
            self.select,
            self.history,
        )
        renderer = Renderer(self.model_path)
        renderer.check_template(template, self.max_model_len - self.max_output_tokens)
        statuses: Counter[str] = Counter()

        def graded() -> "Iterator[GradedAttempt]":
            for attempt in read_graded(self.files, left_out(self.overlap)):
                statuses[attempt.verdict.status] += 1
                yield attempt

        prompts = next_turn_prompts(graded(), plan, template, renderer)
        settings = self.decisive() | {"template": asdict(template)}
        write_prompts(
            self.output, prompts, self.max_model_len, self.max_output_tokens, self.seed, settings, statuses=statuses
        )


class WriteDemonstrations(NextTurnFlags):
    r"""Pair incorrect first attempts with a correct program: the training data of `sft`.

    Example:
        arc-refinery prompts demonstrations --folder mine/turn1 --n-shards 1 --n-considered 8 \
            --tasks-path mine/part1.parquet --model-path workflow/models/tiny --template compact \
            --max-seq-length 1024 --max-completion-length 48 --targets attempts --output mine/demonstrations.parquet
    """

    output: Annotated[Path, RULE, Writes(records_file, "demonstrations")] = NEEDED  # file to write
    tasks_path: RulePath = NEEDED  # file of tasks
    demonstrations: Annotated[Demonstrations, FLAT]
    sandbox: Annotated[config.Sandbox, FLAT]  # executes the tasks' own programs
    max_seq_length: config.PositiveInt  # tokens of prompt, completion and end token; longer rows are left out
    max_completion_length: config.PositiveInt  # tokens of completion and end token
    n_jobs: Annotated[config.PositiveInt, RULE] = 1  # sandbox servers

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.demonstrations import (
            DemonstrationPlan,
            is_generated,
            make_demonstrations,
            source_answers,
        )
        from arc_refinery.refining.graded import read_graded
        from arc_refinery.refining.overlap import left_out
        from arc_refinery.refining.prompts import Renderer, load_template

        template, renderer = load_template(self.template, self.colors, self.form), Renderer(self.model_path)
        renderer.check_template(template, self.max_seq_length)
        plan = DemonstrationPlan(
            self.demonstrations,
            self.n_considered,
            self.include_errors,
            self.max_seq_length,
            self.max_completion_length,
            self.seed,
        )
        records.check_made_from(self.files.prompts, [self.tasks_path])
        sources, generated, counts = {}, set(), Counter(n_tasks=0, n_too_easy=0, n_tasks_without_target=0, n_too_long=0)
        if self.demonstrations.targets == "source":
            with self.sandbox.executor(self.n_jobs) as executor:
                sources = source_answers(records.read(self.tasks_path, Task), template, executor)
        else:
            generated = {task.task_id for task in records.read(self.tasks_path, Task) if is_generated(task)}
        demonstrations = make_demonstrations(
            read_graded(self.files, left_out(self.overlap)),
            sources,
            plan,
            template,
            renderer,
            counts,
            generated,
        )
        settings = self.decisive() | {"template": asdict(template)}
        records.write(self.output, records.Demonstration, demonstrations, self.seed, settings, lambda: dict(counts))
        logging.info("%d demonstrations; %s", records.count(self.output), dict(counts))


def template_folder(path: Path) -> Output:
    from arc_refinery.refining.prompts import template_files

    return folder_of_files(path, "a template", [file.name for file in template_files(str(path))])


class ExportTemplate(Command):
    """Write a built-in template as a folder, to edit its wording: docs/methods.md.

    Example:
        arc-refinery prompts export --template words --output mine/words
    """

    output: Annotated[Path, Writes(template_folder)]  # folder to write; model.template can name it
    template: Literal["compact", "words"] = "words"  # the template to write

    def run(self) -> None:
        from arc_refinery.refining.prompts import load_template, save_template

        save_template(load_template(self.template), self.output)
        print(f"{self.output}: edit its texts, and set model.template to this folder")


class Learn(Command):
    """Recover prompt templates from a model's own training rows: docs/methods.md.

    Example:
        arc-refinery prompts learn --messages mine/rows.jsonl --output mine/learned
    """

    messages: Path  # .jsonl, .json (either with .gz) or .parquet, or a folder; a row: {"messages": [{"role", ...}]}
    output: Annotated[Path, RULE, Writes(template_folder)] = NEEDED  # folder to write; model.template can name it
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, if the rows use others than ours
    min_share: config.Mass = 0.9  # share of the rows that the template must fit
    n_rows: config.PositiveInt | None = None  # number of rows to read, from the first; default: all

    def run(self) -> None:
        from arc_refinery.refining.prompts import save_template
        from arc_refinery.refining.prompts.learning import learn

        learned = learn(self.messages, self.colors, self.min_share, self.n_rows)
        save_template(learned.template, self.output)
        print(f"{self.output}: the template fits {learned.n_fitting} of {learned.n_rows} rows of {self.messages}")
        if prefix := learned.template.assistant_prefix:
            print(f"{learned.n_prefixed} of their answers start with the assistant prefix {prefix!r}")
        for reason in learned.misfits:
            print(f"does not fit: {reason}")


class StudyLengths(Command):
    """Compare prompt lengths with the model's window: lengths.md, .csv, .png, .svg.

    Example:
        arc-refinery report lengths --prompts mine/turn1/prompts.parquet --max-model-len 1024 --output mine/lengths
    """

    prompts: Files  # files of prompts, of any turn
    max_model_len: config.PositiveInt  # longest prompt and completion together, in tokens
    output: Path  # folder to write them to

    def writes(self) -> Outputs:
        whole = self.output / "lengths"
        files = [page(whole.with_suffix(".md"), "Prompt lengths"), csv(whole.with_suffix(".csv"), "prompts,turn,n,")]
        return {"output": [*files, *picture(whole.with_suffix(".png"))]}

    def run(self) -> None:
        from arc_refinery.refining.report.lengths import study

        study(self.prompts, self.max_model_len, self.output)
