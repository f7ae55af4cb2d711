"""The log of a training as tables: what led to its end, and what rollbacks abandoned."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from arc_refinery.training.guard import Step
from arc_refinery.training.log import Check, Choice, Decision, read_lines

OF_TRL = {
    "share/zero_variance": "frac_reward_zero_std",
    "share/truncated": "completions/clipped_ratio",
}  # in older logs


@dataclass(slots=True)
class Log:
    """A training as it went."""

    steps: pd.DataFrame = field(default_factory=pd.DataFrame)  # what led to the end, in order: `step`, all figures
    abandoned: list[pd.DataFrame] = field(default_factory=list)  # what each rollback threw away
    checks: list[Check] = field(default_factory=list)
    abandoned_checks: list[Check] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    chosen: Choice | None = None

    @property
    def is_grpo(self) -> bool:
        return "reward" in self.steps

    @property
    def window(self) -> int:
        """Steps that a mean is taken over: a tenth of them."""
        return max(1, len(self.steps) // 10)

    def first_and_last(self, figure: str) -> tuple[float, float]:
        """Mean of a figure over the first and over the last tenth of the steps; nan where none of them has it."""
        values = self.steps[figure]
        return float(values.iloc[: self.window].mean()), float(values.iloc[-self.window :].mean())


def read(path: Path) -> Log:
    """The whole log; raises `RecordError`. Of a step that is there twice the later one counts."""
    log = Log()
    kept: list[Step] = []
    for line in read_lines(path):
        match line:
            case Check():
                log.checks.append(line)
            case Decision():
                log.decisions.append(line)
                if line.action == "rollback" and line.to_step is not None:
                    kept = _back_to(line.to_step, kept, log)
            case Choice():
                log.chosen = line
            case {"step": step} if "reward" in line or "loss" in line:  # others are summaries
                kept = [*_back_to(step - 1, kept, log), line]
    log.steps = _table(kept)
    metrics = list(dict.fromkeys(name for part in (log.steps, *log.abandoned) for name in part))
    log.steps = log.steps.reindex(columns=metrics)
    return log


def _back_to(step: int, kept: Sequence[Step], log: Log) -> list[Step]:
    """What is left of the entries up to a step; the others become a part of the log that was abandoned."""
    left = [entry for entry in kept if entry["step"] <= step]
    if len(left) < len(kept):
        log.abandoned.append(_table(kept[len(left) :]))
        log.abandoned_checks += [check for check in log.checks if check.step > step]
        log.checks = [check for check in log.checks if check.step <= step]
    return left


def _table(entries: Sequence[Step]) -> pd.DataFrame:
    table = pd.DataFrame(entries).apply(pd.to_numeric)  # what was no number is null in the log, and nan from here on
    for name, older in OF_TRL.items():
        if name not in table and older in table:
            table[name] = table[older]
    return table
