"""Trackers log steps in addition to training.jsonl: TensorBoard, wandb, trackio.

They take their settings from environment variables, which users may set, and from arguments of the trainer.
"""

import os
from pathlib import Path
from typing import Any

from transformers.integrations import TensorBoardCallback, TrackioCallback, is_tensorboard_available

from arc_refinery.errors import InputError

PROJECT = "arc-refinery"


def begin(output: Path, tensorboard: Path, identity: str) -> dict[str, str]:
    """Set the trackers' variables, and return keywords of `trl.GRPOConfig`: trackio's project, and the run's name.

    TensorBoard gets its folder. wandb stays offline unless the user wants it online. An interrupted training resumes
    its run, by `identity`, the hash of its settings and data; all parts of it (`trained@1000`, `trained`) are one run.
    """
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(tensorboard)
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    os.environ.setdefault("WANDB_RUN_ID", identity)
    os.environ.setdefault("WANDB_RESUME", "allow")
    return {"project": PROJECT, "run_name": f"{output.with_name(output.name.partition('@')[0])} {identity[:8]}"}


def tensorboard(folder: Path) -> TensorBoardCallback:
    """Return the callback that logs to a folder."""
    if not is_tensorboard_available():
        raise InputError("--tensorboard: the package tensorboard is not installed; install it, or omit the flag")
    from torch.utils.tensorboard import SummaryWriter

    return TensorBoardCallback(SummaryWriter(str(folder)))


def begin_trackio(trainer: Any) -> None:
    """Begin trackio's run now, not with the first step: TRL logs how long it samples before, on held-out prompts."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TrackioCallback):
            callback.setup(trainer.args, trainer.state, trainer.model)
