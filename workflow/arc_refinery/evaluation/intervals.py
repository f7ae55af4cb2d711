"""95 % intervals for other tasks and other training runs, in closed form (docs/methods.md).

values                                                      method
0 or 1 per task (solved or not)                             Wilson's score interval
a metric per task                                           t over tasks, and Hall's correction for skewness
a difference of such values                                 Agresti and Min: Wald with two added tasks
a metric or difference per training run and task            the same t over tasks and runs, both random
a difference of runs that cannot be paired                  the same, with the runs of each side (Welch)

Runs that are all alike count as one. One task, or two runs, are too few for an interval: its ends are nan.

>>> solved = estimate([[1, 0, 1, 1]])  # three of four tasks
>>> f"{solved.mean} [{solved.low:.2f}, {solved.high:.2f}]"
'0.75 [0.30, 0.95]'
>>> f"{estimate([[0.2, 0.4], [0.3, 0.5]]).mean:.2f}"  # two runs on the same two tasks
'0.35'
"""

from dataclasses import dataclass
from math import inf, isfinite, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, norm, t

from arc_refinery.evaluation.power import FEWEST_CHANGED, POWER, SIGNIFICANCE

LEVEL = 0.95
# Few runs may agree by chance, which makes the variance between them look small. The degrees of freedom are those of a
# variance this many times larger, and only this share of the noise within runs is subtracted from the variance between
# them. Chosen by benchmarks/coverage.py, for 3 and 5 runs.
CAUTION = 8.0
SUBTRACTED = 0.5
ROUNDING = 1e-9  # differences below this share of both values are none: sums of floats depend on their order
CONSTANT = 1e-13  # a standard error below this share of the values is none

_Table = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks (and runs) with its 95 % interval."""

    mean: float
    n_tasks: int
    n_changed: int  # tasks whose value, mean over runs, is not 0
    runs: tuple[float, ...]  # mean of each run; empty for a difference of runs that are not paired
    low: float  # nan: one task or two runs, which are too few for an interval
    high: float
    standard_error: float
    degrees: float  # t's degrees of freedom; infinite for the normal distribution

    @property
    def has_interval(self) -> bool:
        return isfinite(self.low)

    @property
    def supports_difference(self) -> bool:
        """Whether the interval excludes 0 and p < 0.05."""
        return (self.low > 0 or self.high < 0) and self.p_value < SIGNIFICANCE

    @property
    def p_value(self) -> float:
        """Two-sided p of a mean this far from 0; nan without an interval.

        At least that of a sign test in which all changed tasks agree, so fewer than six show nothing. If all tasks
        differ by as much, it is that of the sign test, which values that vary a little approach.
        """
        fewest = 2.0 ** (1 - self.n_changed) if self.n_changed else 1.0
        if not self.standard_error:
            return fewest
        return float(np.maximum(fewest, 2 * t.sf(abs(self.mean) / self.standard_error, self.degrees)))


def estimate(values: ArrayLike) -> Estimate:
    """Return the mean of (runs, tasks) values; every run has the same tasks.

    A single task shows nothing about other tasks, so it has no interval. Raises ValueError without values.
    """
    table = np.asarray(values, dtype=float)
    return _of_one_task(table) or (_wilson(table) if are_flags(table) else _crossed(table))


def estimate_difference(a: ArrayLike, b: ArrayLike, is_paired: bool = True) -> Estimate:
    """Return the mean of a - b, (runs, tasks) values that are paired by task and, if `is_paired`, by run."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    tables = [difference_of(first, second)] if is_paired else [first, -second]
    of_flags = are_flags(first) and are_flags(second)
    if not is_paired and of_flags:
        return estimate_difference(first[:1], second[:1])
    if is_paired and not tables[0].any():  # t's interval would be 0; that of flags is wider than that of any shares
        of_flags = bool(min(first.min(initial=0), second.min(initial=0)) >= 0 and first.max(initial=0) <= 1)
    return _of_one_task(*tables) or (_agresti_min(tables[0]) if of_flags else _crossed(*tables))


def difference_of(a: _Table, b: _Table) -> _Table:
    """Return a - b, with 0 where they differ by rounding alone."""
    table = a - b
    table[np.abs(table) <= ROUNDING * np.maximum(np.abs(a), np.abs(b))] = 0.0
    return table


def are_flags(table: _Table) -> bool:
    """Return whether all values are 0 or 1, in one run or in runs that are all alike: nothing shows how they vary."""
    return bool(np.isin(table, (0.0, 1.0)).all() and (table == table[:1]).all())


def _of_one_task(*tables: _Table) -> Estimate | None:
    if not tables[0].size:
        raise ValueError("an interval needs at least one value")
    mean = sum(float(table.mean()) for table in tables)
    return Estimate(mean, 1, 1, _means(*tables), nan, nan, nan, nan) if tables[0].shape[1] == 1 else None


def _wilson(table: _Table) -> Estimate:
    """Score interval of a share (Wilson 1927): its width is never 0, its ends are within 0..1."""
    n, p, z = table.shape[1], float(table.mean()), _quantile(inf)
    centre = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    error = float(np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))) / (1 + z**2 / n)
    low, high = max(0.0, centre - z * error), min(1.0, centre + z * error)
    return Estimate(p, n, int(table[0].sum()), _means(table), low, high, error, inf)


