"""Commands that sample, import and grade attempts. The flags of `sample` keep the names of the published scripts."""

import logging
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from arc_refinery import config
from arc_refinery.arc.tasks import Task
from arc_refinery.commands.flags import MODEL, PUBLISHED_MODEL, Command, RuleFiles, RulePath, ShardFlags
from arc_refinery.commands.outputs import Outputs, Writes, lines, records_file
from arc_refinery.config import RULE
from arc_refinery.config.flags import FLAT, NEEDED
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.refining.config import PromptedModel, Sampling, TestInputs

if TYPE_CHECKING:
    from arc_refinery.records import Prompt


class SampleAttempts(ShardFlags):
    r"""Sample completions for a shard of prompts; an interrupted run resumes.

    Defaults are those of the published scripts, whose names of flags work, too. In an experiment, a key that is left
    out has the default of config/README.md, which may be another one (docs/methods.md).

    Example:
        arc-refinery sample --dataset-path mine/turn1/prompts.parquet --model-path workflow/models/tiny \
            --max-model-len 1024 --max-output-tokens 48 --output mine/turn1/attempts
    """

    dataset_path: RulePath = NEEDED  # prompts; or tasks (.parquet, .json, .json.gz), which get first-turn prompts
    model_path: config.Line = Field(PUBLISHED_MODEL, description=MODEL)
    max_model_len: config.PositiveInt = 9700  # longest prompt and completion together, in tokens
    max_output_tokens: config.PositiveInt = 1024  # longest completion, in tokens
    n_predictions: config.PositiveInt = 8  # for tasks: completions per task
    batch_size: config.PositiveInt = 8  # for tasks: completions per prompt
    use_data_augmentation: bool = True  # for tasks: give each prompt its own symmetry and coloring
    test_inputs: TestInputs = "one"  # for tasks: test inputs that a prompt shows; `one` is drawn at random
    template: config.Line = "words"  # for tasks; compact for the embedded model, or a folder
    colors: tuple[str, ...] | None = None  # for tasks: ten words, for 0 to 9
    temperature: config.Temperature = 1.0  # 0: greedy
    top_p: config.Mass = 0.95  # nucleus sampling: probability mass to sample from
    seed: config.Seed = 0  # seeds every random choice

    def writes(self) -> Outputs:
        return {"output": [records_file(self.shard_file, "attempts")]}

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.attempts import attempt_settings, sample_shard, shard_of
        from arc_refinery.sampling.backends import Decoding
        from arc_refinery.sampling.shard import progress_path

        wording = {"template": self.template, "colors": self.colors}
        model = PromptedModel.model_validate(self.sampler().model_dump() | wording)
        decoding = Decoding(self.temperature, self.top_p, self.max_output_tokens, self.seed)
        prompts = shard_of(self._prompts(), self.shard, self.n_shards)
        attempts = sample_shard(prompts, model, self.lora_path, decoding, self.shard_file)
        settings = {**attempt_settings(model, decoding), "lora_path": self.lora_path}
        records.write(self.shard_file, records.Attempt, attempts, self.seed, settings, made_from=[self.dataset_path])
        progress_path(self.shard_file).unlink()

    def _prompts(self) -> "list[Prompt]":
        from arc_refinery.refining.prompt_files import MAKE_ROOM, prompts_in

        sampling = Sampling(
            n_predictions=self.n_predictions,
            batch_size=self.batch_size,
            use_data_augmentation=self.use_data_augmentation,
            test_inputs=self.test_inputs,
            max_output_tokens=self.max_output_tokens,
        )
        prompts = list(prompts_in(self.dataset_path, sampling, self.template, self.colors, self.model_path, self.seed))
        fitting = [prompt for prompt in prompts if prompt.n_tokens + self.max_output_tokens <= self.max_model_len]
        if prompts and not fitting:
            lengths = [prompt.n_tokens for prompt in prompts]
            raise NoRoomError(
                self.dataset_path, len(lengths), lengths, self.max_model_len, self.max_output_tokens, MAKE_ROOM
            )
        logging.info(
            "%d of %d prompts are too long for the window and were left out", len(prompts) - len(fitting), len(prompts)
        )
        return fitting


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
        from arc_refinery.refining.predictions import prompts_of, read_predictions

        tasks = {task.task_id: task for task in records.read(self.tasks_path, Task)}
        settings = {"model": self.model}
        records.write(self.output, records.Attempt, read_predictions(self.predictions, tasks, self.model), 0, settings)
        if self.prompts_output:
            from arc_refinery.refining.prompts import Renderer, load_template

            if not self.model_path:
                raise InputError("--prompts-output needs --model-path, whose chat template renders the prompts")
            template, attempts = load_template(self.template), records.read(self.output, records.Attempt)
            prompts = prompts_of(attempts, tasks, template, Renderer(self.model_path))
            records.write(self.prompts_output, records.Prompt, prompts, 0, {"template": asdict(template)})


