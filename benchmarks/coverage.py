"""Coverage of the report's 95 % intervals and its false alarms, by simulation, as Markdown tables (docs/methods.md).

    python benchmarks/coverage.py                        2,000 experiments per row; about ten minutes

An experiment has n tasks and two sides, each with one or several training runs. A task's chance to be solved (or an
attempt's to be correct) follows a logistic model: difficulty of the task + effect of the side + effect of the run +
interactions. Tasks are those of the demo, roughly: 40 % are almost never solved, 25 % almost always. Runs differ by the
given standard deviation of the mean share, in points. Rare rates are drawn from a beta distribution, about as skewed as
the demo's second attempts. Every experiment draws new tasks, runs and samples; an interval covers if it contains the
true difference, which a far larger sample gives.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arc_refinery.evaluation.intervals import Estimate, estimate, estimate_difference
from arc_refinery.evaluation.statistics import compare

INTERACTION = 0.3  # standard deviation of run x task, on the logistic scale
ATTEMPTS = 64  # per task, of a pass rate
SKEW = 0.15  # first parameter of the beta distribution of rare rates
MANY = 400_000  # tasks that give the true values
RNG = np.random.default_rng(0)
Floats = NDArray[np.float64]


class Case(NamedTuple):
    """Two sides of a simulated comparison."""

    title: str
    n_tasks: int
    n_runs: tuple[int, int]  # one run of the second side is compared with each of the first
    points: float = 0.0  # standard deviation of runs: of the first side, or of both
    n_attempts: int = 1
    effect: float = 0.0  # of the first side, on the logistic scale
    are_both_random: bool = False  # whether the runs of the second side differ, too
    is_paired: bool = True
    shared: float = 0.0  # standard deviation of side x task that all runs of a side share, on the logistic scale

    def chances(self, n_tasks: int, n_runs: tuple[int, int]) -> list[Floats]:
        """Return the chances of each side, (runs, tasks)."""
        difficulty, deviation = difficulties(n_tasks), deviation_of(self.points)
        effects = [(self.effect, deviation), (0.0, deviation * self.are_both_random)]
        return [
            logistic(
                difficulty
                + effect
                + RNG.normal(0, 1, (runs, 1)) * of_runs
                + RNG.normal(0, 1, n_tasks) * self.shared
                + RNG.normal(0, INTERACTION, (runs, n_tasks))
            )
            for (effect, of_runs), runs in zip(effects, n_runs, strict=True)
        ]

    def truth(self) -> float:
        """Return the true difference over tasks and runs, each task in a run of its own."""
        if not self.effect:
            return 0.0
        runs = RNG.normal(0, 1, MANY) * deviation_of(self.points)
        noise = RNG.normal(0, np.hypot(INTERACTION, self.shared), (2, MANY))
        difficulty = difficulties(MANY)
        return float((logistic(difficulty + self.effect + runs + noise[0]) - logistic(difficulty + noise[1])).mean())

    def simulate(self, n_experiments: int) -> str:
        found = []
        for _ in range(n_experiments):
            first, second = (RNG.binomial(self.n_attempts, p) / self.n_attempts for p in self.chances(*self[1:3]))
            if self.is_paired and len(second) < len(first):
                second = np.repeat(second, len(first), axis=0)
            found.append(verdict(first, second, self.is_paired))
        runs = " / ".join(map(str, self.n_runs)) if self.are_both_random else self.n_runs[0]
        return row(self.title, self.n_tasks, runs, self.points, self.truth(), found)


def verdict(first: Floats, second: Floats, is_paired: bool = True) -> tuple[Estimate, bool]:
    """Return the interval of a difference, and whether the report calls it supported."""
    if np.isin([*first, *second], (0, 1)).all():
        comparison = compare("", "", first, second, is_paired)
        return comparison.difference, comparison.supports_difference
    difference = estimate_difference(first, second, is_paired)
    return difference, difference.supports_difference


def difficulties(n: int) -> Floats:
    kinds = RNG.choice(3, p=[0.40, 0.25, 0.35], size=n)
    return np.choose(kinds, [RNG.normal(-5, 1, n), RNG.normal(5, 1, n), RNG.normal(0, 1.5, n)])


def logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


@cache
def deviation_of(points: float) -> float:
    """Return the deviation on the logistic scale that moves the mean chance by so many points."""
    x = difficulties(MANY) + RNG.normal(0, INTERACTION, MANY)
    slope = (logistic(x + 0.05).mean() - logistic(x - 0.05).mean()) / 0.1
    return float(points / 100 / slope)


def row(
    title: str,
    n_tasks: int,
    runs: object,
    points: float,
    truth: float,
    found: Sequence[tuple[Estimate, bool | None]],
) -> str:
    """Return a line of the table; `found`: the interval of each experiment, and whether it is called supported."""
    low, high = np.array([(interval.low, interval.high) for interval, _ in found]).T
    covered = 100 * float(((low <= truth + 1e-12) & (truth <= high + 1e-12)).mean())
    supported = [is_supported for _, is_supported in found if is_supported is not None]
    alarms = f"{100 * np.mean(supported):.1f} %" if supported else "–"
    cells = [title, n_tasks, runs, f"{points:g}", f"{100 * truth:+.1f}", f"{covered:.1f} %"]
    return f"| {' | '.join(map(str, cells))} | {100 * (high - low).mean():.1f} | {alarms} |"


KINDS = (("tasks solved", 1), ("pass rate", ATTEMPTS))


def differences(n_experiments: int) -> Iterator[str]:
    """Yield trained runs against one sampling of the untrained model."""
    runs = [(1, 0.0), *product((3, 5), (0.0, 1.0, 2.0))]
    for (what, k), n_tasks, (n_runs, points), effect in product(KINDS, (50, 200), runs, (0.0, 0.5)):
        yield Case(what, n_tasks, (n_runs, 1), points, k, effect).simulate(n_experiments)


def both_trained(n_experiments: int) -> Iterator[str]:
    """Yield trained runs against trained runs of the same seeds, both sampled in each run."""
    for (what, k, n_tasks), n_runs, points, shared in product(
        (("tasks solved", 1, 200), ("pass rate of 8", 8, 400)), (3, 5), (0.0, 1.0, 2.0, 3.0), (0.0, 0.5)
    ):
        title = f"{what}, {'something' if shared else 'nothing'} shared"
        yield Case(title, n_tasks, (n_runs, n_runs), points, k, shared=shared).simulate(n_experiments)


def unpaired(n_experiments: int) -> Iterator[str]:
    """Yield runs of other seeds, and one run against several."""
    sides = [(3, 3), (3, 5), (3, 1), (5, 1)]
    for (what, k), n_runs, n_tasks, points in product(KINDS, sides, (100, 300), (0.0, 2.0)):
        yield Case(what, n_tasks, n_runs, points, k, 0.0, True, n_runs[1] == 1).simulate(n_experiments)


def means(n_experiments: int) -> Iterator[str]:
    """Yield the intervals of the means of one side: shares of tasks solved, and pass rates."""
    for (what, k), n_tasks in product(KINDS, (50, 200)):
        case = Case(what, n_tasks, (1, 1))
        truth = float(case.chances(MANY, (1, 1))[0].mean())
        chances = (case.chances(n_tasks, (1, 1))[0] for _ in range(n_experiments))
        yield row(what, n_tasks, 1, 0.0, truth, [(estimate(RNG.binomial(k, p) / k), None) for p in chances])


def rare_rates(mean: float, n: int) -> Floats:
    return RNG.beta(SKEW, SKEW * (1 - mean) / mean, n)


def rare_means(n_experiments: int) -> Iterator[str]:
    """Yield the intervals of rare pass rates."""
    for mean, n_tasks in product((0.007, 0.03, 0.06), (10, 27, 100, 300)):
        rates = (RNG.binomial(ATTEMPTS, rare_rates(mean, n_tasks)) / ATTEMPTS for _ in range(n_experiments))
        found = [(estimate([values]), None) for values in rates]
        yield row(f"pass rate of {100 * mean:g} %", n_tasks, 1, 0.0, mean, found)


def rare_differences(n_experiments: int) -> Iterator[str]:
    """Yield differences of rare pass rates; half of the tasks are as hard for one side as for the other."""

    def draw(n: int) -> list[Floats]:
        second = rare_rates(low, n)
        alike = np.minimum(1, second * high / low)
        return [np.where(RNG.random(n) < 0.5, alike, rare_rates(high, n)), second]

    rates = ((0.007, 0.007), (0.03, 0.03), (0.03, 0.007), (0.06, 0.007), (0.06, 0.03))
    for (high, low), n_tasks in product(rates, (10, 27, 100, 300)):
        first, second = draw(MANY)
        truth = float(first.mean() - second.mean()) if high > low else 0.0
        found = []
        for _ in range(n_experiments):
            first, second = (RNG.binomial(ATTEMPTS, chances)[None] / ATTEMPTS for chances in draw(n_tasks))
            found.append(verdict(first, second))
        yield row(f"{100 * high:g} % − {100 * low:g} %", n_tasks, 1, 0.0, truth, found)


def rare_changes(n_experiments: int) -> Iterator[str]:
    """Yield differences of tasks solved where few tasks change hands: gained by 2, 4 or 10 %, lost by none."""
    for n_tasks, gained in product((50, 200), (0.0, 0.02, 0.04, 0.10)):
        found = []
        for _ in range(n_experiments):
            second = RNG.random((1, n_tasks)) < 0.5
            first = second | (RNG.random((1, n_tasks)) < 2 * gained)
            found.append(verdict(first.astype(float), second.astype(float)))
        yield row(f"{100 * gained:g} % of tasks gained", n_tasks, 1, 0.0, gained, found)


TABLES = {
    "Means of one arm": means,
    "Means of rare pass rates": rare_means,
    "Trained runs against one untrained sampling": differences,
    "Trained against trained, paired by seed": both_trained,
    "Other seeds, and one run against several": unpaired,
    "Differences of rare pass rates": rare_differences,
    "Differences where few tasks change": rare_changes,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2000, help="simulated experiments per row")
    parser.add_argument("--table", choices=[*TABLES], help="one table alone; default: all")
    arguments = parser.parse_args()
    header = "|  | n tasks | runs | SD of runs (points) | true value (points) | coverage | width (points) | supported |"
    for title in [arguments.table] if arguments.table else TABLES:
        RNG.bit_generator.state = np.random.default_rng(0).bit_generator.state  # a table does not depend on the others
        deviation_of.cache_clear()
        print(f"\n### {title}\n\n{header}\n|---|--:|--:|--:|--:|--:|--:|--:|")
        for line in TABLES[title](arguments.experiments):
            print(line, flush=True)


if __name__ == "__main__":
    main()
