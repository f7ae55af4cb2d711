"""Metrics of ARC, under their published names."""

import pandas as pd

from arc_refinery.evaluation.metrics import PROGRAMS, Metric, counted, names

SCORES = ("train_pixel_score", "train_correct_grids", "test_pixel_score", "test_correct_grids")
METRICS = (
    *(
        metric
        for pairs in ("train", "test")
        for metric in (
            Metric(f"{pairs}_pixel_score", f"{pairs}_pixel_score"),
            Metric(f"{pairs}_correct_grids", f"{pairs}_correct_grids"),
            Metric(f"{pairs}_pass_rate", f"{pairs}_is_correct", is_of_turns=pairs == "test"),
            Metric(f"{pairs}_is_correct", f"{pairs}_is_correct", is_any=True),
        )
    ),
    Metric("is_correct", ("train_is_correct", "test_is_correct"), is_any=True),
)
NAMES, COUNTED = tuple(names((*PROGRAMS, *METRICS))), tuple(counted(METRICS))
EXPLAINED = """\
- Valid outputs are a grid for every input.
- **train_pixel_score**, **test_pixel_score**: share of equal cells (for different shapes, the most equal cells at any offset / (larger height x larger width)); 0 without valid outputs.
- **train_correct_grids**, **test_correct_grids**: share of grids that are correct in every cell.
- **train_pass_rate**, **test_pass_rate**: share of attempts with all train (test) grids correct.
- **train_is_correct**, **test_is_correct**: tasks with an attempt that has all train (test) grids correct. **is_correct**, as published: tasks for which both hold, perhaps by two programs. **solved**: tasks with one attempt that has all of both correct.
- **two guesses**: tasks that a submission of two guesses would solve: attempts that are correct on all train pairs vote, and the two outputs with most votes are the guesses (`arc-refinery predictions submit` adds other attempts if there are fewer than two)."""  # noqa: E501


def derive(attempts: pd.DataFrame) -> pd.DataFrame:
    """Add whether an attempt is correct on all train pairs, and on all test and hidden pairs."""
    train, test = (attempts[f"{pairs}_correct_grids"] == 1.0 for pairs in ("train", "test"))
    return attempts.assign(train_is_correct=train, test_is_correct=test, shown_solved=train)
