"""Training log: the lines of training.jsonl.

{"kl": 0.01, "reward": 2.5, "step": 2, ...}                                    a step: any number of metrics
{"heldout": {"reward": 3.1, "solved": 0.25, "step": 2}}                        a `HeldoutResult`
{"guard": {"action": "stop", "criterion": "kl", "limit": 0.5, "step": 9, "value": 0.7}}    a `Decision`
{"chosen": {"heldout_reward": 3.1, "step": 2, "why": "best held-out reward"}}  a `Choice`, the last line

The collapse guard reads the steps. All published runs on ARC collapsed: completions grow to the limit, then repeat
themselves, then the reward falls. The embedded model, trained at too high a rate, collapses differently: it gives the
same short answer to everything. Each criterion uses the mean over the last steps, because single steps are noisy.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

from arc_refinery.config import Guard, GuardAction
from arc_refinery.files import atomic_write, decode_json, read_text
from arc_refinery.records import RecordError

MEASURED = "measured/"  # prefix of metrics that differ from run to run; never written to training.jsonl
LoggedStep: TypeAlias = Mapping[str, Any]  # one step of training.jsonl: `step`, and metrics by name


@dataclass(frozen=True, slots=True)
class Symptom:
    """The criterion that crossed its limit, and at which step."""

    step: int
    criterion: str  # truncated, repetition, kl, zero_variance, reward, or loss
    value: float
    limit: float


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


def history(log: Sequence[dict[str, Any]], symptom: Symptom | None, action: GuardAction) -> list[Line]:
    """Return a trainer's log as lines, without metrics that differ from run to run and the summary of the run."""
    lines: list[Line] = []
    for entry in log:
        if "reward" in entry:
            measured = {name for name in entry if name.startswith(MEASURED)} | {"step_time"}
            lines.append({name: _finite(value) for name, value in entry.items() if name not in measured})
        elif "eval_reward" in entry:
            lines.append(HeldoutResult(entry["step"], entry["eval_reward"], entry["eval_share/solved"]))
    if symptom:
        lines.append(Decision(symptom.step, symptom.criterion, _finite(symptom.value), symptom.limit, action))
    return lines


def _finite(value: Any) -> Any:
    """Return None, JSON's null, for a loss that is not finite: JSON has no NaN or infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


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


MAX_SHARE = 0.5  # of truncated completions; of 4-grams that repeat earlier ones of their completion
MIN_REWARD = 0.5  # share of the mean reward over all earlier steps


def symptom(steps: Sequence[LoggedStep], guard: Guard) -> Symptom | None:
    """Return the first criterion that the last `guard.window` steps fail; a loss that is not finite counts at once."""
    if not steps:
        return None
    last = int(steps[-1]["step"])
    loss = steps[-1].get("loss", 0.0)
    if not math.isfinite(loss):
        return Symptom(last, "loss", loss, 0.0)
    recent, before = steps[-guard.window :], steps[: -guard.window]
    if len(recent) < guard.window:
        return None
    for criterion, metric in (("truncated", "share/truncated"), ("repetition", "repetition")):
        if (value := _mean(recent, metric)) > MAX_SHARE:
            return Symptom(last, criterion, value, MAX_SHARE)
    zero_variance = _mean(recent, "share/zero_variance")
    if zero_variance > guard.max_zero_variance and _mean(recent, "share/solved") < 0.5:
        return Symptom(last, "zero_variance", zero_variance, guard.max_zero_variance)
    if len(before) >= guard.window:
        value, limit = _mean(recent, "reward"), MIN_REWARD * _mean(before, "reward")
        if value < limit:
            return Symptom(last, "reward", value, limit)
    return None


def first_symptom(steps: Sequence[LoggedStep], guard: Guard) -> Symptom | None:
    """Return the symptom of the earliest step that has one."""
    return next(filter(None, (symptom(steps[:n], guard) for n in range(1, len(steps) + 1))), None)


def _mean(steps: Sequence[LoggedStep], metric: str) -> float:
    values = [step[metric] for step in steps if step.get(metric) is not None]
    return sum(values) / len(values) if values else 0.0
