"""Rewards of attempts in training that every domain has.

rewards: [solved, {reward: repetition, weight: -0.2}, rewards.py:score]
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field

from arc_refinery.config.rewards import RewardTerm, described
from arc_refinery.grades import REWARDS, by_name
from arc_refinery.programs import likeness


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAttempt:
    """A graded completion, as a reward reads it; it also has all that its grade has (`attempt.status`)."""

    grade: Any
    task_id: str
    completion: str  # the whole answer; on-policy, the last answer
    n_tokens: int  # sampled tokens, of all turns that are learned from
    is_truncated: bool
    repetition: float  # share of the 4-grams of its tokens that repeat earlier ones
    reward: float  # by the first term that reads the program alone (arc-v1, ..., solved), or else by `solved`
    # The attempt that it refines; None and empty in a first turn
    parent_reward: float | None = None
    parent_grade: Any = None
    parent_program: str | None = None  # also None if that attempt has no program
    feedback: str = ""  # what the model read about that attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "grade"), name)

    @property
    def about(self) -> str:
        return f"the task {self.task_id}"


def improvement(attempt: ScoredAttempt) -> float:
    """gain over the refined attempt, by the first of the terms above, else by `solved`; 0 for a loss"""
    return 0.0 if attempt.parent_reward is None else max(0.0, attempt.reward - attempt.parent_reward)


def near(attempt: ScoredAttempt) -> float:
    """0 if not solved; else 1 in a first turn, 0.5 + 0.5 * likeness to the refined program in others (PRepair)"""
    # After PRepair (arXiv 2604.05963), which rewards small edits of programs that become right. Likeness only divides
    # what a solution earns: a copy, which is as wrong, earns 0, and every solution more than every failure. No
    # refinement earns more than a right first turn, so on-policy it does not pay to spoil that one first.
    if attempt.parent_grade is None or not attempt.is_solved:
        return float(attempt.is_solved)
    return 0.5 + 0.5 * likeness(attempt.code or "", attempt.parent_program or "")


def repetition(attempt: ScoredAttempt) -> float:
    """share of repeated 4-grams in the completion"""
    return attempt.repetition


def truncation(attempt: ScoredAttempt) -> float:
    """1 for a truncated completion"""
    return float(attempt.is_truncated)


REFINING_REWARDS = by_name(improvement, near)  # they read the refined attempt
ATTEMPT_REWARDS = {**REFINING_REWARDS, **by_name(repetition, truncation)}


class AttemptTerm(RewardTerm):
    example: ClassVar = "def score(attempt):"
    reward: str = Field(description=described({**REWARDS, **ATTEMPT_REWARDS}, "docs/methods.md"))
