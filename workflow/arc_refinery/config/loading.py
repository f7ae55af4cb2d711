"""Read and validate a configuration; all its faults are reported before the first job."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from arc_refinery.config.base import ConfigError, Strict, explain
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.resources import Resources
from arc_refinery.config.sampling import LEARNED, Network
from arc_refinery.config.tool_use import ToolUse
from arc_refinery.prompts import template_files

Kind = TypeVar("Kind", bound=Strict)


def validate(config: dict[str, Any], origin: str) -> Experiment:
    """Return the experiment that a mapping describes; raise `ConfigError` with one line per wrong key of `origin`."""
    return _validated(Experiment, config, origin)


def validate_tool_use(config: dict[str, Any], origin: str) -> ToolUse:
    """Return the tool-use experiment that a mapping describes; raises as `validate` does."""
    return _validated(ToolUse, config, origin)


def load(path: Path) -> Experiment:
    """Read and validate a config file."""
    return validate(_content(path), str(path))


def load_tool_use(path: Path) -> ToolUse:
    """Read and validate the config file of a tool-use experiment."""
    return validate_tool_use(_content(path), str(path))


def load_either(path: Path) -> Experiment | ToolUse:
    """Read and validate a config file of either kind; only tool-use experiments have a section `data`."""
    content = _content(path)
    return validate_tool_use(content, str(path)) if "data" in content else validate(content, str(path))


def _validated(kind: type[Kind], config: dict[str, Any], origin: str) -> Kind:
    try:
        return kind.model_validate(config)
    except ValidationError as error:
        # pydantic also calls a list empty if its only item is wrong
        problems = [one for one in error.errors() if one["type"] != "too_short" or not one["input"]]
        lines = [explain(problem) for problem in problems]
        raise ConfigError("\n".join(f"{origin}: {line}" for line in lines)) from None


def _content(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a config with --configfile") from None
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(content).__name__}")
    return content


def check_files(experiment: Experiment, origin: str) -> None:
    """Raise `ConfigError` if files or folders that the config names do not exist."""
    wanted = [_model_folder(key, model) for key, model in experiment.all_models.items()]
    what = "a file of a folder that `arc-refinery prompts learn` wrote, or the template `compact`, `words` or `learned`"
    if experiment.model.template != LEARNED:
        wanted += [("model.template", path, what) for path in template_files(experiment.model.template)[:1]]
    if experiment.template_rows and experiment.template_rows.path:
        wanted.append(("template_rows.path", Path(experiment.template_rows.path), "rows, or a folder of them"))
    if experiment.problems and experiment.problems.source == "file":
        wanted.append(("problems.path", Path(str(experiment.problems.path)), "a file of BARC rows"))
    for number, task_set in enumerate(experiment.evaluation.sets):
        if task_set.only:
            wanted.append((f"evaluation.sets.{number}.only", Path(task_set.only), "a text file of task ids"))
        if task_set.path:
            wanted.append((f"evaluation.sets.{number}.path", Path(task_set.path), "a JSON file of tasks"))
        if task_set.solutions:
            wanted.append((f"evaluation.sets.{number}.solutions", Path(task_set.solutions), "a JSON file of outputs"))
    _require([*wanted, *_environments(experiment.resources)], origin)


def check_tool_use_files(experiment: ToolUse, origin: str) -> None:
    """Raise `ConfigError` if files or folders that the config names do not exist."""
    wanted = [_model_folder("model", experiment.model)]
    for side in ("train", "heldout"):
        for number, questions in enumerate(getattr(experiment.data, side)):
            if questions.source == "file":
                wanted.append((f"data.{side}.{number}.path", Path(questions.path), f"rows of {questions.form}"))
    if experiment.data.files:
        wanted.append(("data.files", Path(experiment.data.files), "a folder with one folder per question"))
    _require([*wanted, *_environments(experiment.resources)], origin)


Wanted = tuple[str, Path, str]  # config key, path that must exist, what it should be


def _model_folder(key: str, model: Network) -> Wanted:
    """The model's config.json; for hub names, a path that always exists."""
    folder = Path() if model.download else Path(model.path, "config.json")
    return f"{key}.path", folder, "a folder with a model, or a hub name"


def _environments(resources: Resources) -> list[Wanted]:
    what = "a virtual environment with this package (pip install -e . with its pip)"
    venvs = {kind: getattr(resources, kind).venv for kind in ("sample", "train")}
    return [(f"resources.{kind}.venv", Path(venv, "bin", "arc-refinery"), what) for kind, venv in venvs.items() if venv]


def _require(wanted: list[Wanted], origin: str) -> None:
    if missing := [(key, path, what) for key, path, what in wanted if not path.exists()]:
        raise ConfigError(
            "\n".join(f"{origin}: {key}: {path} does not exist; expected {what}" for key, path, what in missing)
        )
