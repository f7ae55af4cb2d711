# Functions only: what the rules of several stages need from the configuration.
import json
import os
import re
import shlex
from dataclasses import asdict
from pathlib import Path

from arc_refinery import hub
from arc_refinery.config import CHANGE_NO_ADAPTER, CHANGE_NO_COMPLETION, LEARNED, Imitation, Lora, Needs
from arc_refinery.prompts import template_files


def config_origin() -> str:
    """The file to blame for a wrong key."""
    files = [str(path) for path in workflow.configfiles]
    return files[-1] if files else "config/config.yaml"


def flags(settings: dict) -> str:
    """Command-line flags of a stage from a mapping of settings; those of a section in it are `--section.key`."""
    return shlex.join(_flags(settings))


def _flags(settings: dict) -> list[str]:
    words = []
    for name, value in settings.items():
        flag = name.replace("_", "-")
        match value:
            case None | "":
                continue
            case bool():
                # tyro writes the `no` of a section's flag before its last word
                section, point, key = flag.rpartition(".")
                words.append(f"--{flag}" if value else f"--{section}{point}no-{key}")
            case list() | tuple():
                words += [f"--{flag}", *map(str, value)]
            case dict():
                words += _flags({f"{name}.{key}": inner for key, inner in value.items()})
            case _:
                words += [f"--{flag}", str(value)]
    return words


def requests(wanted: Needs) -> dict:
    """Resources of a job, under the names that the executors of HTCondor and Slurm each read."""
    resources = {
        "nodes": 1,  # else Slurm might spread a job's GPUs over several nodes
        "mem_mb": wanted.mem_mb,
        "disk_mb": wanted.disk_mb,
        "runtime": wanted.runtime,
        "htcondor_request_mem_mb": wanted.mem_mb,
        "htcondor_request_disk_mb": wanted.disk_mb,
        "allowed_job_duration": wanted.runtime * 60,
    }
    if wanted.gpus:
        resources |= {"gpu": wanted.gpus, "request_gpus": wanted.gpus}
    if wanted.gpu_mem_mb:
        resources["htcondor_gpus_min_mem_mb"] = wanted.gpu_mem_mb
    if wanted.requirements:
        resources["requirements"] = wanted.requirements
    return resources


def needs(kind: str) -> dict:
    return requests(getattr(experiment.resources, kind))


def model_needs(kind: str) -> dict:
    """Resources of a job that may use an environment of its own. Not in `params`: another folder is no new setting."""
    venv = getattr(getattr(experiment.resources, kind), "venv", "")
    return needs(kind) | {"venv_on_path": f"PATH={shlex.quote(venv)}/bin:$PATH " if venv else ""}


def doctor_jobs() -> list[str]:
    """Kinds of jobs of the experiment."""
    return ["cpu", "sample", *(["train"] if experiment.training else [])]


def cpus(kind: str) -> int:
    return getattr(experiment.resources, kind).cpus


def fetched(download) -> str:
    """The folder of files that takes the place of a repository of the hub."""
    return str(hub.fetched(Path(f"results/{experiment.experiment}"), download))


def fetched_records() -> list[str]:
    return [str(hub.record_of(Path(fetched(download)))) for download in experiment.downloads]


def fetch_flags(wildcards) -> str:
    (download,) = (one for one in experiment.downloads if one.place == wildcards.repository)
    return flags(asdict(download))


def model_path(model) -> str:
    return fetched(model.download) if model.download else model.path


def model_files(model) -> list[str]:
    """The model where it is fetched: an input of all that read it."""
    return [fetched(model.download)] if model.download else []


def rows_files(source) -> list[str]:
    """Where problems, questions or rows of a template are read from: the file on disk, or the folder that is fetched."""
    if source.download:
        return [fetched(source.download)]
    return [source.path] if source.source == "file" else []


def on_disk(source) -> dict:
    """Settings of problems or questions, in which a file that is fetched takes the place of its name on the hub."""
    settings = source.model_dump()
    if source.download:
        path = f"{fetched(source.download)}/{source.filename}"
        settings |= {"source": "file", "path": path, "repository": None, "filename": None, "revision": None}
    return settings


def template() -> str:
    """The template of all prompts: its name, or its folder."""
    name = experiment.model.template
    return f"results/{experiment.experiment}/template" if name == LEARNED else name


def evaluation_set(name: str):
    return next(task_set for task_set in experiment.evaluation.sets if task_set.name == name)


