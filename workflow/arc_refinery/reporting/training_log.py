"""Training log as tables: the steps that led to its end, and those abandoned by rollbacks.

lines   steps 1 to 14, {"guard": {"action": "rollback", "step": 14, "to_step": 10, ...}}, steps 11 to 20
Log     steps 1 to 20, of 11 to 20 those after the rollback; abandoned: one table with the earlier steps 11 to 14;
        decisions: Decision(step=14, action="rollback", to_step=10, ...)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from arc_refinery.training.guard import LoggedStep
from arc_refinery.training.log import Choice, Decision, HeldoutResult, read_lines
from arc_refinery.training.step_metrics import REWARD_TERM


@dataclass(slots=True)
class Log:
    """Parsed training log."""

    steps: pd.DataFrame = field(default_factory=pd.DataFrame)  # without abandoned steps, in order: `step`, all metrics
    abandoned: list[pd.DataFrame] = field(default_factory=list)  # the steps that each rollback discarded
    checks: list[HeldoutResult] = field(default_factory=list)
    abandoned_checks: list[HeldoutResult] = field(default_factory=list)
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
    """Read a training.jsonl; raises `RecordError`. Of a step that occurs twice, the later one counts."""
    log = Log()
    steps: list[LoggedStep] = []
    for line in read_lines(path):
        match line:
            case HeldoutResult():
                log.checks.append(line)
            case Decision():
                log.decisions.append(line)
                if line.action == "rollback" and line.to_step is not None:
                    steps = _roll_back(line.to_step, steps, log)
            case Choice():
                log.choice = line
            case {"step": step} if "reward" in line or "loss" in line:  # other lines are summaries
                steps = [*_roll_back(step - 1, steps, log), line]
            case _:
                pass
    log.steps = _table(steps)
    metrics = list(dict.fromkeys(name for part in (log.steps, *log.abandoned) for name in part))
    log.steps = log.steps.reindex(columns=metrics)
    return log


def _roll_back(step: int, steps: Sequence[LoggedStep], log: Log) -> list[LoggedStep]:
    """Return the entries up to a step; later entries and checks move to the abandoned ones of the log."""
    left = [entry for entry in steps if entry["step"] <= step]
    if len(left) < len(steps):
        log.abandoned.append(_table(steps[len(left) :]))
        log.abandoned_checks += [check for check in log.checks if check.step > step]
        log.checks = [check for check in log.checks if check.step <= step]
    return left


def _table(entries: Sequence[LoggedStep]) -> pd.DataFrame:
    return pd.DataFrame(entries).apply(pd.to_numeric)  # values that are not finite are null in the log, nan here
