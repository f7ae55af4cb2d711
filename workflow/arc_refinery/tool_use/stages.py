"""Tool use, for the rules: files that they read, and the commands of its stages as far as an experiment decides them.

>>> from pathlib import Path
>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/tool-use-demo.yaml"), ToolUse)
>>> job = episodes(experiment, "arithmetic", "trained")
>>> str(job.tools[0]), job.n_predictions, job.words(tuning=True)
('calculator', 8, ['--gpu-memory-utilization', '0.9', '--n-jobs', '1'])
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arc_refinery.commands.stages import sampler_settings, training_settings
from arc_refinery.config.inputs import model_path, with_local_path
from arc_refinery.tool_use import inputs as inputs
from arc_refinery.tool_use.commands import Conversations, Episodes, TrainToolUse, WriteQuestions
from arc_refinery.tool_use.config import ToolChoice, ToolUse
from arc_refinery.tool_use.inputs import grpo_inputs as grpo_inputs
from arc_refinery.tool_use.inputs import report_inputs as report_inputs
from arc_refinery.tool_use.inputs import sft_inputs as sft_inputs


def questions(experiment: ToolUse, name: str) -> WriteQuestions:
    rows = with_local_path(experiment, experiment.sets[name])
    return WriteQuestions(questions=rows, sandbox=experiment.sandbox, seed=experiment.seed)


def conversations(experiment: ToolUse) -> Conversations:
    assert experiment.training and experiment.training.sft
    sft = experiment.training.sft
    return Conversations(
        **_episode_settings(experiment, experiment.tools),
        model_path=model_path(experiment, experiment.model),
        max_model_len=experiment.model.window,
        seed=experiment.seed,
        tools_of_sets=_tools_of_sets(experiment),
        without_tools=sft.without_tools,
        n_questions=sft.n_questions,
    )


def episodes(experiment: ToolUse, questions: str, arm: str) -> Episodes:
    tools = experiment.tools_of(questions) if experiment.arm(arm).tools else ()
    return Episodes(
        **_episode_settings(experiment, tools),
        **sampler_settings(experiment, experiment.model),
        seed=experiment.seed,
        files=_files(experiment, tools),
        n_predictions=experiment.evaluation.n_predictions,
        questions_per_batch=experiment.evaluation.questions_per_batch,
        n_jobs=experiment.cpus("sample"),
    )


def train(experiment: ToolUse, adapter: str) -> TrainToolUse:
    names = [train_set.name for train_set in experiment.data.train]
    tools = [tool for name in names for tool in experiment.tools_of(name)]
    return TrainToolUse(
        **training_settings(experiment, adapter),
        **_episode_settings(experiment, experiment.tools),
        max_model_len=experiment.model.window,
        tools_of_sets=_tools_of_sets(experiment),
        files=_files(experiment, tools),
    )


def _episode_settings(experiment: ToolUse, tools: tuple[ToolChoice, ...]) -> dict[str, Any]:
    return {
        "tools": tools,
        "generation": experiment.generation,
        "sandbox": experiment.sandbox,
        "modules_of_python": experiment.modules_of_python,
    }


def _tools_of_sets(experiment: ToolUse) -> tuple[tuple[str, ToolChoice], ...]:
    """The tools of training sets that have their own."""
    return tuple((train_set.name, tool) for train_set in experiment.data.train for tool in train_set.tools)


def _files(experiment: ToolUse, tools: Iterable[ToolChoice]) -> Path | None:
    files = experiment.data.files
    return Path(files) if files and experiment.reads_files(tools) else None
