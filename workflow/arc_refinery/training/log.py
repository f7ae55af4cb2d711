"""Training log: the lines of training.jsonl, and the journal that preserves them across kills and rollbacks.

    {"kl": 0.01, "reward": 2.5, "step": 2, ...}                                    a step: any number of metrics
    {"heldout": {"reward": 3.1, "solved": 0.25, "step": 2}}                        a `HeldoutResult`
    {"guard": {"action": "rollback", "criterion": "kl", "step": 9, "to_step": 2, ...}}   a `Decision`
    {"chosen": {"heldout_reward": 3.1, "step": 2, "why": "best held-out reward"}}  a `Choice`, the last line

A rollback abandons the steps after its `to_step`. They stay in the file, before those that replace them.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from arc_refinery.config import Guard, GuardAction
from arc_refinery.files import atomic_write
from arc_refinery.reading import decode_json, read_text
from arc_refinery.records import RecordError
from arc_refinery.training import checkpoints
from arc_refinery.training.guard import LoggedStep, Symptom

MEASURED = "measured/"  # prefix of metrics that differ from run to run; never written to training.jsonl

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HeldoutResult:
    """Metrics of a checkpoint on the held-out prompts."""

    step: int
    reward: float
    solved: float | None = None  # share of completions


@dataclass(frozen=True, slots=True)
class Decision:
    """A collapse, and the guard's action."""

    step: int
    criterion: str
    value: float | None  # None: not a finite number
    limit: float
    action: GuardAction
    to_step: int | None = None
    learning_rate: float | None = None  # from then on


@dataclass(frozen=True, slots=True)
class Choice:
    """The checkpoint that became the adapter."""

    step: int
    why: str
    heldout_reward: float | None = None


Line: TypeAlias = LoggedStep | HeldoutResult | Decision | Choice

_KINDS: dict[str, type[HeldoutResult | Decision | Choice]] = {
    "heldout": HeldoutResult,
    "guard": Decision,
    "chosen": Choice,
}
_KEYS = {kind: key for key, kind in _KINDS.items()}


def write_lines(path: Path, lines: Sequence[Line]) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text("".join(json.dumps(_encoded(line), sort_keys=True) + "\n" for line in lines))


def read_lines(path: Path) -> list[Line]:
    """Return all lines of a log, in order; raise `RecordError` if it cannot be read."""
    if not path.exists():
        raise RecordError(f"{path}: no such file; train first: snakemake {path.parent}")
    lines = []
    for number, text in enumerate(read_text(path, "a training log").splitlines(), 1):
        try:
            lines.append(_decoded(decode_json(text, "it", "an object")))
        except (ValueError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{path}, line {number}: is not a line of a training log ({error}). Train again"
            ) from None
    return lines


def _encoded(line: Line) -> dict[str, Any]:
    """Return a line as a JSON object, without optional fields that are None."""
    if isinstance(line, Mapping):
        return dict(line)
    optional = {field.name for field in fields(line) if field.default is None}
    values = {name: value for name, value in asdict(line).items() if value is not None or name not in optional}
    return {_KEYS[type(line)]: values}


def _decoded(entry: Any) -> Line:
    match entry:
        case {"step": int()}:
            return dict(entry)
        case dict() if len(entry) == 1 and (key := next(iter(entry))) in _KINDS:
            kind, values = _KINDS[key], entry[key]
            return kind(**{field.name: values[field.name] for field in fields(kind) if field.name in values})
    raise TypeError(f"expected a step or one of {', '.join(_KINDS)}")


