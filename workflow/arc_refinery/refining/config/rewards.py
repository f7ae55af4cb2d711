"""Rewards of attempts at ARC tasks in training.

    rewards: [arc-v1, {reward: repetition, weight: -2.0}, rewards.py:score]

A program with half of the grids right, a pixel score of 0.75 and a fifth of the completion's 4-grams repeated earns
1 + 8 * 0.5 + 0.75 - 2.0 * 0.2 = 5.35 from the first two terms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from arc_refinery.arc.grids import Grid
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score
from arc_refinery.config.rewards import RewardTerm, described
from arc_refinery.sandbox import Status


@dataclass(frozen=True, slots=True)
class Grade:
    """Result of executing one answer on all pairs of its task, train and test together."""

    status: str  # no_code, or the sandbox's verdict: ok, error, timeout, ...
    error: str = ""
    outputs: tuple[Grid, ...] = ()  # one for each pair; empty unless status is ok
    truths: tuple[Grid, ...] = ()  # expected outputs
    code: str | None = None  # the program

    @property
    def is_valid(self) -> bool:
        return self.status == Status.ok

    @property
    def correct_grids(self) -> float:
        """Share of the pairs with a correct output."""
        return correct_grids(self.outputs, self.truths) if self.outputs else 0.0

    @property
    def pixel_score(self) -> float:
        """Mean pixel score over the pairs."""
        return mean_pixel_score(self.outputs, self.truths) if self.outputs else 0.0

    @property
    def is_solved(self) -> bool:
        return self.correct_grids == 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAttempt(Grade):
    """A graded completion, as a reward reads it."""

    task_id: str
    completion: str  # the whole answer; on-policy, the last answer
    n_tokens: int  # sampled tokens of all turns
    is_truncated: bool
    repetition: float  # share of the 4-grams of its tokens that repeat earlier ones
    reward: float  # by the first term that reads the program alone (arc-v1, ..., solved), or else by `solved`
    parent_reward: float | None  # reward of the attempt that it refines; None in a first turn

    @property
    def about(self) -> str:
        return f"the task {self.task_id}"


PROGRAM_REWARDS: dict[str, Callable[[Grade], float]] = {}  # read the program alone, so a parent has them, too
REWARDS: dict[str, Callable[[Any], float]] = {}
Function = TypeVar("Function", bound=Callable[..., float])


def built_in(function: Function) -> Function:
    REWARDS[function.__name__.replace("_", "-")] = function
    return function


def program_reward(function: Callable[[Grade], float]) -> Callable[[Grade], float]:
    PROGRAM_REWARDS[function.__name__.replace("_", "-")] = function
    return built_in(function)


@program_reward
def arc_v1(grade: Grade) -> float:
    """1 + 8 × share of correct grids + pixel score, 0..10 (0 unless all outputs are valid)"""
    return 1.0 + 8.0 * grade.correct_grids + grade.pixel_score if grade.is_valid else 0.0


@program_reward
def arc_v2_no_pixel_score(grade: Grade) -> float:
    """1 + 9 × share of correct grids, 0..10 (0 unless all outputs are valid)"""
    return 1.0 + 9.0 * grade.correct_grids if grade.is_valid else 0.0


@program_reward
def staged(grade: Grade) -> float:
    """1 for code that is not blank, 1 for code that runs to valid outputs, and the share of correct grids, 0..3"""
    return float(bool(grade.code and grade.code.strip())) + float(grade.is_valid) + grade.correct_grids


@program_reward
def solved(grade: Grade) -> float:
    """1 if all grids are correct, else 0"""
    return float(grade.is_solved)


@built_in
def improvement(attempt: ScoredAttempt) -> float:
    """gain over the attempt that is refined, by the first of the terms above, or else by `solved` (0 for a loss)"""
    return 0.0 if attempt.parent_reward is None else max(0.0, attempt.reward - attempt.parent_reward)


@built_in
def repetition(attempt: ScoredAttempt) -> float:
    """share of repeated 4-grams in the completion (a penalty if its weight is negative)"""
    return attempt.repetition


@built_in
def truncation(attempt: ScoredAttempt) -> float:
    """1 for a truncated completion, else 0 (a penalty if its weight is negative)"""
    return float(attempt.is_truncated)


class AttemptTerm(RewardTerm):
    built_in: ClassVar = REWARDS
    example: ClassVar = "def score(attempt):"
    reward: str = Field(description=described(REWARDS, "docs/methods.md"))
