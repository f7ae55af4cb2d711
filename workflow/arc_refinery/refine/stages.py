"""Refining, for the shared rules: files that they read, and the flags of a training."""

from arc_refinery.config import stages
from arc_refinery.refine import inputs as inputs
from arc_refinery.refine.inputs import grpo_inputs as grpo_inputs
from arc_refinery.refine.inputs import report_inputs as report_inputs
from arc_refinery.refine.inputs import sft_inputs as sft_inputs

train = stages.train_refining
