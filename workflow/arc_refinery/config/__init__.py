"""The experiment's configuration: every key with its type, default and meaning, one module per group of sections.

The JSON schema and the tables of config/README.md are generated from these models (`arc-refinery dev config`).
"""

from arc_refinery.config.arms import BaseArm, Compared
from arc_refinery.config.base import (
    ATTEMPTS,
    EPISODES,
    EVALUATION,
    GRADING,
    PROMPTS,
    REPORT,
    ROWS,
    TUNING,
    ConfigError,
    Gigabytes,
    Line,
    LineOrNone,
    Mark,
    Mass,
    NonNegativeInt,
    OfMemory,
    PositiveFloat,
    PositiveInt,
    Seed,
    Share,
    Temperature,
    Threads,
    explain,
    marked,
)
from arc_refinery.config.experiment import CpuNeeds, Experiment, Needs, Resources
from arc_refinery.config.grpo import PolicyGradient
from arc_refinery.config.layers import read_yaml
from arc_refinery.config.loading import (
    DOMAINS,
    KINDS,
    check_files,
    domain_part,
    environment_warnings,
    experiment_class,
    load_experiment,
    part,
    validate_experiment,
)
from arc_refinery.config.lora import Imitation, Lengths, Lora, Optimizer, OptimizerName
from arc_refinery.config.rewards import RewardTerm
from arc_refinery.config.sampling import (
    BACKENDS,
    HUB_NAME,
    BackendName,
    Dtype,
    Megabytes,
    ModelConfig,
    Sandbox,
    Seconds,
)
from arc_refinery.config.training import Guard, GuardAction, Methods, check_weights