def task_set_files(wildcards) -> list[str]:
    """The files that an evaluation set is read from, and the one that says which of its tasks are wanted."""
    task_set = evaluation_set(wildcards.tasks)
    return [path for path in (task_set.path, task_set.solutions, task_set.only) if path]


def n_shards(tasks: str) -> int:
    """How many sampling jobs a part or an evaluation set is split into."""
    if tasks in experiment.part_names:
        return experiment.parts.shards_per_part
    return evaluation_set(tasks).shards


def shard_count(wildcards) -> int:
    return n_shards(wildcards.tasks)


def shard_files(tasks: str, branch: str, what: str) -> list[str]:
    """Paths of all shards of the `attempts` or `verdicts` of one branch of a part or an evaluation set, in order.

    For input functions: every job on a cluster parses the rules anew, and few of them need these thousands of paths.
    """
    return [f"<results>/{tasks}/{branch}/{what}/{shard:03d}.parquet" for shard in range(n_shards(tasks))]


def refined_for_training() -> list[str]:
    """Parts or evaluation sets whose first-turn attempts become training prompts or demonstrations."""
    refines = experiment.runs and experiment.training.prompts == "second-turn"
    return experiment.training_tasks if refines or experiment.sft_adapters else []


def first_turn_predictions(wildcards) -> int:
    """Completions per task in turn 1: the arms share them, so the largest arm decides."""
    if wildcards.tasks in experiment.part_names:
        return experiment.sampling.n_predictions
    sizes = [arm.turns[0].n_predictions for arm in experiment.arms if arm.branch(1) == wildcards.branch]
    if wildcards.branch == "turn1" and wildcards.tasks in refined_for_training():
        sizes.append(experiment.sampling.n_predictions)
    return max(sizes)


def arm_and_turn(branch: str):
    """The arm and the number of the turn that a branch such as `refine-trained-turn2` belongs to."""
    found = [(arm, turn) for arm in experiment.arms for turn, name in enumerate(arm.branches, 1) if name == branch]
    if not found:
        raise WorkflowError(f"{branch} is no branch of this experiment; there are {', '.join(experiment.branches)}")
    return found[0]


def is_for_training(wildcards) -> bool:
    """Whether a branch is sampled whatever the arms are: training begins with it."""
    return wildcards.tasks in experiment.part_names or (
        wildcards.branch == "turn1" and wildcards.tasks in refined_for_training()
    )


def adapter(wildcards) -> list[str]:
    """The trained adapter where a branch is sampled with one."""
    if is_for_training(wildcards):
        return []
    arm, turn = arm_and_turn(wildcards.branch)
    name = arm.turns[turn - 1].adapter
    return [] if name == "none" else [f"<results>/adapters/{name}"]


def branch_model_files(wildcards) -> list[str]:
    return model_files(model_of(wildcards))


def model_of(wildcards):
    """What a branch is sampled with."""
    if is_for_training(wildcards):
        return experiment.model
    arm, turn = arm_and_turn(wildcards.branch)
    return experiment.model_of(arm.turns[turn - 1])


def sampling_seed(wildcards) -> int:
    return experiment.seed if is_for_training(wildcards) else experiment.seed_of_arm(arm_and_turn(wildcards.branch)[0])


def trained_adapters() -> list[str]:
    return [f"<results>/adapters/{name}" for name in experiment.adapters]


def training_prompts() -> list[str]:
    """What all GRPO trainings of the experiment are trained on."""
    tasks_of_runs = experiment.training_tasks if experiment.runs else []
    return [f"<results>/{tasks}/training/prompts.parquet" for tasks in tasks_of_runs]


def demonstration_files() -> list[str]:
    """What supervised fine-tuning learns from."""
    return [f"<results>/{tasks}/training/demonstrations.parquet" for tasks in experiment.training_tasks]


def first_turn_files(what: str):
    """Input function: the `attempts` or `verdicts` of turn 1 of a part or an evaluation set."""

    def files(wildcards) -> list[str]:
        return shard_files(wildcards.tasks, "turn1", what)

    return files


def parent_files(what: str):
    """Input function: the `attempts` or `verdicts` that a branch of turn 2 or later refines."""

    def files(wildcards) -> list[str]:
        arm, turn = arm_and_turn(wildcards.branch)
        return shard_files(wildcards.tasks, arm.branch(turn - 1), what)

    return files


