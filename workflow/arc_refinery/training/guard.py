"""The collapse guard: notices that a training goes wrong, and says where to go on from.

Published trainings on ARC all collapsed: completions grow to the limit, then they repeat themselves, then the reward
falls. The embedded model, trained at too high a rate, collapses the other way: it answers everything alike, and
shortly. Each criterion looks at the mean over the last steps, for single steps are noisy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, TypeAlias

from arc_refinery.config import Guard

Step: TypeAlias = Mapping[str, Any]  # a logged step of training.jsonl: `step`, and metrics by name


@dataclass(frozen=True, slots=True)
class Symptom:
    """What crossed its limit, at which step."""

    step: int
    criterion: str  # truncated, repetition, kl, zero_variance, reward, or loss
    value: float
    limit: float


def symptom(steps: Sequence[Step], guard: Guard) -> Symptom | None:
    """The first criterion that the last `guard.window` steps fail; a loss that is no number counts at once."""
    if not steps:
        return None
    last = int(steps[-1]["step"])
    loss = steps[-1].get("loss", 0.0)
    if not isfinite(loss):
        return Symptom(last, "loss", loss, 0.0)
    recent, before = steps[-guard.window :], steps[: -guard.window]
    if len(recent) < guard.window:
        return None
    highest = {
        "truncated": ("share/truncated", guard.max_truncated),
        "repetition": ("repetition", guard.max_repetition),
    }
    if guard.max_kl:
        highest["kl"] = ("kl", guard.max_kl)
    for criterion, (figure, limit) in highest.items():
        value = _mean(recent, figure)
        if value > limit:
            return Symptom(last, criterion, value, limit)
    alike = _mean(recent, "share/zero_variance")
    if alike > guard.max_zero_variance and _mean(recent, "share/solved") < 0.5:
        return Symptom(last, "zero_variance", alike, guard.max_zero_variance)
    if len(before) >= guard.window:
        value, limit = _mean(recent, "reward"), guard.min_reward * _mean(before, "reward")
        if value < limit:
            return Symptom(last, "reward", value, limit)
    return None


def _mean(steps: Sequence[Step], figure: str) -> float:
    values = [step[figure] for step in steps if step.get(figure) is not None]
    return sum(values) / len(values) if values else 0.0
