"""Power: the smallest true difference that an experiment detects, after it and before it.

>>> f"{100 * expected_of_rates(100, 64):.1f}"  # points: pass rates of 64 second attempts on each of 100 tasks
'1.3'
>>> f"{100 * expected_of_solved(100):.1f}"  # tasks solved, of 100
'10.3'

Before a run, nothing is known about its arms, so the results of the demo are assumed (docs/methods.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

SIGNIFICANCE = 0.05
POWER = 0.8  # chance that the experiment of `detectable` shows its difference

CHANGED_HANDS = 0.13  # share of tasks that only one of two arms solves
RATE = 0.03  # share of attempts of a turn that are right
SPREAD = 0.035  # standard deviation over tasks of the true differences of such rates
SHARED = 0.75  # part of what a task changes that several trainings share (seeds-demo: 0.69 to 0.78)
MOST_TASKS = 10**7


def detectable(standard_error: float) -> float:
    """Return the smallest true difference that an experiment with this standard error detects with `POWER`.

    Two-sided at p < `SIGNIFICANCE`, normal approximation: (z_0.975 + z_power) x standard error. Unlike the number of
    tasks that a difference of the observed size would take, it does not depend on the observed difference, which is
    noisy.
    """
    normal = NormalDist()
    return (normal.inv_cdf(1 - SIGNIFICANCE / 2) + normal.inv_cdf(POWER)) * standard_error


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison before it is made; shares and differences are between 0 and 1."""

    n_tasks: int
    n_attempts: int | None = None  # compared are the pass rates of a turn with so many attempts; None: tasks solved
    changed: float = CHANGED_HANDS  # share of tasks that only one of the two arms solves
    run_spread: float = 0.0  # standard deviation of the true differences of trainings

    def detects(self, n_tasks: int, n_runs: int = 1) -> float:
        """Return the smallest difference that so many tasks and trainings detect."""
        if self.n_attempts:
            noise = 2 * RATE * (1 - RATE) / self.n_attempts
            variance = (SPREAD**2 + noise / n_runs) / n_tasks
        else:  # the standard error of Agresti and Min
            n = n_tasks + 2
            variance = (self.changed * n_tasks + 1) / n**2 * (SHARED + (1 - SHARED) / n_runs)
        return detectable((variance + self.run_spread**2 / n_runs) ** 0.5)

    def tasks_needed(self, difference: float, n_runs: int) -> int | None:
        """Return the tasks that detect a difference; None if the trainings vary too much for any number of tasks."""
        return _first(lambda n: self.detects(n, n_runs) <= difference)


def _first(is_enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number of tasks that is enough; more than enough is enough, too."""
    low, high = 0, 1
    while not is_enough(high):
        low, high = high, 2 * high
        if low > MOST_TASKS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def expected_of_rates(n_tasks: int, n_attempts: int) -> float:
    """Return what a comparison of pass rates of one turn is expected to detect; arms have `n_attempts` per task."""
    return Plan(n_tasks, n_attempts).detects(n_tasks)


def expected_of_solved(n_tasks: int) -> float:
    """Return what a comparison of tasks solved is expected to detect."""
    return Plan(n_tasks).detects(n_tasks)
