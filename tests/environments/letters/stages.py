"""What the shared rules `train` and `report` are given."""

from arc_refinery.config import inputs, stages

from .config import Experiment


def grpo_inputs(_: Experiment) -> dict[str, list[str]]:
    return {"data": ["<results>/words.txt"]}


def report_inputs(_: Experiment) -> list[str]:
    return []


def train(experiment: Experiment, adapter: str) -> stages.Stage:
    model = {"model_path": inputs.model_path(experiment, experiment.model), "window": experiment.model.window}
    trained = stages.trained(experiment, experiment.runs[adapter])
    return stages.Stage(model | trained | {"seed": experiment.seed_of(adapter)})
