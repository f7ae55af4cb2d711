"""The jobs of tool use, for the rules: the settings of each stage, and the files that it reads (inputs.py).

>>> import json
>>> from arc_refinery.config import load_experiment
>>> experiment = load_experiment(Path("config/tool-use-demo.yaml"), ToolUse)
>>> settings, tuning = episodes(experiment, "arithmetic", "trained")
>>> json.loads(settings)["tools"][0]["tool"], json.loads(settings)["n_predictions"], json.loads(tuning)["n_jobs"]
('calculator', 8, 1)
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arc_refinery.config import EPISODES, EVALUATION, REPORT, TUNING
from arc_refinery.jobs import Job, job, local, only, paid_in, sampling_model, trained_model, without
from arc_refinery.tool_use import inputs as inputs
from arc_refinery.tool_use.config import ToolChoice, ToolUse
from arc_refinery.tool_use.inputs import grpo_inputs as grpo_inputs
from arc_refinery.tool_use.inputs import report_inputs as report_inputs
from arc_refinery.tool_use.inputs import sft_inputs as sft_inputs


def questions(experiment: ToolUse, name: str) -> Job:
    questions = without(experiment.sets[name].completed(experiment), TUNING, EPISODES, REPORT)
    return job(experiment, questions=questions, sandbox=experiment.sandbox)


def conversations(experiment: ToolUse) -> Job:
    assert experiment.training and experiment.training.sft
    sft = experiment.training.sft
    return job(
        experiment,
        **_of_episodes(experiment, experiment.tools),
        model=only(local(experiment), "path", "window"),
        generation=without(experiment.generation, EVALUATION),
        seed=experiment.seed,
        tools_of_sets=_tools_of_sets(experiment),
        without_tools=sft.without_tools,
        n_questions=sft.n_questions,
    )


def episodes(experiment: ToolUse, questions: str, arm: str) -> Job:
    tools = experiment.tools_of(questions) if experiment.arm(arm).tools else ()
    return job(
        experiment,
        {"n_jobs": experiment.cpus("sample")} | paid_in(experiment),
        **_of_episodes(experiment, tools),
        model=sampling_model(experiment),
        generation=experiment.generation,
        seed=experiment.seed,
        files=_files(experiment, tools),
        given=experiment.arm(arm).given,
        n_predictions=experiment.evaluation.n_predictions,
        questions_per_batch=experiment.evaluation.questions_per_batch,
    )


def training(experiment: ToolUse, run: str) -> dict[str, Any]:
    """Return the settings of a training with GRPO that only tool use has."""
    names = [train_set.name for train_set in experiment.data.train]
    tools = [tool for name in names for tool in experiment.tools_of(name)]
    return {
        **_of_episodes(experiment, experiment.tools),
        "model": trained_model(experiment, experiment.model.window, run),
        "generation": without(experiment.generation, EVALUATION),
        "tools_of_sets": _tools_of_sets(experiment),
        "files": _files(experiment, tools),
    }


def _of_episodes(experiment: ToolUse, tools: tuple[ToolChoice, ...]) -> dict[str, Any]:
    return {"tools": tools, "sandbox": experiment.sandbox, "modules_of_python": experiment.modules_of_python}


def _tools_of_sets(experiment: ToolUse) -> dict[str, tuple[ToolChoice, ...]]:
    """The tools of training sets that have their own."""
    return {train_set.name: train_set.tools for train_set in experiment.data.train if train_set.tools}


def _files(experiment: ToolUse, tools: Iterable[ToolChoice]) -> Path | None:
    files = experiment.data.files
    return Path(files) if files and experiment.reads_files(tools) else None
