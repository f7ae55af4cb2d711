# Functions only: what the tool-use rules need from the configuration.
from pathlib import Path

from arc_refinery.config import CHANGE_NO_ADAPTER, CHANGE_NO_COMPLETION, OF_EVALUATION


def questions_called(wildcards):
    return experiment.sets[wildcards.get("heldout") or wildcards.get("train") or wildcards.get("questions")]


def question_files(wildcards) -> list[str]:
    return rows_files(questions_called(wildcards))


def question_flags(wildcards) -> str:
    settings = on_disk(questions_called(wildcards))
    settings.pop("shards")
    return flags(settings | {"sandbox": experiment.sandbox.model_dump(), "seed": experiment.seed})


def question_shards(wildcards) -> int:
    return questions_called(wildcards).shards


def files_to_read() -> list[str]:
    """All that `read_file` can read: a folder's own time says nothing of the files in it."""
    if "read_file" not in experiment.tools or not experiment.data.files:
        return []
    return sorted(str(path) for path in Path(experiment.data.files).rglob("*") if path.is_file())


def training_questions_files() -> list[str]:
    return [f"<results>/questions/{one.name}.parquet" for one in experiment.data.train]


def all_episodes(wildcards) -> list[str]:
    """The episodes that the report compares."""
    return [
        f"<results>/{one.name}/{arm.name}/{shard:03d}.parquet"
        for one in experiment.data.heldout
        for arm in experiment.evaluation.arms
        for shard in range(one.shards)
    ]


def arm_called(name: str):
    return next(arm for arm in experiment.evaluation.arms if arm.name == name)


def arm_adapter(wildcards) -> list[str]:
    name = arm_called(wildcards.arm).adapter
    names = {
        "none": None,
        "sft": experiment.sft_adapter,
        "trained": experiment.adapters[-1] if experiment.adapters else None,
    }
    return [f"<results>/adapters/{names[name]}"] if names[name] else []


# What the rules hand to the command line: everything that changes a stage's result, and nothing else.


def tool_settings(tools) -> dict:
    model = experiment.model
    return {
        "model_path": model_path(model),
        "max_model_len": model.window,
        "tools": tools,
        "generation": experiment.generation.model_dump(exclude=OF_EVALUATION),
        "sandbox": experiment.sandbox.model_dump(),
        "seed": experiment.seed,
    }


def files_setting(tools) -> dict:
    return {"files": experiment.data.files if "read_file" in tools else None}


def conversation_flags() -> str:
    chosen = experiment.training.sft.model_dump(include={"without_tools", "n_questions"})
    return flags(tool_settings(experiment.tools) | chosen)


def train_tools_flags() -> str:
    model, training = experiment.model, experiment.training
    settings = {
        **tool_settings(experiment.tools),
        **files_setting(experiment.tools),
        "dtype": model.dtype,
        "n_threads": model.n_threads,
        **training.model_dump(exclude={"train", "sft", "guard"} | CHANGE_NO_ADAPTER),
        "guard": training.guard.model_dump(),
    }
    return flags(settings)


def episode_flags(wildcards) -> str:
    tools = experiment.tools if arm_called(wildcards.arm).tools else ()
    model = experiment.model.model_dump(exclude={"path", "revision", "window"} | CHANGE_NO_COMPLETION)
    played = experiment.evaluation.model_dump(include={"n_predictions", "questions_per_batch"})
    drawn = {"generation": experiment.generation.model_dump()}
    return flags(tool_settings(tools) | files_setting(tools) | drawn | model | played)
