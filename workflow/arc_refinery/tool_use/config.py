"""Config of tool use."""

from arc_refinery.config.tool_use import ToolUse

Experiment = ToolUse
