"""Metrics of tasks: means of their attempts, in the order of the tables."""

from collections.abc import Sequence
from typing import NamedTuple

PASS_RATE = "pass_rate"  # share of attempts that solve the task, which is to be right on everything
SOLVED = "solved"  # 1 if an attempt solves the task
VALID, UNIQUE = "valid outputs", "unique outputs"


class Metric(NamedTuple):
    """A metric of a task, from a column of its attempts: its mean, or whether any attempt has it.

    Of several columns, it is the lowest.
    """

    name: str
    columns: str | tuple[str, ...]
    is_any: bool = False
    is_of_turns: bool = False  # arms are also compared on it turn by turn
    is_distinct: bool = False  # distinct values of the attempts with status ok / attempts


OUTPUTS = (Metric(VALID, "is_valid"), Metric(UNIQUE, "fingerprint", is_distinct=True))
PROGRAMS = (Metric("valid code", "has_closed_code"), Metric("any code", "has_program"), *OUTPUTS)


def names(metrics: Sequence[Metric]) -> list[str]:
    """Return the names of metrics, in the order of the tables."""
    return [*(metric.name for metric in metrics), SOLVED]


def counted(metrics: Sequence[Metric]) -> list[str]:
    """Return the metrics that are 0 or 1 per task, so that tasks can be counted."""
    return [*(metric.name for metric in metrics if metric.is_any), SOLVED]
