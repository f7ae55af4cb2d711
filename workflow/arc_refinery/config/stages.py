"""Flags of each stage: those that change its result, and others.

    sample(experiment, "heldout", "turn1") == Stage(
        params={"base_model_path": "workflow/models/tiny", "max_model_len": 1024, ..., "temperature": 1.0, "seed": 0},
        tuning={"gpu_memory_utilization": 0.9},
    )

Snakemake makes a result again when its `params` change. `tuning` may change between two runs of one stage: sampling
that ran out of memory continues with another value.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, NamedTuple

from arc_refinery.config import inputs
from arc_refinery.config.base import EPISODES, EVALUATION, PROMPTS, REPORT, ROWS, TUNING, marked, run_and_step
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.loading import part
from arc_refinery.config.lora import Lengths
from arc_refinery.config.refining import Refining
from arc_refinery.config.sampling import ModelConfig, PromptedModel
from arc_refinery.config.tasks import DIFFICULTY, Problems
from arc_refinery.config.tool_use import Questions, ToolChoice, ToolUse
from arc_refinery.config.training import Run

Settings = dict[str, Any]


class Stage(NamedTuple):
    params: Settings
    tuning: Mapping[str, Any] = MappingProxyType({})


def command_line(settings: Mapping[str, Any]) -> str:
    """Settings as flags, quoted for a shell."""
    return shlex.join(flag_words(settings))


def flag_words(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the words of flags; those of a section in them are `--section.key`."""
    words: list[str] = []
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
                words += flag_words({f"{name}.{key}": inner for key, inner in value.items()})
            case _:
                words += [f"--{flag}", str(value)]
    return words


def _on_disk(experiment: Experiment, source: Problems | Questions) -> Settings:
    """Settings of problems or questions, in which a file that is fetched takes the place of its name on the hub."""
    settings = source.model_dump(exclude=marked(type(source), TUNING, EPISODES))
    if source.download:
        path = f"{inputs.fetched_folder(experiment, source.download)}/{source.filename}"
        settings |= {"source": "file", "path": path, "repository": None, "filename": None, "revision": None}
    return settings


# Stages of every experiment


def settings_text(experiment: Experiment) -> str:
    """The validated configuration as JSON, without what changes no result."""
    return json.dumps(experiment.model_dump(mode="json", exclude={"resources", "compare"}), indent=1)


def fetch(experiment: Experiment, repository: str) -> Stage:
    (download,) = (one for one in experiment.downloads if one.path == repository)
    return Stage(asdict(download))


def sft(experiment: Experiment, adapter: str) -> Stage:
    model, training = experiment.model, experiment.training
    assert training and training.sft
    rest = marked(type(training.sft), TUNING, ROWS)
    params = {
        "model_path": inputs.model_path(experiment, model),
        "dtype": model.dtype,
        "n_threads": model.n_threads,
        **training.lora.model_dump(),
        **training.sft.model_dump(exclude=rest),
        "seed": experiment.seed_of(adapter),
    }
    return Stage(params, _tuning(training.sft))


def training_job(experiment: Experiment, adapter: str) -> Stage:
    """Flags of the job that ends with an adapter: a whole training, or its part up to a kept step (`trained@1000`)."""
    run, step = run_and_step(adapter)
    stage: Stage = part(experiment.kind, "stages").train(experiment, run)
    return stage._replace(params=stage.params | {"until_step": step})


def train_refining(experiment: Refining, adapter: str) -> Stage:
    training, run, sandbox = experiment.training, experiment.runs[adapter], experiment.sandbox
    assert training
    params = {
        "model_path": inputs.model_path(experiment, experiment.model),
        "template": inputs.template(experiment),
        "colors": experiment.model.colors,
        **experiment.refinement.model_dump(include={"include_errors", "form"}),
        **training.model_dump(include=set(Lengths.model_fields)),
        "code_execution_cpu_seconds": sandbox.cpu_seconds,
        "code_execution_wall_seconds": sandbox.wall_seconds,
        "code_execution_memory_limit_mb": sandbox.memory_mb,
        "allow_without_seccomp": sandbox.allow_without_seccomp,
        **trained(experiment, run),
        "seed": experiment.seed_of(adapter),
    }
    return Stage(params, _tuning(run.grpo))


def train_tool_use(experiment: ToolUse, adapter: str) -> Stage:
    run = experiment.runs[adapter]
    chosen = [tool for one in experiment.data.train for tool in experiment.tools_of(one.name)]
    tools = _tools(experiment, experiment.tools) | _tools_of_sets(experiment) | _files(experiment, chosen)
    users = _users(experiment, [one.name for one in experiment.data.train])
    params = tools | users | trained(experiment, run) | {"seed": experiment.seed_of(adapter)}
    return Stage(params, _tuning(run.grpo))


