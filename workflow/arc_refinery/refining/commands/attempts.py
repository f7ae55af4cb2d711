"""Commands that sample and grade attempts, and execute programs. The flags of `sample` keep the published names."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from arc_refinery import config
from arc_refinery.commands.flags import MODEL, PUBLISHED_MODEL, Command, RuleFiles, RulePath, ShardFlags
from arc_refinery.commands.outputs import Outputs, Writes, lines, records_file
from arc_refinery.config import RULE
from arc_refinery.config.flags import FLAT, NEEDED
from arc_refinery.errors import InputError, NoRoomError
from arc_refinery.refining.commands.domain import DomainFlags

if TYPE_CHECKING:
    from arc_refinery.records import Prompt


class SampleAttempts(DomainFlags, ShardFlags):
    r"""Sample completions for a shard of prompts; an interrupted run resumes.

    Defaults are those of the published scripts, whose names of flags work, too. In an experiment, a key that is left
    out has the default of config/README.md, which may be another one (docs/methods.md).

    Example:
        arc-refinery sample --dataset-path mine/turn1/prompts.parquet --model-path workflow/models/tiny \
            --max-model-len 1024 --max-output-tokens 48 --output mine/turn1/attempts
    """

    dataset_path: RulePath = NEEDED  # prompts
    model_path: config.Line = Field(PUBLISHED_MODEL, description=MODEL)
    max_model_len: config.PositiveInt = 9700  # longest prompt and completion together, in tokens
    max_output_tokens: config.PositiveInt = 1024  # longest completion, in tokens
    tasks_per_batch: config.PositiveInt = 1  # tasks whose prompts transformers samples together
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

        domain, model = self.loaded(), self.sampler()
        decoding = Decoding(self.temperature, self.top_p, self.max_output_tokens, self.seed)
        prompts = shard_of(self._fitting(), self.shard, self.n_shards, self.tasks_per_batch)
        attempts = sample_shard(domain, prompts, model, self.lora_path, decoding, self.shard_file, self.tasks_per_batch)
        settings = {**attempt_settings(model, decoding, self.tasks_per_batch), "lora_path": self.lora_path}
        records.write(
            self.shard_file, domain.attempt_class, attempts, self.seed, settings, made_from=[self.dataset_path]
        )
        progress_path(self.shard_file).unlink()

    def prompts(self) -> "Iterator[Prompt]":
        from arc_refinery import records

        return records.read(self.dataset_path, self.loaded().prompt_class)

    def _fitting(self) -> "list[Prompt]":
        from arc_refinery.refining.prompt_files import MAKE_ROOM

        prompts = list(self.prompts())
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


class GradeAttempts(DomainFlags):
    r"""Execute the programs of attempts in the sandbox and grade their outputs.

    Example:
        arc-refinery grade --attempts mine/turn1/attempts/000.parquet --tasks-path mine/part1.parquet \
            --output mine/turn1/verdicts/000.parquet
    """

    attempts: RuleFiles = NEEDED  # files of attempts
    tasks_path: RulePath = NEEDED  # file of the tasks that they answer
    output: Annotated[Path, RULE, Writes(records_file, "verdicts")] = NEEDED  # file of verdicts to write
    sandbox: Annotated[config.Sandbox, FLAT]
    n_jobs: Annotated[config.PositiveInt, RULE] = 1  # sandbox servers
    seed: config.Seed = 0  # recorded in the file

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.refining.graded import check_tasks
        from arc_refinery.refining.grading import grade_attempts

        domain = self.loaded()
        tasks = {task.task_id: task for task in records.read(self.tasks_path, domain.task_class)}
        check_tasks(self.attempts, self.tasks_path, tasks)
        self.prepare(domain, tasks)
        attempts = (attempt for _, attempt in records.read_all(self.attempts, domain.attempt_class))
        n_attempts = sum(map(records.count, self.attempts))
        with domain.executors(self.sandbox, self.n_jobs) as executors:
            verdicts = grade_attempts(domain, attempts, tasks, executors, n_attempts)
            settings = self.sandbox.model_dump()
            records.write(self.output, domain.verdict_class, verdicts, self.seed, settings, made_from=self.attempts)

    def prepare(self, domain: Any, tasks: Mapping[str, Any]) -> None:
        """Check more, and give the domain what else it needs than the tasks."""


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
