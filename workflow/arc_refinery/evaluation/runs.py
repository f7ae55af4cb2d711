"""Values of repeated arms, grouped by training: pairs of trainings are the runs of an interval.

of_runs(experiment, "trained", [[1.0, 0.5], [0.5, 0.0]]) == {0: [1.0, 0.5], 1: [0.5, 0.0]}   (seeds 0 and 1)
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arc_refinery.config import BaseArm, Compared

AnyArm = TypeVar("AnyArm", bound=BaseArm)
Values = NDArray[np.float64]
Runs = dict[int | None, Values]  # (tasks,) values by seed of training, means over samplings


def both_sides(runs: Sequence[Sequence[tuple[AnyArm, AnyArm]]]) -> tuple[list[list[AnyArm]], list[list[AnyArm]]]:
    """Return the first and the second arm of each pair, run by run."""
    return [[one for one, _ in run] for run in runs], [[other for _, other in run] for run in runs]


def run_means(values: Sequence[Sequence[ArrayLike]]) -> list[Values]:
    """Return the mean over the pairs of each run, (tasks,) values each."""
    return [np.mean(np.asarray(of_run, dtype=float), axis=0) for of_run in values]


def of_runs(experiment: Compared[Any], arm: str, values: Sequence[ArrayLike]) -> Runs:
    """Group the values of an arm's repetitions by training; samplings with one adapter are one run."""
    by_seed: dict[int | None, list[ArrayLike]] = {}
    for repetition, of_repetition in zip(experiment.arms_called(arm), values, strict=True):
        by_seed.setdefault(experiment.training_seed(repetition), []).append(of_repetition)
    return {seed: np.mean(np.asarray(same, dtype=float), axis=0) for seed, same in by_seed.items()}


def paired_runs(a: Runs, b: Runs) -> tuple[Values, Values]:
    """Return (runs, tasks) values of both sides, paired by seed; a side of one run is paired with each of the other.

    Trainings with different seeds cannot be paired: the mean of each side is one run.
    """
    if len(a) > 1 and len(b) > 1 and a.keys() != b.keys():
        return np.mean(list(a.values()), axis=0, keepdims=True), np.mean(list(b.values()), axis=0, keepdims=True)
    seeds = list(a if len(a) > len(b) else b)
    one, other = ([side[seed] if len(side) > 1 else next(iter(side.values())) for seed in seeds] for side in (a, b))
    return np.array(one), np.array(other)
