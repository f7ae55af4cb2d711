"""Power: the smallest true difference that an experiment detects, after it and before it.

>>> f"{100 * Plan(100, n_attempts=64).detects():.1f}"  # points: pass rates of 64 second attempts on each of 100 tasks
'1.3'
>>> f"{100 * Plan(100).detects():.1f}"  # tasks solved, of 100
'10.3'

Before a run, nothing is known about its arms, so the results of the demo are assumed (docs/methods.md).
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
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

    def detects(self, n_runs: int = 1) -> float:
        """Return the smallest difference that so many trainings detect."""
        if self.n_attempts:
            noise = 2 * RATE * (1 - RATE) / self.n_attempts
            variance = (SPREAD**2 + noise / n_runs) / self.n_tasks
        else:  # the standard error of Agresti and Min
            n = self.n_tasks + 2
            variance = (self.changed * self.n_tasks + 1) / n**2 * (SHARED + (1 - SHARED) / n_runs)
        return detectable((variance + self.run_spread**2 / n_runs) ** 0.5)

    def tasks_needed(self, difference: float, n_runs: int) -> int | None:
        """Return the tasks that detect a difference; None if the trainings vary too much for any number of tasks."""
        numbers = range(1, MOST_TASKS)
        found = bisect_left(numbers, True, key=lambda n: replace(self, n_tasks=n).detects(n_runs) <= difference)
        return numbers[found] if found < len(numbers) else None
