"""Rewards: pure functions of a grade on all pairs of the task, train and test pooled."""

from collections.abc import Callable

from arc_refinery.config import RewardName
from arc_refinery.records.refining import NO_CODE
from arc_refinery.refine.grading import Grade


def arc_v1(grade: Grade) -> float:
    """1 + 8 x share of correct grids + pixel score, 0..10; 0 unless all outputs are valid."""
    return 1.0 + 8.0 * grade.correct_grids + grade.pixel_score if grade.is_valid else 0.0


def arc_v2_no_pixel_score(grade: Grade) -> float:
    """1 + 9 x share of correct grids, 0..10; 0 unless all outputs are valid."""
    return 1.0 + 9.0 * grade.correct_grids if grade.is_valid else 0.0


def staged(grade: Grade) -> float:
    """1 for code that is not blank, 1 for code that runs to valid outputs, and the share of correct grids: 0..3."""
    has_code = grade.status != NO_CODE and (grade.code is None or bool(grade.code.strip()))
    return float(has_code) + float(grade.is_valid) + grade.correct_grids


def solved(grade: Grade) -> float:
    """1 if all grids are correct, else 0: repeating an attempt that is right in part earns nothing."""
    return float(grade.is_solved)


REWARDS: dict[RewardName, Callable[[Grade], float]] = {
    "arc-v1": arc_v1,
    "arc-v2-no-pixel-score": arc_v2_no_pixel_score,
    "staged": staged,
    "solved": solved,
}
