"""Log one line per step: progress bars are unreadable in log files."""

import logging
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

logger = logging.getLogger(__name__)


class OneLineProgress(TrainerCallback):
    def __init__(self, metrics: Mapping[str, str]) -> None:
        """`metrics` maps names in TRL's log to the words that are logged."""
        self.metrics = metrics

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        last = f" of {state.max_steps}" if state.max_steps else ""  # unknown before the first step
        for name, words in self.metrics.items():
            if logs and name in logs:
                logger.info("step %d%s: %s %.3f", state.global_step, last, words, logs[name])
