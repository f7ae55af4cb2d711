"""The experiment's configuration: every key with its type, default and meaning, a module for each group of sections.

The JSON schema and the tables of config/README.md are generated from these models (`arc-refinery config`).
"""

from arc_refinery.config.base import ConfigError
from arc_refinery.config.evaluation import Arm, Evaluation, Turn
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.loading import check_files, load, validate
from arc_refinery.config.resources import ModelNeeds, Needs, Resources
from arc_refinery.config.sampling import CHANGE_NO_COMPLETION, Model, Refinement, Sampling, Sandbox
from arc_refinery.config.tasks import Parts, Problems, TaskSet
from arc_refinery.config.training import CHANGE_NO_ADAPTER, Grpo, Training

__all__ = [
    "CHANGE_NO_ADAPTER",
    "CHANGE_NO_COMPLETION",
    "Arm",
    "ConfigError",
    "Evaluation",
    "Experiment",
    "Grpo",
    "Model",
    "ModelNeeds",
    "Needs",
    "Parts",
    "Problems",
    "Refinement",
    "Resources",
    "Sampling",
    "Sandbox",
    "TaskSet",
    "Training",
    "Turn",
    "check_files",
    "load",
    "validate",
]
