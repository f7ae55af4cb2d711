"""Metrics of attempts and tasks in tables: those that every domain has, and how a domain adds its own."""

from collections.abc import Sequence
from typing import NamedTuple

PASS_RATE = "pass_rate"  # share of attempts that are right on everything; as `any code`, not a published metric
FIRST = ("valid code", "any code", "valid outputs", "unique outputs")
IS_CORRECT = "is_correct"  # 1 if the task is solved


class Metric(NamedTuple):
    """A metric of a task, from a column of its attempts: its mean, or whether any attempt has it."""

    name: str
    column: str
    is_any: bool = False


def names(metrics: Sequence[Metric]) -> list[str]:
    """Return all metrics of a domain, in the order of the tables."""
    return [*FIRST, *(metric.name for metric in metrics), IS_CORRECT]


def counted(metrics: Sequence[Metric]) -> list[str]:
    """Return the metrics that are 0 or 1 per task, so that tasks can be counted."""
    return [*(metric.name for metric in metrics if metric.is_any), IS_CORRECT]
