"""Check that results were made with the settings that a report or a comparison shows beside them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arc_refinery import records
from arc_refinery.branch_files import BranchFiles
from arc_refinery.config import Refining, ToolUse, inputs
from arc_refinery.records import Attempt, Episode, RecordError

_ADVICE = "Give the settings.json of the experiment that made it, or run the experiment again"
_COLUMNS = ("model", "adapter", "seed", "temperature", "top_p")


def check_branch(experiment: Refining, files: BranchFiles, tasks: str, branch: str) -> None:
    """Raise `RecordError` unless a branch's attempts were sampled with an experiment's settings, in their number."""
    expected = {
        "model": ("model.path", inputs.model_path(experiment, experiment.sampler(tasks, branch))),
        "adapter": ("adapter", experiment.adapter_of(tasks, branch) or ""),
        "seed": ("seed", experiment.sampling_seed(tasks, branch)),
        "temperature": ("sampling.temperature", experiment.temperature(tasks, branch)),
        "top_p": ("sampling.top_p", experiment.sampling.top_p),
    }
    for path in files.attempts:
        _check_rows(path, Attempt, expected)
    if branch.startswith("turn1"):
        n_predictions = experiment.first_turn_predictions(tasks, branch)
    else:
        arm, number = experiment.arm_and_turn(branch)
        n_predictions = arm.turns[number - 1].n_predictions
    _check_number(files.prompts, n_predictions)


def check_episodes(experiment: ToolUse, path: Path, arm: str) -> None:
    """Raise `RecordError` unless the episodes in a file are of this arm, as far as they say."""
    generation = experiment.generation
    expected = {
        "model": ("model.path", inputs.model_path(experiment, experiment.model)),
        "adapter": (f"the adapter of the arm {arm}", experiment.adapter_of(arm) or ""),
        "seed": ("seed", experiment.seed),
        "temperature": ("generation.temperature", generation.temperature),
        "top_p": ("generation.top_p", generation.top_p),
    }
    _check_rows(path, Episode, expected)


def check_arms_differ(experiment: ToolUse, questions: str, files: Mapping[str, list[Path]]) -> None:
    """Raise `RecordError` unless the files of an arm were made with the same settings, and other arms with others."""
    owners: dict[str, tuple[str, Path]] = {}
    for arm, paths in files.items():
        made_with = {path: records.settings_of(path) for path in paths}
        for path, settings in made_with.items():
            if settings != made_with[paths[0]]:
                raise RecordError(f"{path}: was made with other settings than {paths[0]}. {records.remake(path)}")
        other, path = owners.setdefault(made_with[paths[0]], (arm, paths[0]))
        if _settings_of_arm(experiment, questions, arm) != _settings_of_arm(experiment, questions, other):
            raise RecordError(
                f"{paths[0]}: was made with the settings of {path}, but the arms {other} and {arm} differ; one file is "
                f"a copy. {records.remake(paths[0])}"
            )


def _settings_of_arm(experiment: ToolUse, questions: str, arm: str) -> tuple[Any, ...]:
    settings = experiment.arm(arm)
    tools = experiment.tools_of(questions) if settings.tools else ()
    return tools, experiment.user_of(questions) if settings.user else None, experiment.adapter_of(arm)


def _check_rows(path: Path, cls: type[Attempt | Episode], expected: Mapping[str, tuple[str, Any]]) -> None:
    """Raise `RecordError` unless all rows have the expected values; `expected` has the config's key of each column."""
    table = records.columns(path, cls, _COLUMNS)
    for row in table.group_by(list(_COLUMNS)).aggregate([]).to_pylist():
        row["adapter"] = Path(row["adapter"]).name
        for column, (key, value) in expected.items():
            is_equal = _is_same_model(row[column], value) if column == "model" else row[column] == value
            if not is_equal:
                raise RecordError(
                    f"{path}: was made with {column} {row[column]!r}, but the settings say {value!r} ({key}). {_ADVICE}"
                )


def _is_same_model(one: str, other: str) -> bool:
    """Whether two paths name one model: folders may have moved since."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return Path(one).name == Path(other).name and not (Path(one).exists() and Path(other).exists())


def _check_number(prompts: Path, expected: int) -> None:
    """Raise `RecordError` unless the prompts of a task ask for so many completions, except those that are too long."""
    table = records.columns(prompts, records.Prompt, ["task_id", "n_predictions"])
    found = table.group_by("task_id").aggregate([("n_predictions", "sum")])["n_predictions_sum"].to_pylist()
    n = max(found, default=expected)
    if n > expected or (n < expected and not records.notes(prompts).get("n_dropped")):
        raise RecordError(
            f"{prompts}: asks for {n} completions per task, but the settings say {expected} (n_predictions). {_ADVICE}"
        )
