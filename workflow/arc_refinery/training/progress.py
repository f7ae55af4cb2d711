"""A line of the log file for each step, where a progress bar's redrawing would not be readable."""

import logging
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

logger = logging.getLogger(__name__)


class OneLineProgress(TrainerCallback):
    def __init__(self, metrics: Mapping[str, str]) -> None:
        """`figures`: what is said of a step, by its name in TRL's log, and what it is called."""
        self.metrics = metrics

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        last = f" of {state.max_steps}" if state.max_steps else ""  # not known before the first step
        for name, words in self.metrics.items():
            if logs and name in logs:
                logger.info("step %d%s: %s %.3f", state.global_step, last, words, logs[name])
