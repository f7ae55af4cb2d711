"""The collapse guard: detects that a training run collapses.

All published runs on ARC collapsed: completions grow to the limit, then repeat themselves, then the reward falls. The
embedded model, trained at too high a rate, collapses differently: it gives the same short answer to everything. Each
criterion uses the mean over the last steps, because single steps are noisy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

from arc_refinery.config import Guard

LoggedStep: TypeAlias = Mapping[str, Any]  # one step of training.jsonl: `step`, and metrics by name


@dataclass(frozen=True, slots=True)
class Symptom:
    """The criterion that crossed its limit, and at which step."""

    step: int
    criterion: str  # truncated, repetition, kl, zero_variance, reward, or loss
    value: float
    limit: float


MAX_SHARE = 0.5  # of truncated completions; of 4-grams that repeat earlier ones of their completion
MIN_REWARD = 0.5  # share of the mean reward over all earlier steps


def symptom(steps: Sequence[LoggedStep], guard: Guard) -> Symptom | None:
    """Return the first criterion that the last `guard.window` steps fail; a loss that is not finite counts at once."""
    if not steps:
        return None
    last = int(steps[-1]["step"])
    loss = steps[-1].get("loss", 0.0)
    if not isfinite(loss):
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
