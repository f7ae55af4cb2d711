"""Power: the smallest true difference that an experiment will detect.

>>> f"{100 * Plan(100, n_attempts=64).detects():.1f}"  # points: pass rates of 64 second attempts on each of 100 tasks
'1.3'
>>> f"{100 * Plan(100).detects():.1f}"  # tasks solved, of 100
'10.3'
>>> Plan(27).detects()  # more than the tasks that are assumed to change
inf

Before a run, nothing is known about its arms, so committed results of the same domain are assumed (docs/methods.md).
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import inf, sqrt

SIGNIFICANCE = 0.05
POWER = 0.8  # chance that an experiment shows its detectable difference
FEWEST_CHANGED = 6  # tasks that have to differ for p < 0.05: 2 / 2^6 = 0.031

SHARED = 0.75  # part of what a task changes that several trainings share (seeds-demo: 0.76, code-trained: 0.65)
MOST_TASKS = 10**7


@dataclass(frozen=True, slots=True)
class Plan:
    """A comparison before it is made; shares and differences are between 0 and 1.

    Defaults: domain `arc`; pass rates as in `demo` (heldout), changed tasks as in `demo` and `seeds-demo` (0.15 to 0.18
    on heldout, less on ARC).
    """

    n_tasks: int
    n_attempts: int | None = None  # compared are the pass rates of a turn with so many attempts; None: tasks solved
    changed: float = 0.13  # share of tasks that only one of the two arms solves
    run_spread: float = 0.01  # standard deviation of the true differences of trainings
    rate: float = 0.03  # share of attempts of the turn that are right
    task_spread: float = 0.035  # standard deviation over tasks of the true differences of such rates
    noise: float = 1.0  # variance of such a difference in one training, in variances of 2 binomial rates

    @classmethod
    def of(cls, domain: str, n_tasks: int, n_attempts: int | None = None) -> "Plan":
        """Return a plan with what committed results of a domain measured; an unknown domain: that of `arc`."""
        if domain == "code":
            # code-trained, mbpp-test: `trained` - `trained-other-task` in turn 2 (361 tasks, 8 attempts, 3 trainings):
            # 38.6 % right, SD of trainings 2.0 points, of tasks 5.6, of residuals 15.9 = sqrt(0.43 x 2 r (1 - r) / 8);
            # tasks solved: `trained` - `independent` changes 5.7 % of 447, and 6.8 % of humaneval (SD of trainings 2.5)
            plan = cls(n_tasks, n_attempts, 0.06, 0.01, 0.386, 0.056, 0.43)
            return replace(plan, run_spread=0.02) if n_attempts else plan
        plan = cls(n_tasks, n_attempts)
        # two experiments of five trainings, `refine-trained` - `refine-base`: SD of trainings 0.27 and 0.38 points in
        # turn 2, 0.9 and 1.8 in tasks solved
        return replace(plan, run_spread=0.003) if n_attempts else plan

    def with_rate(self, rate: float) -> "Plan":
        """Return this plan with another pass rate; the differences of tasks spread as much, in binomial variances."""
        scale = rate * (1 - rate) / (self.rate * (1 - self.rate))
        return replace(self, rate=rate, task_spread=self.task_spread * sqrt(scale))

    @property
    def largest(self) -> float:
        """Return the largest difference there can be: of the tasks that change, or of a rate from 0 or 1."""
        return max(self.rate, 1 - self.rate) if self.n_attempts else self.changed

    def detects(self, n_runs: int = 1) -> float:
        """Return the smallest difference that so many trainings detect; one training shows nothing of others.

        Infinite if none: two trainings, fewer than six tasks, or more than the largest difference there can be. What
        several trainings vary by is estimated from them, well or badly, and with it the width of the interval: the
        power is the mean over what they may show, quantiles of chi square.
        """
        import numpy as np  # configs import this module, and scipy takes longer than all the rest
        from scipy.optimize import brentq
        from scipy.stats import chi2, norm, t

        from arc_refinery.evaluation.intervals import SUBTRACTED, degrees_of, quantiles, smallest_share

        if self.n_tasks < FEWEST_CHANGED or n_runs == 2:
            return inf
        if self.n_attempts:
            of_rate = 2 * self.rate * (1 - self.rate) / self.n_attempts
            shared, noise = self.task_spread**2 / self.n_tasks, self.noise * of_rate / self.n_tasks
        else:  # the variance of Agresti and Min
            variance = (self.changed * self.n_tasks + 1) / (self.n_tasks + 2) ** 2
            shared, noise = SHARED * variance, (1 - SHARED) * variance
        of_tasks, of_run = shared + noise / n_runs, self.run_spread**2
        if n_runs == 1:
            detected = quantiles(self.n_tasks - 1 if self.n_attempts else inf) * sqrt(of_tasks)
        else:
            error = sqrt(of_tasks + of_run / n_runs)
            between = (noise + of_run) * chi2.ppf((np.arange(100) + 0.5) / 100, n_runs - 1) / (n_runs - 1)
            of_runs = np.maximum(0, between - SUBTRACTED * noise) / n_runs
            limits = t.ppf(1 - SIGNIFICANCE / 2, degrees_of(of_tasks, self.n_tasks, (of_runs, n_runs)))
            limits *= np.sqrt(of_tasks + of_runs) / error  # of a significant difference, in standard errors

            def lacking(difference: float) -> float:
                return POWER - float(np.mean(norm.sf(limits - difference) + norm.cdf(-limits - difference)))

            detected = error * float(brentq(lacking, 0, limits.max() + norm.ppf(POWER)))
        if not self.n_attempts:
            detected = max(detected, smallest_share(self.n_tasks))
        return detected if detected <= self.largest else inf

    def tasks_needed(self, difference: float, n_runs: int) -> int | None:
        """Return the tasks that detect a difference; None if the trainings vary too much for any number of tasks.

        For one training, or three and more: two detect nothing.
        """
        numbers = range(1, MOST_TASKS)
        found = bisect_left(numbers, True, key=lambda n: replace(self, n_tasks=n).detects(n_runs) <= difference)
        return numbers[found] if found < len(numbers) else None