def _agresti_min(table: _Table) -> Estimate:
    """Interval of a difference of paired shares (Agresti and Min 2005): its width is never 0.

    Wald's interval after adding two tasks, of which each arm alone solves half of one.
    """
    n, n_changed = table.shape[1] + 2, int((table[0] != 0).sum())
    centre = float(table[0].sum()) / n
    error = float(np.sqrt(((table[0] ** 2).sum() + 1) / n - centre**2) / np.sqrt(n))
    low, high = centre - _quantile(inf) * error, centre + _quantile(inf) * error
    return Estimate(float(table.mean()), table.shape[1], n_changed, _means(table), low, high, error, inf)


def _crossed(*tables: _Table) -> Estimate:
    """Interval of the sum of the tables' means, with tasks and runs as crossed random effects.

    Variance of the mean = variance of the tasks' means / n tasks + of each table, the variance between its runs beyond
    the noise within them / n runs. Degrees of freedom by Satterthwaite, with `CAUTION`. Each end is the wider one of
    Student's and Hall's: Student's interval of rare rates ends too early on the side of their tail.
    """
    n_tasks, means = tables[0].shape[1], _means(*tables)
    tables = tuple(table[:1] if (table == table[:1]).all() else table for table in tables)
    of_tasks = tables[0].mean(0) if len(tables) == 1 else difference_of(tables[0].mean(0), -tables[1].mean(0))
    mean, n_changed = float(of_tasks.mean()), int((of_tasks != 0).sum())
    if any(len(table) == 2 for table in tables):
        return Estimate(mean, n_tasks, n_changed, means, nan, nan, nan, nan)
    task_variance = float(of_tasks.var(ddof=1)) / n_tasks
    of_runs = [(_between_runs(table), len(table)) for table in tables if len(table) > 1]
    error = float(np.sqrt(task_variance + sum(variance for variance, _ in of_runs)))
    if error <= CONSTANT * max(float(np.abs(table).max()) for table in tables):
        return Estimate(mean, n_tasks, n_changed, means, mean, mean, 0.0, inf)
    degrees = float(degrees_of(task_variance, n_tasks, *of_runs))
    skewness = float((((of_tasks - mean) / error) ** 3).mean()) / n_tasks**2
    y = _quantile(degrees)
    low, high = mean - error * max(y, _hall(y, skewness)), mean - error * min(-y, _hall(-y, skewness))
    return Estimate(mean, n_tasks, n_changed, means, low, high, error, degrees)


def _between_runs(table: _Table) -> float:
    """Return the part of the variance of the mean that comes from how (runs, tasks) values vary between runs."""
    n_runs, n_tasks = len(table), table.shape[1]
    residuals = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
    noise = float((residuals**2).sum()) / ((n_runs - 1) * (n_tasks - 1))
    between: float = table.mean(1).var(ddof=1) - SUBTRACTED * noise / n_tasks
    return max(0.0, between) / n_runs


def _hall(y: float, skewness: float) -> float:
    """Return the standardised mean that Hall's transformation (1992) takes to y; `skewness`: that of the mean.

    The inverse of u + s u² / 3 + s² u³ / 27 + s / 6, which is (3 / s) ((1 + s (y - s / 6))^(1/3) - 1).
    """
    root = float(np.cbrt(1 + skewness * (y - skewness / 6)))
    return 3 * (y - skewness / 6) / (root**2 + root + 1)


def degrees_of(task_variance: float, n_tasks: int, *of_runs: tuple[ArrayLike, int]) -> _Table:
    """Return t's degrees of freedom; `of_runs`: variance between the runs of a table, or several, and their number."""
    variances = [np.asarray(task_variance), *(CAUTION * np.asarray(variance, dtype=float) for variance, _ in of_runs)]
    numbers = [n_tasks - 1, *(n - 1 for _, n in of_runs)]
    total = np.sum(np.broadcast_arrays(*variances), axis=0)
    parts = sum((variance / total) ** 2 / number for variance, number in zip(variances, numbers, strict=True))
    return np.asarray(np.clip(1 / parts, min(numbers), n_tasks - 1))


def detectable(estimate: Estimate) -> float:
    """Return the smallest true difference that an experiment like the one of this estimate detects with `POWER`.

    Two-sided, as the interval: (t_0.975 + t_power) x standard error, with the estimate's degrees of freedom.
    Unlike the number of tasks that a difference of the observed size would take, it does not depend on the observed
    difference, which is noisy. Of values that are 0 or 1, never below what changes six tasks; otherwise infinite if
    fewer than six changed, or there is no interval.
    """
    if not estimate.standard_error:
        return inf
    if np.isinf(estimate.degrees):
        return max(quantiles(inf) * estimate.standard_error, smallest_share(estimate.n_tasks))
    is_known = estimate.n_changed >= FEWEST_CHANGED and estimate.has_interval
    return quantiles(estimate.degrees) * estimate.standard_error if is_known else inf


def smallest_share(n_tasks: int) -> float:
    """Return the share of tasks, all gained, of which `FEWEST_CHANGED` change with `POWER`; infinite for fewer."""
    if n_tasks < FEWEST_CHANGED:
        return inf
    return float(beta.ppf(POWER, FEWEST_CHANGED, n_tasks - FEWEST_CHANGED + 1))


def quantiles(degrees: float) -> float:
    """Return the standard errors of a difference that is detected with `POWER`."""
    return _quantile(degrees) + float(t.ppf(POWER, degrees))


def _means(*tables: _Table) -> tuple[float, ...]:
    return tuple(tables[0].mean(1).tolist()) if len(tables) == 1 else ()


def _quantile(degrees: float) -> float:
    share = 0.5 + LEVEL / 2
    return float(norm.ppf(share) if np.isinf(degrees) else t.ppf(share, degrees))
