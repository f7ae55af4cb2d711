"""What a training went through: the lines of training.jsonl, kept over kills and rollbacks.

A line is a logged step, a mean reward on held-out prompts, a decision of the guard, or the choice of the step that
becomes the adapter. A step occurs again where training went back to before it.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arc_refinery.config import Guard
from arc_refinery.files import atomic_write
from arc_refinery.training import checkpoints
from arc_refinery.training.guard import Symptom

MEASURED = "measured/"  # figures that differ from run to run: never written beside those that do not

Lines = list[dict[str, Any]]

logger = logging.getLogger(__name__)


class Journal:
    """The journal in the folder of the checkpoints: what was abandoned, and how often."""

    def __init__(self, work: Path, guard: Guard, learning_rate: float) -> None:
        self._work = work
        self._guard = guard
        self._learning_rate = learning_rate
        self._file, self._start = work / "journal.jsonl", work / "start.jsonl"
        self._abandoned = _read(self._file)
        self._n_rollbacks = sum("guard" in line for line in self._abandoned)

    @property
    def rate(self) -> float:
        """The learning rate after the rollbacks so far."""
        return self._learning_rate * self._guard.rate_factor**self._n_rollbacks

    @property
    def may_roll_back(self) -> bool:
        return self._guard.action == "rollback" and self._n_rollbacks < self._guard.max_rollbacks

    def note_start(self, figures: Mapping[str, float]) -> None:
        """The held-out figures before the first step."""
        write_lines(self._start, [_heldout(figures, 0)])

    def roll_back(self, found: Symptom, log: Sequence[dict[str, Any]]) -> None:
        """Forget the checkpoints of the collapse; the journal keeps its steps, and how often that happened.

        In this order: killed in between, the training collapses again at the same step, and ends as it would have.
        """
        to_step = max([0, *self._good_steps(found)])
        rate = self.rate * self._guard.rate_factor
        decision = _decision(found) | {"action": "rollback", "to_step": to_step, "learning_rate": rate}
        logger.warning("the training collapsed and goes back: %s", decision)
        checkpoints.drop_after(self._work, to_step)
        write_lines(self._file, [*self._abandoned, *self._since_last_rollback(log), {"guard": decision}])

    def history(self, log: Sequence[dict[str, Any]], found: Symptom | None) -> Lines:
        """Everything from the start to the end of a training, or to the collapse that ended it."""
        lines = [*_read(self._start), *self._abandoned, *self._since_last_rollback(log)]
        if found:
            action = "none" if self._guard.action == "none" else "stop"
            lines.append({"guard": _decision(found) | {"action": action}})
        return lines

    def choose(self, history: Lines, found: Symptom | None, last_step: int) -> dict[str, Any]:
        """Which step's weights become the adapter; 0: those that training started from."""
        ended_in_collapse = found is not None and self._guard.action != "none"
        there = [0, *(self._good_steps(found) if found and ended_in_collapse else checkpoints.steps_of(self._work))]
        rewards = {line["heldout"]["step"]: line["heldout"]["reward"] for line in history if "heldout" in line}
        if rewards := {step: reward for step, reward in rewards.items() if step in there}:
            step = checkpoints.best(rewards)
            return {"step": step, "heldout_reward": rewards[step], "why": "best held-out reward"}
        if ended_in_collapse:
            return {"step": there[-1], "why": "the last one before the collapse"}
        return {"step": last_step, "why": "the last step"}

    def _good_steps(self, found: Symptom) -> list[int]:
        """Checkpoints from before the steps over which the guard averages."""
        return [step for step in checkpoints.steps_of(self._work) if step <= found.step - self._guard.window]

    def _since_last_rollback(self, log: Sequence[dict[str, Any]]) -> Lines:
        """Steps and held-out rewards, without what differs from run to run, and without TRL's summary of a run."""
        since = self._abandoned[-1]["guard"]["to_step"] if self._abandoned else 0
        lines = []
        for entry in log:
            if entry["step"] > since and "reward" in entry:
                measured = {name for name in entry if name.startswith(MEASURED)} | {"step_time"}
                lines.append({name: _finite(value) for name, value in entry.items() if name not in measured})
            elif entry["step"] > since and "eval_reward" in entry:
                lines.append(_heldout(entry, entry["step"]))
        return lines


def write_lines(path: Path, lines: Lines) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))


def _read(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _heldout(figures: Mapping[str, float], step: int) -> dict[str, Any]:
    return {"heldout": {"step": step, "reward": figures["eval_reward"], "solved": figures["eval_share/solved"]}}


def _decision(found: Symptom) -> dict[str, Any]:
    return {name: _finite(value) for name, value in asdict(found).items()}


def _finite(value: Any) -> Any:
    """A loss that is no number is written as null, for JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
