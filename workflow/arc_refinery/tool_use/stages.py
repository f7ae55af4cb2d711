"""Tool use, for the shared rules: files that they read, and the flags of a training."""

from arc_refinery.config import stages
from arc_refinery.tool_use import inputs as inputs
from arc_refinery.tool_use.inputs import grpo_inputs as grpo_inputs
from arc_refinery.tool_use.inputs import report_inputs as report_inputs
from arc_refinery.tool_use.inputs import sft_inputs as sft_inputs

train = stages.train_tool_use
