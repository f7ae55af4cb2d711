"""Training log as tables."""

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from arc_refinery.training.log import Choice, Decision, HeldoutResult, LoggedStep, read_lines
from arc_refinery.training.rewards import REWARD_TERM


@dataclass(slots=True)
class Log:
    """Parsed training log."""

    steps: pd.DataFrame = field(default_factory=pd.DataFrame)  # in order: `step`, all metrics
    checks: list[HeldoutResult] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    choice: Choice | None = None

    @property
    def is_grpo(self) -> bool:
        return "reward" in self.steps

    @property
    def window(self) -> int:
        """Number of steps in a mean: a tenth of all."""
        return max(1, len(self.steps) // 10)

    @property
    def reward_terms(self) -> list[str]:
        """Metrics that are terms of the reward."""
        return [str(name) for name in self.steps if str(name).startswith(REWARD_TERM)]

    def first_and_last(self, metric: str) -> tuple[float, float]:
        """Return the means of a metric over the first and the last tenth of the steps; nan if it is missing there."""
        values = self.steps[metric]
        return float(values.iloc[: self.window].mean()), float(values.iloc[-self.window :].mean())


def read_log(path: Path) -> Log:
    """Read a training.jsonl; raises `RecordError`."""
    log = Log()
    steps: list[LoggedStep] = []
    for line in read_lines(path):
        match line:
            case HeldoutResult():
                log.checks.append(line)
            case Decision():
                log.decisions.append(line)
            case Choice():
                log.choice = line
            case dict() if "reward" in line or "loss" in line:  # other lines are summaries
                steps.append(line)
            case _:
                pass
    log.steps = pd.DataFrame(steps).apply(pd.to_numeric)  # values that are not finite are null in the log, nan here
    return log
