"""Rewards: pure functions of a grade on all pairs of the task, train and test pooled."""

from collections.abc import Callable

from arc_refinery.records.refining import NO_CODE
from arc_refinery.refine.grading import Grade


def arc_v1(graded: Grade) -> float:
    """1 + 8 x share of correct grids + pixel score, 0..10; 0 where the outputs are not all valid."""
    return 1.0 + 8.0 * graded.correct_grids + graded.pixel_score if graded.is_valid else 0.0


def arc_v2_no_pixel_score(graded: Grade) -> float:
    """1 + 9 x share of correct grids, 0..10; 0 where the outputs are not all valid."""
    return 1.0 + 9.0 * graded.correct_grids if graded.is_valid else 0.0


def staged(graded: Grade) -> float:
    """1 for code, 1 for code that runs to valid outputs, and the share of correct grids: 0..3."""
    return float(graded.status != NO_CODE) + float(graded.is_valid) + graded.correct_grids


REWARDS: dict[str, Callable[[Grade], float]] = {
    "arc-v1": arc_v1,
    "arc-v2-no-pixel-score": arc_v2_no_pixel_score,
    "staged": staged,
}
