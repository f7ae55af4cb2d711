"""Rewards of attempts at ARC tasks in training.

    rewards: [arc-v1, {reward: repetition, weight: -2.0}, rewards.py:score]

A program with half of the grids right, a pixel score of 0.75 and a fifth of the completion's 4-grams repeated earns
1 + 8 * 0.5 + 0.75 - 2.0 * 0.2 = 5.35 from the first two terms.
"""

from dataclasses import dataclass

from arc_refinery import grades
from arc_refinery.arc.grids import Grid
from arc_refinery.arc.metrics import correct_grids, mean_pixel_score
from arc_refinery.grades import by_name, solved


@dataclass(frozen=True, slots=True)
class Grade(grades.Grade):
    """Result of executing one answer on all pairs of its task, train and test together."""

    outputs: tuple[Grid, ...] = ()  # one for each pair; empty unless status is ok
    truths: tuple[Grid, ...] = ()  # expected outputs
    n_shown: int = 0  # train pairs: the first ones, whose outputs prompts show or feedback may reveal
    revealed: int | None = None  # train pair that feedback reveals; None: the first revealable one that is wrong

    @property
    def correct_grids(self) -> float:
        """Share of the pairs with a correct output."""
        return correct_grids(self.outputs, self.truths) if self.outputs else 0.0

    @property
    def pixel_score(self) -> float:
        """Mean pixel score over the pairs."""
        return mean_pixel_score(self.outputs, self.truths) if self.outputs else 0.0

    @property
    def score(self) -> float:
        n = self.n_shown
        return correct_grids(self.outputs[:n], self.truths[:n]) if self.outputs else 0.0

    @property
    def is_solved(self) -> bool:
        return self.correct_grids == 1.0


def arc_v1(grade: Grade) -> float:
    """1 + 8 × share of correct grids + pixel score (0 without valid outputs)"""
    return 1.0 + 8.0 * grade.correct_grids + grade.pixel_score if grade.is_valid else 0.0


def arc_v2_no_pixel_score(grade: Grade) -> float:
    """1 + 9 × share of correct grids (0 without valid outputs)"""
    return 1.0 + 9.0 * grade.correct_grids if grade.is_valid else 0.0


def staged(grade: Grade) -> float:
    """1 for code + 1 for valid outputs + share of correct grids"""
    return float(bool(grade.code and grade.code.strip())) + float(grade.is_valid) + grade.correct_grids


REWARDS = by_name(arc_v1, arc_v2_no_pixel_score, staged, solved)
