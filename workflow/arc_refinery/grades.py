"""Grades of answers, and the rewards that read the program alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arc_refinery.sandbox import Status


@dataclass(frozen=True, slots=True)
class Grade:
    """Result of executing one answer; a domain's own class adds what its program gave."""

    status: str  # no_code, or the sandbox's verdict: ok, error, timeout, ...
    error: str = ""
    code: str | None = None  # the program

    @property
    def is_valid(self) -> bool:
        return self.status == Status.ok

    @property
    def score(self) -> float:
        """Share of the checks that the prompt shows, or feedback may reveal, that are right, 0..1."""
        raise NotImplementedError

    @property
    def is_solved(self) -> bool:
        """Whether all checks are right, hidden ones included."""
        raise NotImplementedError

    @property
    def progress(self) -> float:
        """Share of the hidden checks that are right, for the term `passed_tests` of tool use; default: 1 if solved."""
        return float(self.is_solved)


def by_name(*functions: Callable[[Any], float]) -> dict[str, Callable[[Any], float]]:
    """Return rewards by the name that a config gives them: that of their function, with dashes."""
    return {function.__name__.replace("_", "-"): function for function in functions}


def solved(grade: Grade) -> float:
    """1 if the program is right, also on hidden checks"""
    return float(grade.is_solved)


def score(grade: Grade) -> float:
    """share of the shown checks that are right"""
    return grade.score


REWARDS = by_name(solved, score)  # of every domain; a parent has them, too
