"""Callbacks of the trainers: one log line per step, the guard, checkpoints; trackers."""

import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.integrations import TrackioCallback

from arc_refinery.config import Guard, PolicyGradient
from arc_refinery.errors import InputError
from arc_refinery.runs.screen import duration
from arc_refinery.training import checkpoints
from arc_refinery.training.adapters import fault_of_adapter
from arc_refinery.training.log import Symptom, first_symptom, symptom

PROJECT = "arc-refinery"  # name in the trackers

logger = logging.getLogger(__name__)


class OneLineProgress(TrainerCallback):
    """Logs one line per step, with the time left: progress bars are unreadable in log files.

    The time left counts all steps alike, with what was done between them.
    """

    def __init__(self, metrics: Mapping[str, str]) -> None:
        """`metrics` maps names in TRL's log to the words that are logged."""
        self.metrics = metrics
        self.began = (0.0, 0)  # when this process began, and after which step

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = (time.monotonic(), state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        last = f" of {state.max_steps}" if state.max_steps else ""  # unknown before the first step
        for name, words in self.metrics.items():
            if logs and name in logs:
                logger.info("step %d%s: %s %.3f%s", state.global_step, last, words, logs[name], self._left(state))

    def _left(self, state: Any) -> str:
        began, first = self.began
        if not first < state.global_step < state.max_steps:
            return ""
        seconds = (time.monotonic() - began) / (state.global_step - first) * (state.max_steps - state.global_step)
        return f", about {duration(seconds)} left"


class CollapseWatcher(TrainerCallback):
    """Keeps the first symptom of a collapse, and ends the training there unless `guard.action` is none."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self.symptom: Symptom | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.guard.action == "none":  # else no training continues after a collapse
            self.symptom = first_symptom(_steps(state), self.guard)

    def on_log(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        steps = _steps(state)
        if self.symptom is None and steps and steps[-1]["step"] == state.global_step:
            fault = fault_of_adapter(model)  # a step can break the weights, though its own loss was finite
            if fault and self.guard.action == "none":
                raise InputError(
                    f"step {state.global_step}: {fault}, and guard.action is none; lower learning_rate or max_grad_norm"
                )
            self.symptom = Symptom(state.global_step, "loss", math.nan, 0.0) if fault else symptom(steps, self.guard)
            ended = self.symptom is not None and self.guard.action != "none"
            control.should_training_stop |= ended
            control.should_save &= not ended  # a run resumed from there would continue


class EndsPart(TrainerCallback):
    """Ends a part of a training with its last step."""

    def __init__(self, until_step: int) -> None:
        self.until_step = until_step

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.until_step > state.max_steps:
            raise InputError(
                f"until_step is {self.until_step}, but the training ends after step {state.max_steps}; lower it, "
                "or remove that step from training.keep_steps"
            )
        control.should_training_stop |= state.global_step >= self.until_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop |= state.global_step == self.until_step


KEEP_BEST = 2  # checkpoints with the best held-out reward, in addition to the newest


class KeepsCheckpoints(TrainerCallback):
    """Evaluates the last step too, and removes the checkpoints that are not needed any more.

    `at_start` are held-out metrics from before the first step: transformers begins an empty log after that.
    """

    def __init__(self, training: PolicyGradient, guard: Guard, at_start: dict[str, float] | None = None) -> None:
        self.training = training
        self.at_start = at_start
        self.window = guard.window + training.steps_per_batch - 1

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.at_start:
            state.log_history.insert(0, self.at_start | {"step": 0})

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_evaluate |= state.global_step == state.max_steps and self.training.n_heldout > 0

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            rewards = {entry["step"]: entry["eval_reward"] for entry in state.log_history if "eval_reward" in entry}
            folder, save_steps = Path(args.output_dir), self.training.save_steps
            checkpoints.prune(folder, rewards, KEEP_BEST, save_steps, state.global_step, self.window)


def _steps(state: Any) -> list[dict[str, Any]]:
    return [entry for entry in state.log_history if "reward" in entry]


def begin_trackers(output: Path, tensorboard: Path, identity: str) -> dict[str, str]:
    """Set the trackers' environment variables; return keywords of `trl.GRPOConfig`: trackio's project, the run's name.

    TensorBoard gets its folder. wandb stays offline unless the user wants it online. An interrupted training resumes
    its run, by `identity`, the hash of its settings and data; all parts of it (`trained@1000`, `trained`) are one run.
    """
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(tensorboard)
    os.environ.setdefault("WANDB_MODE", "offline")
    os.environ.setdefault("WANDB_PROJECT", PROJECT)
    os.environ.setdefault("WANDB_RUN_ID", identity)
    os.environ.setdefault("WANDB_RESUME", "allow")
    return {"project": PROJECT, "run_name": f"{output.with_name(output.name.partition('@')[0])} {identity[:8]}"}


def begin_trackio(trainer: Any) -> None:
    """Begin trackio's run now, not with the first step: TRL logs how long it samples before, on held-out prompts."""
    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TrackioCallback):
            callback.setup(trainer.args, trainer.state, trainer.model)
