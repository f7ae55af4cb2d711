"""Commands for programs and predictions from elsewhere."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes

from arc_refinery import config
from arc_refinery.cli.command import Command
from arc_refinery.errors import InputError
from arc_refinery.outputs import Writes, lines, records_file


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
    sandbox: Annotated[config.Sandbox, OmitArgPrefixes] = config.Sandbox()

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
    # the attempts' prompts, to refine them; needs the two flags below
    prompts_output: Annotated[Path | None, Writes(records_file, "prompts")] = None
    model_path: config.Line | None = None  # model whose chat template renders the prompts
    template: config.Line = "words"  # compact, words, or a folder written by `prompts export` or `learn`

    def run(self) -> None:
        from arc_refinery import records
        from arc_refinery.arc.tasks import Task
        from arc_refinery.domains.arc.predictions import prompts_of, read_predictions
        from arc_refinery.domains.arc.records import Attempt, Prompt

        tasks = {task.task_id: task for task in records.read(self.tasks_path, Task)}
        settings = {"model": self.model}
        records.write(self.output, Attempt, read_predictions(self.predictions, tasks, self.model), 0, settings)
        if self.prompts_output:
            from arc_refinery.domains.arc.prompts import load_template
            from arc_refinery.domains.prompts import Renderer

            if not self.model_path:
                raise InputError("--prompts-output needs --model-path, whose chat template renders the prompts")
            template, attempts = load_template(self.template), records.read(self.output, Attempt)
            prompts = prompts_of(attempts, tasks, template, Renderer(self.model_path))
            records.write(self.prompts_output, Prompt, prompts, 0, {"template": asdict(template)})
