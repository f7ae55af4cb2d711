"""Where the steps of a training are logged in addition to training.jsonl: TensorBoard, wandb, trackio.

They take their settings from environment variables, which users may set, and from arguments of the trainer.
"""

import os
from pathlib import Path
from typing import Any

from transformers.integrations import TrackioCallback

PROJECT = "arc-refinery"


def set_variables(tensorboard: Path, identity: str) -> None:
    """Name the folder of TensorBoard's files; keep wandb offline unless the user wants it online.

    An interrupted training resumes its run: `identity`, the hash of its settings and data, is the run's id.
    """
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(tensorboard)
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    os.environ.setdefault("WANDB_RUN_ID", identity)
    os.environ.setdefault("WANDB_RESUME", "allow")


def arguments(output: Path, identity: str) -> dict[str, str]:
    """Keywords of `transformers.TrainingArguments`: trackio's project, and a name under which both find the run again.

    All parts of a training (`trained@1000`, `trained`) are one run.
    """
    return {"project": PROJECT, "run_name": f"{output.with_name(output.name.partition('@')[0])} {identity[:8]}"}


def begin_trackio(trainer: Any) -> None:
    """Begin trackio's run now, not with the first step: TRL logs how long it samples before, on held-out prompts."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TrackioCallback):
            callback.setup(trainer.args, trainer.state, trainer.model)
