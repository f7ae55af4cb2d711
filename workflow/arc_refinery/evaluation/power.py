"""Power: the smallest true difference that an experiment detects, after it and before it.

>>> f"{100 * expected_of_rates(100, 64):.1f}"  # points: pass rates of 64 second attempts on each of 100 tasks
'1.3'
>>> f"{100 * expected_of_solved(100):.1f}"  # tasks solved, of 100
'10.3'

Before a run, nothing is known about its arms, so the results of the demo are assumed (docs/methods.md).
"""

from statistics import NormalDist

SIGNIFICANCE = 0.05
POWER = 0.8  # chance that the experiment of `detectable` shows its difference

CHANGED_HANDS = 0.13  # share of tasks that only one of two arms solves
RATE = 0.03  # share of attempts of a turn that are right
SPREAD = 0.035  # standard deviation over tasks of the true differences of such rates


def detectable(standard_error: float) -> float:
    """Return the smallest true difference that an experiment with this standard error detects with `POWER`.

    Two-sided at p < `SIGNIFICANCE`, normal approximation: (z_0.975 + z_power) x standard error. Unlike the number of
    tasks that a difference of the observed size would take, it does not depend on the observed difference, which is
    noisy.
    """
    normal = NormalDist()
    return (normal.inv_cdf(1 - SIGNIFICANCE / 2) + normal.inv_cdf(POWER)) * standard_error


def expected_of_rates(n_tasks: int, n_attempts: int) -> float:
    """Return what a comparison of pass rates of one turn is expected to detect; arms have `n_attempts` per task."""
    noise = 2 * RATE * (1 - RATE) / n_attempts
    return detectable(((SPREAD**2 + noise) / n_tasks) ** 0.5)


def expected_of_solved(n_tasks: int) -> float:
    """Return what a comparison of tasks solved is expected to detect (standard error of Agresti and Min)."""
    n = n_tasks + 2
    return detectable(((CHANGED_HANDS * n_tasks + 1) / n) ** 0.5 / n**0.5)
