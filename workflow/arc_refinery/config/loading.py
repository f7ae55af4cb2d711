"""Reading a configuration; all that is wrong with it is said before the first job."""

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from arc_refinery.config.base import ConfigError, explain
from arc_refinery.config.experiment import Experiment
from arc_refinery.prompts import template_files

_HUB_NAME = re.compile(r"^[\w.-]+/[\w.-]+$")


def validate(config: dict[str, Any], origin: str) -> Experiment:
    """The experiment that a mapping describes; raises `ConfigError` with one line for each wrong key of `origin`."""
    try:
        return Experiment.model_validate(config)
    except ValidationError as error:
        lines = [explain(problem) for problem in error.errors()]
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
    for key, model in experiment.all_models.items():
        if not _HUB_NAME.match(model.path):
            folder = Path(model.path, "config.json")
            wanted.append((f"{key}.path", folder, "a folder with a model, or a hub name"))
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