def parent_prompts(wildcards) -> str:
    arm, turn = arm_and_turn(wildcards.branch)
    return f"<results>/{wildcards.tasks}/{arm.branch(turn - 1)}/prompts.parquet"


def evaluation_branches() -> list[tuple[str, str]]:
    """(evaluation set, branch) of everything that the report compares."""
    return [(task_set.name, branch) for task_set in experiment.evaluation.sets for branch in experiment.branches]


def evaluation_files(what: str):
    """Input function: all `attempts` or `verdicts` that the report compares."""

    def files(wildcards) -> list[str]:
        return [path for tasks, branch in evaluation_branches() for path in shard_files(tasks, branch, what)]

    return files


def evaluation_prompts() -> list[str]:
    """The prompts that these answer; the report says how long they are."""
    return [f"<results>/{tasks}/{branch}/prompts.parquet" for tasks, branch in evaluation_branches()]


def compared_reports(wildcards) -> list[str]:
    """The reports of the experiments to compare. Each is made with its own config: here, others have to be there."""
    if not experiment.compare:
        raise WorkflowError(
            f"{config_origin()}: compare: names no experiments; name those to compare, [demo, seeds-demo]"
        )
    for name in experiment.compare:
        if name != experiment.experiment and not Path(f"results/{name}.md").exists():
            raise WorkflowError(
                f"{config_origin()}: compare: results/{name}.md does not exist. Make it first: snakemake --cores 2"
                f" --configfile <the config that says `experiment: {name}`>"
            )
    return [f"results/{name}.md" for name in experiment.compare]


def all_prompts() -> list[str]:
    """Every file of prompts of the experiment: first turns, what is trained on, what the arms answer."""
    first = [f"<results>/{tasks}/turn1/prompts.parquet" for tasks in refined_for_training()]
    return list(dict.fromkeys([*first, *training_prompts(), *evaluation_prompts()]))


# What the rules hand to the command line, stage by stage: everything that changes a stage's result, and nothing else.


def wording_settings() -> dict:
    rows = experiment.template_rows
    chosen = rows.model_dump(include={"n_rows", "min_share"}) | {"colors": experiment.model.colors}
    return {"messages": rows_files(rows)[0]} | chosen


def problems_settings() -> dict:
    parts = experiment.parts
    n_wanted = parts.n_parts * (parts.tasks_per_part or 0)
    return on_disk(experiment.problems) | {"n_wanted": n_wanted, "seed": experiment.seed}


def task_set_flags(wildcards) -> str:
    task_set = evaluation_set(wildcards.tasks)
    generator = {}
    if task_set.source == "generator" and experiment.problems:
        generator = experiment.problems.model_dump(include={"max_side", "compositions", "max_cells"})
    return flags(task_set.model_dump(exclude={"shards", "caveat"}) | generator | {"seed": experiment.seed})


def prompt_settings(model, seed: int) -> dict:
    return {
        "model_path": model_path(model),
        "template": template(),
        "colors": model.colors,
        "max_model_len": model.window,
        "seed": seed,
    }


def first_prompts_flags(wildcards) -> str:
    sampling = experiment.sampling.model_dump(include={"batch_size", "use_data_augmentation", "max_output_tokens"})
    if wildcards.tasks in experiment.part_names:
        sampling["use_data_augmentation"] = experiment.augments_parts
    prompts = prompt_settings(model_of(wildcards), sampling_seed(wildcards))
    return flags(prompts | sampling | {"n_predictions": first_turn_predictions(wildcards)})


def sample_flags(wildcards) -> str:
    model = model_of(wildcards)
    settings = {
        "base_model_path": model_path(model),
        "max_model_len": model.window,
        **model.model_dump(exclude={"path", "revision", "window"} | CHANGE_NO_COMPLETION),
        **experiment.sampling.model_dump(include={"temperature", "top_p", "max_output_tokens"}),
        "seed": sampling_seed(wildcards),
    }
    return flags(settings)


def sample_tuning(wildcards) -> str:
    """Flags that change no completion. Not in `params`: sampling that ran out of memory goes on with another value."""
    return flags({"gpu_memory_utilization": model_of(wildcards).gpu_memory_utilization})


def adapter_flag(wildcards, input) -> str:
    return f"--lora-path {input.adapter}" if input.adapter else ""


def refine_settings() -> dict:
    return {
        "max_output_tokens": experiment.sampling.max_output_tokens,
        "batch_size": experiment.sampling.batch_size,
    }


