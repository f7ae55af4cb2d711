"""Rollbacks of a training that collapses, and the choice of its adapter: the journal in the folder of checkpoints.

    start.jsonl      held-out metrics from before the first step
    journal.jsonl    the steps that rollbacks have abandoned, with each decision

Both outlive a kill, and become lines of training.jsonl.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arc_refinery.config import Guard, GuardAction, PolicyGradient
from arc_refinery.training import checkpoints
from arc_refinery.training.guard import Symptom
from arc_refinery.training.log import MEASURED, Choice, Decision, HeldoutResult, Line, read_lines, write_lines

logger = logging.getLogger(__name__)


class Journal:
    """Abandoned steps, and the number of rollbacks."""

    def __init__(self, work: Path, guard: Guard, training: PolicyGradient) -> None:
        self._work = work
        self._guard = guard
        self._training = training
        self._file, self._start = work / "journal.jsonl", work / "start.jsonl"
        self._abandoned = read_lines(self._file) if self._file.exists() else []
        self._rollbacks = [line for line in self._abandoned if isinstance(line, Decision)]

    @property
    def rate(self) -> float:
        """The learning rate after the rollbacks so far."""
        return self._training.learning_rate * self._guard.rate_factor ** len(self._rollbacks)

    @property
    def n_rollbacks(self) -> int:
        return len(self._rollbacks)

    @property
    def may_roll_back(self) -> bool:
        return self._guard.action == "rollback" and self.n_rollbacks < self._guard.max_rollbacks

    def note_start(self, metrics: Mapping[str, float]) -> None:
        """Keep the held-out metrics from before the first step."""
        write_lines(self._start, [_heldout_result(metrics, 0)])

    def roll_back(self, symptom: Symptom, log: Sequence[dict[str, Any]]) -> None:
        """Remove the checkpoints of the collapse; the journal keeps its steps and the decision.

        In this order: killed in between, the run collapses again at the same step, and the result is the same.
        """
        to_step = max([0, *self._good_steps(symptom)])
        decision = _decision(symptom, "rollback", to_step, self.rate * self._guard.rate_factor)
        logger.warning("training collapsed and is rolled back: %s", decision)
        checkpoints.drop_after(self._work, to_step)
        write_lines(self._file, [*self._abandoned, *self._since_last_rollback(log), decision])

    def history(self, log: Sequence[dict[str, Any]], symptom: Symptom | None) -> list[Line]:
        """Return all lines from the start to the end of a run, or to the collapse that ended it."""
        start = read_lines(self._start) if self._start.exists() else []
        lines = [*start, *self._abandoned, *self._since_last_rollback(log)]
        if symptom:
            action: GuardAction = "none" if self._guard.action == "none" else "stop"
            lines.append(_decision(symptom, action))
        return lines

    def choose(self, history: Sequence[Line], symptom: Symptom | None, last_step: int) -> Choice:
        """Choose the step whose weights become the adapter; 0: those that training started from."""
        ended_in_collapse = symptom is not None and self._guard.action != "none"
        if symptom and ended_in_collapse:
            available = [0, *self._good_steps(symptom)]
        else:
            available = [0, *checkpoints.planned(self._work, self._training.save_steps, last_step)]
        rewards = {
            line.step: line.reward for line in history if isinstance(line, HeldoutResult) and line.step in available
        }
        if rewards:
            step = checkpoints.best(rewards)
            return Choice(step, "best held-out reward", rewards[step])
        if ended_in_collapse:
            return Choice(available[-1], "the last one before the collapse")
        return Choice(last_step, "the last step")

    def _good_steps(self, symptom: Symptom) -> list[int]:
        """Return the checkpoints that none of the steps which the guard averages over was sampled with."""
        planned = checkpoints.planned(self._work, self._training.save_steps, symptom.step)
        return checkpoints.before_window(planned, symptom.step, self._guard.window + self._training.steps_per_batch - 1)

    def _since_last_rollback(self, log: Sequence[dict[str, Any]]) -> list[Line]:
        """Return steps and held-out metrics, without metrics that differ from run to run or TRL's summary of a run."""
        since = self._rollbacks[-1].to_step or 0 if self._rollbacks else 0
        lines: list[Line] = []
        for entry in log:
            if entry["step"] > since and "reward" in entry:
                measured = {name for name in entry if name.startswith(MEASURED)} | {"step_time"}
                lines.append({name: _finite(value) for name, value in entry.items() if name not in measured})
            elif entry["step"] > since and "eval_reward" in entry:
                lines.append(_heldout_result(entry, entry["step"]))
        return lines


def _heldout_result(metrics: Mapping[str, float], step: int) -> HeldoutResult:
    return HeldoutResult(step, metrics["eval_reward"], metrics["eval_share/solved"])


def _decision(
    symptom: Symptom, action: GuardAction, to_step: int | None = None, learning_rate: float | None = None
) -> Decision:
    return Decision(
        symptom.step, symptom.criterion, _finite(symptom.value), symptom.limit, action, to_step, learning_rate
    )


def _finite(value: Any) -> Any:
    """Return None, JSON's null, for a loss that is not finite: JSON has no NaN or infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
