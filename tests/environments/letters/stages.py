"""Stages of the shared rules `train` and `report`."""

from arc_refinery.commands.stages import training_settings

from .commands import Train
from .config import Experiment


def grpo_inputs(_: Experiment) -> dict[str, list[str]]:
    return {"data": ["<results>/words.txt"]}


def report_inputs(_: Experiment) -> list[str]:
    return []


def train(experiment: Experiment, adapter: str) -> Train:
    return Train(**training_settings(experiment, adapter), window=experiment.model.window)
