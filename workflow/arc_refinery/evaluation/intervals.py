"""95 % intervals for other tasks and other training runs, in closed form; benchmarks/coverage.py shows their coverage.

    values                                                      interval
    share of tasks solved, one value 0 or 1 per task            `share`: Wilson's score
    mean of a metric, one value per task                        `mean`: Student's t over tasks
    which tasks two arms solve, once each                       `paired_shares`: Agresti and Min
    a metric of two arms, or of repetitions (runs x tasks)      `crossed`: t over tasks and training runs

    mean([0.0, 0.5, 1.0, 0.5]) == Interval(-0.15, 1.15)     half of the attempts of four tasks are right, give or take
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, t

LEVEL = 0.95
# With few runs the variance between them may look small by chance. The degrees of freedom are those that it would have
# if it were so many times larger: chosen with benchmarks/coverage.py, for 3 and 5 runs.
CAUTION = 8.0


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def share(solved: ArrayLike) -> Interval:
    """Share of ones, (n,) values 0 or 1 (Wilson 1927): never of width 0, and within 0..1."""
    values = np.asarray(solved, dtype=float)
    n, z = len(values), float(norm.ppf(0.5 + LEVEL / 2))
    p = values.mean()
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    return Interval(float(max(0.0, centre - half)), float(min(1.0, centre + half)))


def mean(values: ArrayLike) -> Interval:
    """Mean of (n,) values, one per task. A single task says nothing about others: its interval is its value."""
    return crossed([np.asarray(values, dtype=float)])


def paired_shares(a: ArrayLike, b: ArrayLike) -> Interval:
    """Mean of a - b, (n,) values 0 or 1 of the same tasks (Agresti and Min 2005).

    The Wald interval after adding two tasks, half of one won and half of one lost by a: never of width 0.
    """
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    n = len(differences) + 2
    centre = differences.sum() / n
    deviation = np.sqrt((np.square(differences).sum() + 1) / n - centre**2)
    half = float(norm.ppf(0.5 + LEVEL / 2)) * deviation / np.sqrt(n)
    return Interval(float(centre - half), float(centre + half))


def crossed(values: Sequence[ArrayLike]) -> Interval:
    """Mean of (runs, tasks) values, where every run has the same tasks; for other tasks and other runs.

    Both are random effects. The variance of the mean is that of the tasks' means / n, plus the variance between runs
    that is left after the noise within them, / number of runs; degrees of freedom by Satterthwaite, with `CAUTION`. One
    run: Student's t over tasks.
    """
    table = np.asarray(values, dtype=float)
    n_runs, n_tasks = table.shape
    centre = float(table.mean())
    if n_tasks == 1:
        return Interval(centre, centre)
    of_tasks = table.mean(0).var(ddof=1) / n_tasks
    of_runs = 0.0
    freedom = float(n_tasks - 1)
    if n_runs > 1:
        residuals = table - table.mean(0) - table.mean(1, keepdims=True) + centre
        noise = np.square(residuals).sum() / ((n_runs - 1) * (n_tasks - 1))
        of_runs = max(0.0, table.mean(1).var(ddof=1) - noise / n_tasks) / n_runs
        cautious = CAUTION * of_runs
        parts = cautious**2 / (n_runs - 1) + of_tasks**2 / (n_tasks - 1)
        if parts:
            freedom = float(np.clip((cautious + of_tasks) ** 2 / parts, n_runs - 1, n_tasks - 1))
    half = float(t.ppf(0.5 + LEVEL / 2, freedom)) * float(np.sqrt(of_tasks + of_runs))
    return Interval(centre - half, centre + half)