class GradeAttempts(Command):
    r"""Execute the programs of attempts in the sandbox and grade their outputs.

    Example:
        arc-refinery grade --attempts mine/turn1/attempts/000.parquet --tasks-path mine/part1.parquet \
            --output mine/turn1/verdicts/000.parquet
    """

    attempts: RuleFiles = NEEDED  # files of attempts
    tasks_path: RulePath = NEEDED  # file of the tasks that they answer
    output: Annotated[Path, RULE, Writes(records_file, "verdicts")] = NEEDED  # file of verdicts to write
    sandbox: Annotated[config.Sandbox, FLAT]
    parents: RuleFiles = ()  # for --form residual-only: verdicts on the parents, whose outputs programs get
    n_jobs: Annotated[config.PositiveInt, RULE] = 1  # sandbox servers
    seed: config.Seed = 0  # recorded in the file

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.graded import check_attempts, read_outputs
        from arc_refinery.refining.grading import grade_attempts

        tasks = {task.task_id: task for task in records.read(self.tasks_path, Task)}
        outputs = None
        if self.parents:
            parent_ids = {name for path in self.attempts for name in records.texts(path, records.Attempt, "parent_id")}
            outputs = read_outputs(self.parents, parent_ids)
        check_attempts(self.attempts, self.tasks_path, tasks, outputs)
        attempts = (attempt for _, attempt in records.read_all(self.attempts, records.Attempt))
        n_attempts = sum(map(records.count, self.attempts))
        with self.sandbox.executor(self.n_jobs) as executor:
            verdicts = grade_attempts(attempts, tasks, executor, n_attempts, outputs)
            settings = self.sandbox.model_dump()
            records.write(self.output, records.Verdict, verdicts, self.seed, settings, made_from=self.attempts)


class Execute(Command):
    """Execute the programs of a JSON-lines file in the sandbox, outside any experiment.

    A line of --programs: {"program_id", "source", "inputs": [grid, ...]}. A line of --output, in the same order:
    {"program_id", "status", "outputs", "error_type", "error_message", "error_line", "cpu_seconds"}.
    --self-check instead runs small hostile programs, to test whether the sandbox keeps its promises on this machine.

    Examples:
        arc-refinery execute --self-check
        arc-refinery execute --programs mine/programs.jsonl --output mine/outcomes.jsonl
    """

    programs: Path | None = None  # JSON lines to read
    output: Annotated[Path | None, Writes(lines, "program_id", "status")] = None  # JSON lines to write
    self_check: bool = False  # print what this machine has and the hostile programs' results; exit code 1 if any is bad
    n_jobs: config.PositiveInt = 1  # programs to run at once
    sandbox: Annotated[config.Sandbox, FLAT] = config.Sandbox()

    def run(self) -> None:
        from arc_refinery.sandbox.jsonl import count_programs, execute_file

        if self.self_check:
            self._check()
            return
        if not (self.programs and self.output):
            raise InputError("give --programs and --output, or --self-check alone")
        n_programs = count_programs(self.programs)
        with self.sandbox.executor(self.n_jobs) as executor:
            execute_file(self.programs, self.output, executor, n_programs)

    def _check(self) -> None:
        from arc_refinery.sandbox.surroundings import self_check, surroundings

        if self.programs or self.output:
            raise InputError("give --programs and --output, or --self-check alone")
        machine = surroundings(self.sandbox.limits(), self.n_jobs)
        for fact in machine:  # before the sandbox is tried, because it may not start
            print(f"{'fine' if fact.is_kept else 'WRONG':8}{fact.promise:42}{fact.result}", flush=True)
        with self.sandbox.executor(self.n_jobs) as executor:
            trials = self_check(executor)
        for trial in trials:
            print(f"{'kept' if trial.is_kept else 'BROKEN':8}{trial.promise:42}{trial.result}")
        if broken := sum(not trial.is_kept for trial in trials):
            raise InputError(
                f"{broken} of {len(trials)} promises of the sandbox are broken here: on this machine, do not "
                "execute programs that you have not read (docs/internals.md)"
            )
        if wrong := [fact.promise for fact in machine if not fact.is_kept]:
            raise InputError(f"verdicts may differ here from those of other machines: {', '.join(wrong)}; see above")
