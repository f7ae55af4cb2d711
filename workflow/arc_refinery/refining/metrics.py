"""Metrics of attempts and tasks in tables: those that every domain has, and how a domain adds its own."""

from collections.abc import Sequence
from typing import NamedTuple

PASS_RATE = "pass_rate"  # share of attempts that solve the task, which is to be right on everything
FIRST = ("valid code", "any code", "valid outputs", "unique outputs")
SOLVED = "solved"  # 1 if an attempt solves the task


class Metric(NamedTuple):
    """A metric of a task, from a column of its attempts: its mean, or whether any attempt has it.

    Of several columns, it is the lowest.
    """

    name: str
    columns: str | tuple[str, ...]
    is_any: bool = False
    is_of_turns: bool = False  # arms are also compared on it turn by turn


def names(metrics: Sequence[Metric]) -> list[str]:
    """Return all metrics of a domain, in the order of the tables."""
    return [*FIRST, *(metric.name for metric in metrics), SOLVED]


def counted(metrics: Sequence[Metric]) -> list[str]:
    """Return the metrics that are 0 or 1 per task, so that tasks can be counted."""
    return [*(metric.name for metric in metrics if metric.is_any), SOLVED]
