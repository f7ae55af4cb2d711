"""95 % intervals for other tasks and other training runs, in closed form (docs/methods.md).

values                                                      method
0 or 1 per task (solved or not)                             Wilson's score interval
a metric per task                                           Student's t over tasks
a difference of such values                                 Agresti and Min: Wald with two added tasks
a metric or difference per training run and task            t over tasks and runs, both random

Runs that are all alike count as one.

>>> solved = estimate([[1, 0, 1, 1]])  # three of four tasks
>>> f"{solved.mean} [{solved.low:.2f}, {solved.high:.2f}]"
'0.75 [0.30, 0.95]'
>>> f"{estimate([[0.2, 0.4], [0.3, 0.5]]).mean:.2f}"  # two runs on the same two tasks
'0.35'
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, t

from arc_refinery.evaluation.power import POWER

LEVEL = 0.95
# Few runs may agree by chance, which makes the variance between them look small. The degrees of freedom are those of a
# variance this many times larger, a factor from benchmarks/coverage.py, for 3 and 5 runs.
CAUTION = 8.0
ROUNDING = 1e-9  # differences below this share of both values are none: sums of floats depend on their order
CONSTANT = 1e-13  # a standard error below this share of the values is none

_Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks (and runs) with its 95 % interval."""

    n_tasks: int
    runs: tuple[float, ...]  # mean of each run
    low: float
    high: float
    standard_error: float
    degrees: float  # t's degrees of freedom; infinite for the normal distribution

    @property
    def mean(self) -> float:
        return float(np.mean(self.runs))

    @property
    def excludes_zero(self) -> bool:
        """False if nothing varies: a single task, or tasks and runs that are all alike, show nothing about others."""
        return self.standard_error > 0 and (self.low > 0 or self.high < 0)

    @property
    def p_value(self) -> float:
        """Two-sided p of a mean this far from 0."""
        if not self.standard_error:
            return 1.0
        return float(2 * t.sf(abs(self.mean) / self.standard_error, self.degrees))


def estimate(values: ArrayLike) -> Estimate:
    """Return the mean of (runs, tasks) values; every run has the same tasks.

    A single task shows nothing about other tasks: its interval is its value. Raises ValueError without values.
    """
    table = np.asarray(values, dtype=float)
    return _of_one_task(table) or (_wilson(table) if are_flags(table) else _crossed(table))


def estimate_difference(a: ArrayLike, b: ArrayLike) -> Estimate:
    """Return the mean of a - b, (runs, tasks) values that are paired by run and task."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    table = difference_of(first, second)
    of_flags = are_flags(first) and are_flags(second)
    if not table.any():  # t's interval would be 0; that of flags is wider than that of any shares
        of_flags = bool(min(first.min(initial=0), second.min(initial=0)) >= 0 and first.max(initial=0) <= 1)
    return _of_one_task(table) or (_agresti_min(table) if of_flags else _crossed(table))


def difference_of(a: _Table, b: _Table) -> _Table:
    """Return a - b, with 0 where they differ by rounding alone."""
    table = a - b
    table[np.abs(table) <= ROUNDING * np.maximum(np.abs(a), np.abs(b))] = 0.0
    return table


def are_flags(table: _Table) -> bool:
    """Return whether all values are 0 or 1, in one run or in runs that are all alike: nothing shows how they vary."""
    return bool(np.isin(table, (0.0, 1.0)).all() and (table == table[:1]).all())


def _of_one_task(table: _Table) -> Estimate | None:
    if not table.size:
        raise ValueError("an interval needs at least one value")
    mean = float(table.mean())
    return Estimate(1, _means(table), mean, mean, 0.0, np.inf) if table.shape[1] == 1 else None


def _wilson(table: _Table) -> Estimate:
    """Score interval of a share (Wilson 1927): its width is never 0, its ends are within 0..1."""
    n, p, z = table.shape[1], float(table.mean()), _quantile(np.inf)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    error = float(np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))) / (1 + z**2 / n)
    return Estimate(n, _means(table), max(0.0, centre - z * error), min(1.0, centre + z * error), error, np.inf)


def _agresti_min(table: _Table) -> Estimate:
    """Interval of a difference of paired shares (Agresti and Min 2005): its width is never 0.

    Wald's interval after adding two tasks, of which each arm alone solves half of one.
    """
    n = table.shape[1] + 2
    centre = float(table[0].sum()) / n
    error = float(np.sqrt(((table[0] ** 2).sum() + 1) / n - centre**2) / np.sqrt(n))
    z = _quantile(np.inf)
    return Estimate(table.shape[1], _means(table), centre - z * error, centre + z * error, error, np.inf)


def _crossed(table: _Table) -> Estimate:
    """Interval with tasks and runs as crossed random effects; for one run, Student's t over tasks.

    Variance of the mean = variance of the tasks' means / n tasks + variance between runs beyond the noise within them
    / n runs. Degrees of freedom by Satterthwaite, with `CAUTION`.
    """
    n_runs, n_tasks = table.shape
    mean = float(table.mean())
    task_variance, run_variance = float(table.mean(0).var(ddof=1)) / n_tasks, 0.0
    if n_runs > 1:
        residuals = table - table.mean(0) - table.mean(1, keepdims=True) + mean
        noise = float((residuals**2).sum()) / ((n_runs - 1) * (n_tasks - 1))
        run_variance = max(0.0, float(table.mean(1).var(ddof=1)) - noise / n_tasks) / n_runs
    error = float(np.sqrt(task_variance + run_variance))
    if error <= CONSTANT * float(np.abs(table).max()):
        return Estimate(n_tasks, _means(table), mean, mean, 0.0, np.inf)
    degrees = float(degrees_of(task_variance, run_variance, n_runs, n_tasks))
    half = _quantile(degrees) * error
    return Estimate(n_tasks, _means(table), mean - half, mean + half, error, degrees)


def degrees_of(task_variance: float, run_variance: ArrayLike, n_runs: int, n_tasks: int) -> _Table:
    """Return t's degrees of freedom, for each variance between runs."""
    cautious = CAUTION * np.asarray(run_variance, dtype=float)
    share = cautious / (cautious + task_variance)
    parts = share**2 / max(1, n_runs - 1) + (1 - share) ** 2 / max(1, n_tasks - 1)
    return np.clip(1 / parts, max(1, n_runs - 1), max(1, n_tasks - 1))


def detectable(estimate: Estimate) -> float:
    """Return the smallest true difference that an experiment like the one of this estimate detects with `POWER`.

    Two-sided, as the interval: (t_0.975 + t_power) x standard error, with the estimate's degrees of freedom.
    Unlike the number of tasks that a difference of the observed size would take, it does not depend on the observed
    difference, which is noisy.
    """
    return quantiles(estimate.degrees) * estimate.standard_error


def quantiles(degrees: float) -> float:
    """Return the standard errors of a difference that is detected with `POWER`."""
    return _quantile(degrees) + float(t.ppf(POWER, degrees))


def _means(table: _Table) -> tuple[float, ...]:
    return tuple(table.mean(1).tolist())


def _quantile(degrees: float) -> float:
    share = 0.5 + LEVEL / 2
    return float(norm.ppf(share) if np.isinf(degrees) else t.ppf(share, degrees))