class Journal:
    """The journal in the checkpoint folder: abandoned steps, and the number of rollbacks."""

    def __init__(
        self, work: Path, guard: Guard, learning_rate: float, save_steps: int, steps_per_batch: int = 1
    ) -> None:
        self._work = work
        self._save_steps = save_steps
        self._steps_per_batch = steps_per_batch
        self._guard = guard
        self._learning_rate = learning_rate
        self._file, self._start = work / "journal.jsonl", work / "start.jsonl"
        self._abandoned = read_lines(self._file) if self._file.exists() else []
        self._rollbacks = [line for line in self._abandoned if isinstance(line, Decision)]

    @property
    def rate(self) -> float:
        """The learning rate after the rollbacks so far."""
        return self._learning_rate * self._guard.rate_factor ** len(self._rollbacks)

    @property
    def may_roll_back(self) -> bool:
        return self._guard.action == "rollback" and len(self._rollbacks) < self._guard.max_rollbacks

    def note_start(self, metrics: Mapping[str, float]) -> None:
        """Keep the held-out metrics from before the first step."""
        write_lines(self._start, [_check(metrics, 0)])

    def roll_back(self, found: Symptom, log: Sequence[dict[str, Any]]) -> None:
        """Remove the checkpoints of the collapse; the journal keeps its steps and the decision.

        In this order: killed in between, the run collapses again at the same step, and the result is the same.
        """
        to_step = max([0, *self._good_steps(found)])
        decision = _decision(found, "rollback", to_step, self.rate * self._guard.rate_factor)
        logger.warning("training collapsed and is rolled back: %s", decision)
        checkpoints.drop_after(self._work, to_step)
        write_lines(self._file, [*self._abandoned, *self._since_last_rollback(log), decision])

    def history(self, log: Sequence[dict[str, Any]], found: Symptom | None) -> list[Line]:
        """Return all lines from the start to the end of a run, or to the collapse that ended it."""
        start = read_lines(self._start) if self._start.exists() else []
        lines = [*start, *self._abandoned, *self._since_last_rollback(log)]
        if found:
            action: GuardAction = "none" if self._guard.action == "none" else "stop"
            lines.append(_decision(found, action))
        return lines

    def choose(self, history: Sequence[Line], found: Symptom | None, last_step: int) -> Choice:
        """Choose the step whose weights become the adapter; 0: those that training started from."""
        ended_in_collapse = found is not None and self._guard.action != "none"
        available = [
            0,
            *(
                self._good_steps(found)
                if found and ended_in_collapse
                else checkpoints.planned(self._work, self._save_steps, last_step)
            ),
        ]
        rewards = {
            line.step: line.reward for line in history if isinstance(line, HeldoutResult) and line.step in available
        }
        if rewards:
            step = checkpoints.best(rewards)
            return Choice(step, "best held-out reward", rewards[step])
        if ended_in_collapse:
            return Choice(available[-1], "the last one before the collapse")
        return Choice(last_step, "the last step")

    def _good_steps(self, found: Symptom) -> list[int]:
        """Return the checkpoints that none of the steps which the guard averages over was sampled with."""
        planned = checkpoints.planned(self._work, self._save_steps, found.step)
        return checkpoints.before_window(planned, found.step, self._guard.window + self._steps_per_batch - 1)

    def _since_last_rollback(self, log: Sequence[dict[str, Any]]) -> list[Line]:
        """Return steps and held-out metrics, without metrics that differ from run to run or TRL's summary of a run."""
        since = self._rollbacks[-1].to_step or 0 if self._rollbacks else 0
        lines: list[Line] = []
        for entry in log:
            if entry["step"] > since and "reward" in entry:
                measured = {name for name in entry if name.startswith(MEASURED)} | {"step_time"}
                lines.append({name: _finite(value) for name, value in entry.items() if name not in measured})
            elif entry["step"] > since and "eval_reward" in entry:
                lines.append(_check(entry, entry["step"]))
        return lines


def _check(metrics: Mapping[str, float], step: int) -> HeldoutResult:
    return HeldoutResult(step, metrics["eval_reward"], metrics["eval_share/solved"])


def _decision(
    found: Symptom, action: GuardAction, to_step: int | None = None, learning_rate: float | None = None
) -> Decision:
    return Decision(found.step, found.criterion, _finite(found.value), found.limit, action, to_step, learning_rate)


def _finite(value: Any) -> Any:
    """Return None, JSON's null, for a loss that is not finite: JSON has no NaN or infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
