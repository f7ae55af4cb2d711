"""Commands of tool use."""

from arc_refinery.cli.tool_use import TrainToolUse as Train

__all__ = ["Train"]
