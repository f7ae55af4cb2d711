"""The config of tool use: every key with its type, default and meaning."""

from arc_refinery.tool_use.config.experiment import (
    Generation,
    Questions,
    ToolArm,
    ToolChoice,
    ToolSft,
    ToolTraining,
    ToolUse,
)
from arc_refinery.tool_use.config.rewards import EpisodeTerm, ToolGrpo

Experiment = ToolUse
