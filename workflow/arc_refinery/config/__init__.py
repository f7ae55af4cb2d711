"""The experiment's configuration: every key with its type, default and meaning, one module per group of sections.

The JSON schema and the tables of config/README.md are generated from these models (`arc-refinery dev config`).
"""

from arc_refinery.config.arms import BaseArm, Compared
from arc_refinery.config.base import (
    EPISODES,
    EVALUATION,
    PROMPTS,
    REPORT,
    ROWS,
    TUNING,
    ConfigError,
    Mark,
    explain,
    marked,
)
from arc_refinery.config.evaluation import Arm, Evaluation, FeedbackKind, Turn
from arc_refinery.config.experiment import Experiment
from arc_refinery.config.grpo import Grpo, PolicyGradient, RewardName
from arc_refinery.config.guard import Guard, GuardAction
from arc_refinery.config.loading import check_files, files_named, load_experiment, validate_experiment
from arc_refinery.config.lora import Lengths, Lora, Optimizer, OptimizerName
from arc_refinery.config.refining import Refining
from arc_refinery.config.resources import ModelNeeds, Needs, Resources
from arc_refinery.config.rewards import RewardTerm, ToolGrpo
from arc_refinery.config.sampling import (
    LEARNED,
    Dtype,
    History,
    ModelConfig,
    PromptedModel,
    Refinement,
    Sampling,
    Sandbox,
    Selection,
    TemplateRows,
    TestInputs,
)
from arc_refinery.config.sft import Demonstrations, Imitation, Sft
from arc_refinery.config.tasks import CONCEPTS, DIFFICULTY, Parts, Problems, TaskSet
from arc_refinery.config.tool_use import (
    Generation,
    Questions,
    ToolArm,
    ToolChoice,
    ToolSft,
    ToolTraining,
    ToolUse,
)
from arc_refinery.config.training import SFT, TRAINED, Methods, Run, Training, check_weights
from arc_refinery.config.users import User
from arc_refinery.config.yaml_files import read_yaml
from arc_refinery.prompts import FeedbackForm

__all__ = [
    "CONCEPTS",
    "DIFFICULTY",
    "EPISODES",
    "EVALUATION",
    "LEARNED",
    "PROMPTS",
    "REPORT",
    "ROWS",
    "SFT",
    "TRAINED",
    "TUNING",
    "Arm",
    "BaseArm",
    "Compared",
    "ConfigError",
    "Demonstrations",
    "Dtype",
    "Evaluation",
    "Experiment",
    "FeedbackForm",
    "FeedbackKind",
    "Generation",
    "Grpo",
    "Guard",
    "GuardAction",
    "History",
    "Imitation",
    "Lengths",
    "Lora",
    "Mark",
    "Methods",
    "ModelConfig",
    "ModelNeeds",
    "Needs",
    "Optimizer",
    "OptimizerName",
    "Parts",
    "PolicyGradient",
    "Problems",
    "PromptedModel",
    "Questions",
    "Refinement",
    "Refining",
    "Resources",
    "RewardName",
    "RewardTerm",
    "Run",
    "Sampling",
    "Sandbox",
    "Selection",
    "Sft",
    "TaskSet",
    "TemplateRows",
    "TestInputs",
    "ToolArm",
    "ToolChoice",
    "ToolGrpo",
    "ToolSft",
    "ToolTraining",
    "ToolUse",
    "Training",
    "Turn",
    "User",
    "check_files",
    "check_weights",
    "explain",
    "files_named",
    "load_experiment",
    "marked",
    "read_yaml",
    "validate_experiment",
]