def training_window() -> dict:
    training = experiment.training
    window = min(experiment.model.window, training.max_seq_length)
    return {"max_model_len": window, "max_output_tokens": training.max_completion_length}


def first_training_prompts_settings() -> dict:
    """First-turn prompts for training: each stands for itself, with its own augmentation."""
    sizes = {"n_predictions": experiment.training.prompts_per_task, "batch_size": 1}
    augmented = experiment.sampling.model_dump(include={"use_data_augmentation"})
    prompts = prompt_settings(experiment.model, experiment.seed)
    return prompts | sizes | augmented | training_window() | {"branch": "training"}


def next_training_prompts_settings() -> dict:
    """Second-turn prompts for training: one a task, which refines its best incorrect attempt."""
    chosen = {"n_parents": 1, "include_errors": experiment.refinement.include_errors}
    sizes = {"n_considered": experiment.sampling.n_predictions, "n_predictions": 1}
    prompts = prompt_settings(experiment.model, experiment.seed)
    return prompts | refine_settings() | chosen | sizes | training_window() | {"branch": "training"}


def demonstrations_settings() -> dict:
    window = training_window()
    prompts = prompt_settings(experiment.model, experiment.seed)
    return (
        {name: value for name, value in prompts.items() if name != "max_model_len"}
        | {"max_seq_length": window["max_model_len"], "max_completion_length": window["max_output_tokens"]}
        | {"n_considered": experiment.sampling.n_predictions, "include_errors": experiment.refinement.include_errors}
        | experiment.training.sft.demonstrations.model_dump()
        | experiment.sandbox.model_dump()
    )


def next_turn_flags(wildcards) -> str:
    """How many attempts of the turn before a branch considers, and how many completions it asks for."""
    arm, number = arm_and_turn(wildcards.branch)
    turn = arm.turns[number - 1]
    sizes = {
        "n_considered": arm.turns[number - 2].n_predictions,
        "n_predictions": turn.n_predictions,
        "feedback": turn.feedback,
    }
    chosen = turn.refinement(experiment.refinement).model_dump()
    prompts = prompt_settings(experiment.model_of(turn), experiment.seed_of_arm(arm))
    return flags(prompts | refine_settings() | chosen | sizes)


def sft_flags(wildcards) -> str:
    return flags(sft_settings(experiment.seed_of(wildcards.sft)))


def sft_settings(seed: int) -> dict:
    model, training = experiment.model, experiment.training
    return {
        "model_path": model_path(model),
        "dtype": model.dtype,
        "n_threads": model.n_threads,
        **training.model_dump(include=set(Lora.model_fields)),
        **training.sft.model_dump(include=set(Imitation.model_fields) - {"save_steps"}),
        "seed": seed,
    }


def sft_tuning() -> str:
    """Flags that change no adapter. Not in `params`: a training that was killed often goes on with another value."""
    return flags(experiment.training.sft.model_dump(include={"save_steps"}))


def train_flags(wildcards) -> str:
    model, sandbox = experiment.model, experiment.sandbox
    settings = {
        "model_path": model_path(model),
        "template": template(),
        "colors": model.colors,
        "include_errors": experiment.refinement.include_errors,
        "dtype": model.dtype,
        "n_threads": model.n_threads,
        "code_execution_cpu_seconds": sandbox.cpu_seconds,
        "code_execution_wall_seconds": sandbox.wall_seconds,
        "code_execution_memory_limit_mb": sandbox.memory_mb,
        "allow_without_seccomp": sandbox.allow_without_seccomp,
        **experiment.runs[wildcards.run].model_dump(exclude=CHANGE_NO_ADAPTER),
        "guard": experiment.training.guard.model_dump(),
        "seed": experiment.seed_of(wildcards.run),
    }
    return flags(settings)


def adapter_to_go_on_from(wildcards) -> list[str]:
    """The adapter of SFT, where GRPO follows it."""
    name = experiment.start_of(wildcards.run)
    return [f"<results>/adapters/{name}"] if name else []


def train_tuning(wildcards) -> str:
    """Flags that change no adapter. Not in `params`: a training that ran out of memory goes on with another value."""
    return flags(experiment.runs[wildcards.run].model_dump(include=CHANGE_NO_ADAPTER))


def settings_text() -> str:
    """The validated configuration, without what changes no result."""
    return json.dumps(experiment.model_dump(mode="json", exclude={"resources", "compare"}), indent=1)