def trained(experiment: Experiment, run: Run) -> Settings:
    """Flags of the model, the adapter, GRPO and its guard, which every kind of training has."""
    assert experiment.training
    settings = run.grpo.model_dump(exclude=marked(type(run.grpo), TUNING))
    if terms := getattr(run.grpo, "rewards", ()):
        settings["rewards"] = tuple(map(str, terms))
    settings["trl"] = tuple(str(word) for pair in run.grpo.trl.items() for word in pair) or None
    return {
        "dtype": run.dtype or experiment.model.dtype,
        "n_threads": experiment.model.n_threads,
        **run.lora.model_dump(),
        **settings,
        "guard": experiment.training.guard.model_dump(),
    }


def doctor(_: Experiment, job: str, others: Iterable[str]) -> Stage:
    return Stage({"jobs": [job], "others": list(others) or None})


def _tuning(section: Any) -> Settings:
    dumped: Settings = section.model_dump(include=marked(type(section), TUNING))
    return dumped


# Stages of refining: tasks


def wording(experiment: Refining) -> Stage:
    rows = experiment.template_rows
    assert rows
    chosen = rows.model_dump(include={"n_rows", "min_share"}) | {"colors": experiment.model.colors}
    return Stage({"messages": inputs.rows_files(experiment, rows)[0]} | chosen)


def tasks(experiment: Refining) -> Stage:
    parts, source = experiment.parts, experiment.problems
    assert parts and source
    return Stage(_on_disk(experiment, source) | {"tasks_per_part": parts.tasks_per_part, "seed": experiment.seed})


def evaluation_tasks(experiment: Refining, tasks: str) -> Stage:
    task_set = experiment.evaluation_set(tasks)
    of_set = task_set.model_dump(exclude=marked(type(task_set), TUNING, REPORT))
    if task_set.source == "generator":
        of_set["seed"] = experiment.seed if task_set.seed is None else task_set.seed
        if experiment.problems:
            of_problems = experiment.problems.model_dump(include={*DIFFICULTY, "max_cells"})
            of_set |= {key: value for key, value in of_problems.items() if of_set.get(key) is None}
    return Stage(of_set)


def overlap(experiment: Refining) -> Stage:
    if not experiment.template_rows:
        return Stage({})
    given = wording(experiment).params
    return Stage({"template": inputs.template(experiment)} | {key: given[key] for key in ("messages", "n_rows")})


# Stages of refining: prompts, attempts, verdicts


def first_prompts(experiment: Refining, tasks: str, branch: str) -> Stage:
    sampling = experiment.sampling.model_dump(
        include={"batch_size", "use_data_augmentation", "test_inputs", "max_output_tokens"}
    )
    if tasks in experiment.part_names:
        sampling["use_data_augmentation"] = experiment.augments_parts
    prompts = _prompts(experiment, experiment.sampler(tasks, branch), experiment.sampling_seed(tasks, branch))
    return Stage(prompts | sampling | {"n_predictions": experiment.first_turn_predictions(tasks, branch)})


def sample(experiment: Refining, tasks: str, branch: str) -> Stage:
    model = experiment.sampler(tasks, branch)
    params = {
        "model_path": inputs.model_path(experiment, model),
        "max_model_len": model.window,
        **_sampler(model),
        **experiment.sampling.model_dump(include={"temperature", "top_p", "max_output_tokens"}),
        "temperature": experiment.temperature(tasks, branch),
        "seed": experiment.sampling_seed(tasks, branch),
    }
    return Stage(params, _tuning(model))


def grade(experiment: Refining) -> Stage:
    return Stage(experiment.sandbox.model_dump() | {"seed": experiment.seed})


def branch_files(experiment: Refining, tasks: str) -> Stage:
    """Into how many files a branch is split."""
    return Stage({"n_shards": experiment.n_shards(tasks), "shards_per_grading_job": experiment.shards_per_grading_job})


def refining_prompts(experiment: Refining, branch: str) -> Stage:
    """How many attempts of the turn before a branch considers, and how many completions it asks for."""
    arm, number = experiment.arm_and_turn(branch)
    turn = arm.turns[number - 1]
    sizes = {
        "n_considered": arm.turns[number - 2].n_predictions,
        "n_predictions": turn.n_predictions,
        "feedback": turn.feedback,
    }
    chosen = turn.refinement(experiment.refinement).model_dump()
    prompts = _prompts(experiment, experiment.model_of(turn), experiment.seed_of_arm(arm))
    return Stage(prompts | _refining(experiment) | chosen | sizes)


