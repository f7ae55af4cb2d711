"""Commands that write prompts or study their lengths."""

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from arc_refinery import config
from arc_refinery.branch_files import BranchFiles
from arc_refinery.commands.flags import Command, Files, RulePath
from arc_refinery.commands.outputs import Outputs, Writes, csv, folder_of_files, page, picture, records_file
from arc_refinery.config import ATTEMPTS, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.refining.commands.domain import DomainFlags
from arc_refinery.refining.config import Demonstrations, FeedbackKind, History, Sampling, Selection

if TYPE_CHECKING:
    from arc_refinery.refining.domain import Domain, GradedAttempt


class PromptFlags(DomainFlags):
    """Flags of all commands that write prompts."""

    output: Annotated[Path, RULE, Writes(records_file, "prompts")] = NEEDED  # file to write
    model_path: config.Line  # model whose tokenizer and chat template render the prompts
    template: config.LineOrNone = ""  # wording, or a folder written by `prompts export`; default: the domain's own
    overlap: Annotated[Path | None, RULE] = None  # file that `tasks overlap` wrote: its tasks are left out
    seed: config.Seed = 0  # seeds every random choice

    def wording(self, domain: "Domain", form: str = "") -> Any:
        """Load the texts of prompts."""
        return domain.wording(self.template, form)


class TurnFlags(DomainFlags):
    """Flags of all commands that read the attempts of a turn."""

    folder: RulePath = NEEDED  # the turn: prompts.parquet, attempts/<shard>.parquet, verdicts/<grading job>.parquet
    n_shards: Annotated[config.PositiveInt, TUNING]  # number of shards of that turn
    shards_per_grading_job: Annotated[config.PositiveInt, TUNING] = 1  # shards whose verdicts are in one file
    tasks_per_batch: Annotated[config.PositiveInt, TUNING] = 1  # tasks sampled together, which are in one shard

    @property
    def files(self) -> BranchFiles:
        return BranchFiles(self.folder, self.n_shards, self.shards_per_grading_job, self.tasks_per_batch)

    def reads(self) -> list[Path]:
        return [self.files.prompts]  # the command writes such files, too


class NextTurnFlags(PromptFlags, TurnFlags):
    """Flags of all commands that write prompts from the attempts of a turn."""

    n_considered: config.PositiveInt  # attempts per task that may be used, from the first
    include_errors: bool = False  # also refine programs that raised an exception
    form: config.LineOrNone = ""  # form of the feedback; default: the domain's first one


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
        from arc_refinery.refining.prompts import Renderer

        domain = self.loaded()
        task_ids = records.texts(self.tasks_path, domain.task_class, "task_id")
        if not task_ids:
            raise InputError(f"{self.tasks_path}: has no tasks, so there is nothing to ask; make it again")
        excluded = left_out(self.overlap)
        if excluded.issuperset(task_ids):
            raise InputError(
                f"{self.tasks_path}: all of its {len(task_ids)} tasks are also evaluated, so they are left out "
                f"({self.overlap}); train on other tasks, or set training.evaluated_tasks: keep"
            )
        wording, renderer = self.wording(domain), Renderer(self.model_path)
        answer = self.sampling.max_output_tokens
        renderer.check_texts(domain.texts(wording), self.max_model_len - answer)
        prompts = first_turn_prompts(
            domain,
            (task for task in records.read(self.tasks_path, domain.task_class) if task.task_id not in excluded),
            self.sampling.n_predictions,
            self.sampling,
            wording,
            renderer,
            self.seed,
            self.branch,
        )
        settings = self.sampling.model_dump(exclude=config.marked(type(self.sampling), ATTEMPTS))
        settings |= {"template": domain.texts(wording), "max_model_len": self.max_model_len, "branch": self.branch}
        window = self.max_model_len
        write_prompts(domain.prompt_class, self.output, prompts, window, answer, self.seed, settings, [self.tasks_path])


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
    min_pass_rate: config.Share = 0.0  # leave out tasks where a smaller share of the attempts considered is right
    max_pass_rate: config.Share = 1.0  # leave out tasks where a larger share of them is right

    def run(self) -> None:
        from arc_refinery.refining.graded import read_graded
        from arc_refinery.refining.next_turn import NextTurnPlan, next_turn_prompts
        from arc_refinery.refining.overlap import left_out
        from arc_refinery.refining.pass_rates import with_pass_rate
        from arc_refinery.refining.prompt_files import write_prompts
        from arc_refinery.refining.prompts import Renderer

        domain = self.loaded()
        wording = self.wording(domain, self.form)
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
        renderer.check_texts(domain.texts(wording), self.max_model_len - self.max_output_tokens)
        statuses: Counter[str] = Counter()

        def graded() -> "Iterator[GradedAttempt]":
            for attempt in read_graded(domain, self.files, left_out(self.overlap)):
                statuses[attempt.verdict.status] += 1
                yield attempt

        counts: Counter[str] = Counter()
        chosen = with_pass_rate(graded(), self.min_pass_rate, self.max_pass_rate, self.n_considered, counts)
        prompts = next_turn_prompts(domain, chosen, plan, wording, renderer, counts)
        settings = self.decisive() | {"template": domain.texts(wording)}
        window, answer = self.max_model_len, self.max_output_tokens
        write_prompts(
            domain.prompt_class,
            self.output,
            prompts,
            window,
            answer,
            self.seed,
            settings,
            statuses=statuses,
            counts=counts,
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
            make_demonstrations,
        )
        from arc_refinery.refining.graded import read_graded
        from arc_refinery.refining.overlap import left_out
        from arc_refinery.refining.prompts import Renderer

        domain, renderer = self.loaded(), Renderer(self.model_path)
        wording = self.wording(domain, self.form)
        renderer.check_texts(domain.texts(wording), self.max_seq_length)
        plan = DemonstrationPlan(
            self.demonstrations,
            self.n_considered,
            self.include_errors,
            self.max_seq_length,
            self.max_completion_length,
        )
        records.check_made_from(self.files.prompts, [self.tasks_path])
        counts = Counter(n_tasks=0, n_too_easy=0, n_tasks_without_target=0, n_too_long=0)
        sources: dict[str, str] = {}
        if self.demonstrations.targets == "source":
            with domain.executors(self.sandbox, self.n_jobs) as executors:
                sources = domain.source_answers(records.read(self.tasks_path, domain.task_class), wording, executors)
        demonstrations = make_demonstrations(
            domain,
            read_graded(domain, self.files, left_out(self.overlap)),
            sources,
            plan,
            wording,
            renderer,
            counts,
            domain.may_be_learned(records.read(self.tasks_path, domain.task_class)),
        )
        settings = self.decisive() | {"template": domain.texts(wording)}
        records.write(self.output, records.Demonstration, demonstrations, self.seed, settings, lambda: dict(counts))
        logging.info("%d demonstrations; %s", records.count(self.output), dict(counts))


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


class ExportTemplate(DomainFlags):
    """Write a built-in template as a folder, to edit its wording: docs/methods.md.

    Example:
        arc-refinery prompts export --template words --output mine/words
    """

    output: Path  # folder to write; model.template can name it
    template: config.Line  # the template to write

    def files(self) -> list[str]:
        """Names of the files of a template."""
        raise InputError(f"the domain {self.domain} has no wording that can be edited")

    def writes(self) -> Outputs:
        return {"output": [folder_of_files(self.output, "a template", self.files())]}

    def run(self) -> None:
        domain = self.loaded()
        domain.save_wording(domain.wording(self.template, ""), self.output)
        print(f"{self.output}: edit its texts, and set model.template to this folder")
