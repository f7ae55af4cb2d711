"""Ends of 95 % intervals over tasks as docs/methods.md writes them down: the wider ones of Student's and Hall's."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.stats import t


def wider_ends(of_tasks: ArrayLike, error: float | None = None, degrees: float | None = None) -> tuple[float, float]:
    """Solve Hall's transformation for both quantiles of t; `error`, `degrees`: by default those of one run."""
    values = np.asarray(of_tasks, dtype=float)
    n, mean = len(values), values.mean()
    error = values.std(ddof=1) / np.sqrt(n) if error is None else error
    quantile = t.ppf(0.975, n - 1 if degrees is None else degrees)
    s = ((values - mean) ** 3).sum() / n**3 / error**3  # skewness of the mean

    def ends(y: float) -> float:
        return float(mean - error * brentq(lambda u: u + s * u**2 / 3 + s**2 * u**3 / 27 + s / 6 - y, -999, 999))

    return min(mean - error * quantile, ends(quantile)), max(mean + error * quantile, ends(-quantile))