def _prompts(experiment: Refining, model: PromptedModel, seed: int) -> Settings:
    return {
        "model_path": inputs.model_path(experiment, model),
        "template": inputs.template(experiment),
        "colors": model.colors,
        "max_model_len": model.window,
        "seed": seed,
    }


def _refining(experiment: Refining) -> Settings:
    sampling = experiment.sampling
    return {"max_output_tokens": sampling.max_output_tokens, "batch_size": sampling.batch_size}


def _sampler(model: ModelConfig) -> Settings:
    """A model as it samples a prompt that is written: without what has other names as flags."""
    return model.model_dump(exclude={"path", "revision", "window"} | marked(type(model), PROMPTS, TUNING))


# Stages of refining: what is trained on


def training_prompts(experiment: Refining) -> Stage:
    training = experiment.training
    assert training
    prompts = _prompts(experiment, experiment.model, experiment.seed)
    if training.prompts == "first-turn":  # each with its own augmentation
        sizes = {"n_predictions": training.prompts_per_task, "batch_size": 1}
        augmented = experiment.sampling.model_dump(include={"use_data_augmentation", "test_inputs"})
        return Stage(prompts | sizes | augmented | _window(experiment) | {"branch": "training"})
    # one per task, which refines its best incorrect attempt
    chosen = {"n_parents": 1} | experiment.refinement.model_dump(include={"include_errors", "form"})
    sizes = {"n_considered": experiment.sampling.n_predictions, "n_predictions": 1}
    return Stage(prompts | _refining(experiment) | chosen | sizes | _window(experiment) | {"branch": "training"})


def demonstrations(experiment: Refining) -> Stage:
    training, window = experiment.training, _window(experiment)
    assert training and training.sft
    prompts = _prompts(experiment, experiment.model, experiment.seed)
    del prompts["max_model_len"]
    return Stage(
        prompts
        | {"max_seq_length": window["max_model_len"], "max_completion_length": window["max_output_tokens"]}
        | {"n_considered": experiment.sampling.n_predictions}
        | experiment.refinement.model_dump(include={"include_errors", "form"})
        | training.sft.demonstrations.model_dump()
        | experiment.sandbox.model_dump()
    )


def _window(experiment: Refining) -> dict[str, int]:
    training = experiment.training
    assert training
    window = min(experiment.model.window, training.max_seq_length)
    return {"max_model_len": window, "max_output_tokens": training.max_completion_length}


# Stages of tool use


def questions(experiment: ToolUse, name: str) -> Stage:
    chosen = _on_disk(experiment, experiment.sets[name])
    return Stage(chosen | {"sandbox": experiment.sandbox.model_dump(), "seed": experiment.seed})


def conversations(experiment: ToolUse) -> Stage:
    assert experiment.training and experiment.training.sft
    chosen = experiment.training.sft.model_dump(include=marked(type(experiment.training.sft), ROWS))
    return Stage(_tools(experiment, experiment.tools) | _tools_of_sets(experiment) | chosen)


def episodes(experiment: ToolUse, questions: str, arm: str) -> Stage:
    tools = experiment.tools_of(questions) if experiment.arm(arm).tools else ()
    played = experiment.evaluation.model_dump(include={"n_predictions", "questions_per_batch"})
    drawn = {"generation": experiment.generation.model_dump()}
    users = _users(experiment, [questions] if experiment.arm(arm).user else [])
    params = _tools(experiment, tools) | _files(experiment, tools) | users | drawn | _sampler(experiment.model) | played
    return Stage(params, _tuning(experiment.model) | {"n_jobs": experiment.cpus("sample")})


def _tools(experiment: ToolUse, tools: tuple[ToolChoice, ...]) -> Settings:
    return {
        "model_path": inputs.model_path(experiment, experiment.model),
        "max_model_len": experiment.model.window,
        "tools": tuple(map(str, tools)),
        "generation": experiment.generation.model_dump(exclude=marked(type(experiment.generation), EVALUATION)),
        "sandbox": experiment.sandbox.model_dump(),
        "seed": experiment.seed,
        **({"modules_of_python": True} if experiment.modules_of_python else {}),
    }


def _tools_of_sets(experiment: ToolUse) -> Settings:
    chosen = [word for one in experiment.data.train for tool in one.tools for word in (one.name, str(tool))]
    return {"tools_of_sets": chosen} if chosen else {}


def _users(experiment: ToolUse, sets: Iterable[str]) -> Settings:
    chosen = [word for name in sets if (user := experiment.user_of(name)) for word in (name, user)]
    return {"users": chosen} if chosen else {}


def _files(experiment: ToolUse, tools: Iterable[ToolChoice]) -> Settings:
    return {"files": experiment.data.files if experiment.reads_files(tools) else None}
