"""Power: the smallest true difference that an experiment will detect.

>>> f"{100 * Plan(100, n_attempts=64).detects():.1f}"  # points: pass rates of 64 second attempts on each of 100 tasks
'1.3'
>>> f"{100 * Plan(100).detects():.1f}"  # tasks solved, of 100
'10.3'

Before a run, nothing is known about its arms, so the results of the demo are assumed (docs/methods.md).
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import inf, sqrt

SIGNIFICANCE = 0.05
POWER = 0.8  # chance that an experiment shows its detectable difference

CHANGED_HANDS = 0.13  # share of tasks that only one of two arms solves
RATE = 0.03  # share of attempts of a turn that are right
SPREAD = 0.035  # standard deviation over tasks of the true differences of such rates
SHARED = 0.75  # part of what a task changes that several trainings share (seeds-demo: 0.69 to 0.78)
MOST_TASKS = 10**7


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison before it is made; shares and differences are between 0 and 1."""

    n_tasks: int
    n_attempts: int | None = None  # compared are the pass rates of a turn with so many attempts; None: tasks solved
    changed: float = CHANGED_HANDS  # share of tasks that only one of the two arms solves
    run_spread: float = 0.0  # standard deviation of the true differences of trainings

    def detects(self, n_runs: int = 1) -> float:
        """Return the smallest difference that so many trainings detect; one training shows nothing of others.

        What several trainings vary by is estimated from them, well or badly, and with it the width of the interval: the
        power is the mean over what they may show, quantiles of chi square.
        """
        import numpy as np  # configs import this module, and scipy takes longer than all the rest
        from scipy.optimize import brentq
        from scipy.stats import chi2, norm, t

        from arc_refinery.evaluation.intervals import degrees_of, quantiles

        if self.n_tasks < 2:
            return inf  # a task shows nothing of others
        if self.n_attempts:
            shared, noise = SPREAD**2 / self.n_tasks, 2 * RATE * (1 - RATE) / self.n_attempts / self.n_tasks
        else:  # the variance of Agresti and Min
            variance = (self.changed * self.n_tasks + 1) / (self.n_tasks + 2) ** 2
            shared, noise = SHARED * variance, (1 - SHARED) * variance
        of_tasks, of_run = shared + noise / n_runs, self.run_spread**2
        if n_runs == 1:
            return quantiles(self.n_tasks - 1 if self.n_attempts else inf) * sqrt(of_tasks)
        error = sqrt(of_tasks + of_run / n_runs)
        between = (noise + of_run) * chi2.ppf((np.arange(100) + 0.5) / 100, n_runs - 1) / (n_runs - 1)
        of_runs = np.maximum(0, between - noise) / n_runs
        limits = t.ppf(1 - SIGNIFICANCE / 2, degrees_of(of_tasks, of_runs, n_runs, self.n_tasks))
        limits *= np.sqrt(of_tasks + of_runs) / error  # of a significant difference, in standard errors

        def lacking(difference: float) -> float:
            return POWER - float(np.mean(norm.sf(limits - difference) + norm.cdf(-limits - difference)))

        return error * float(brentq(lacking, 0, limits.max() + norm.ppf(POWER)))

    def tasks_needed(self, difference: float, n_runs: int) -> int | None:
        """Return the tasks that detect a difference; None if the trainings vary too much for any number of tasks.

        For one training, or three and more: two that vary may detect less with more tasks.
        """
        numbers = range(1, MOST_TASKS)
        found = bisect_left(numbers, True, key=lambda n: replace(self, n_tasks=n).detects(n_runs) <= difference)
        return numbers[found] if found < len(numbers) else None
