"""Coverage of the report's 95 % intervals and its false alarms, by simulation, as Markdown tables (docs/methods.md).

    python benchmarks/coverage.py                        2,000 experiments per row; a few minutes

An experiment has n tasks and two arms, of which the first may have several training runs. A task's chance to be solved
(or an attempt's to be correct) follows a logistic model: difficulty of the task + effect of the arm + effect of the run
+ interaction. Tasks are those of the demo, roughly: 40 % are almost never solved, 25 % almost always. Runs differ by
the given standard deviation of the mean share, in points. Every experiment draws new tasks, runs and samples; an
interval covers if it contains the true difference, which a far larger sample gives.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arc_refinery.evaluation.intervals import estimate, estimate_difference
from arc_refinery.evaluation.statistics import compare

INTERACTION = 0.3  # standard deviation of arm x task, on the logistic scale
ATTEMPTS = 64  # per task, of a pass rate
MANY = 400_000  # tasks that give the true values
Floats = NDArray[np.float64]


class World(NamedTuple):
    """True values of the simulated arms."""

    effect: float  # effect of the first arm, on the logistic scale
    run_deviation: float  # standard deviation of runs, on the logistic scale

    def draw(self, rng: np.random.Generator, n_runs: int, n_tasks: int) -> tuple[Floats, Floats]:
        """Return the chances of both arms, (n_runs, n_tasks) and (1, n_tasks)."""
        difficulty = difficulties(rng, n_tasks)
        runs = rng.normal(0, 1, (n_runs, 1)) * self.run_deviation
        first = difficulty + self.effect + runs + rng.normal(0, INTERACTION, (n_runs, n_tasks))
        return logistic(first), logistic(difficulty + rng.normal(0, INTERACTION, (1, n_tasks)))

    def difference(self) -> float:
        """Return the true difference of the arms' mean chances over tasks and runs."""
        rng = np.random.default_rng(1)
        difficulty = difficulties(rng, MANY)
        runs = rng.normal(0, 1, MANY) * self.run_deviation
        first = logistic(difficulty + self.effect + runs + rng.normal(0, INTERACTION, MANY))
        return float(first.mean() - logistic(difficulty + rng.normal(0, INTERACTION, MANY)).mean())


def difficulties(rng: np.random.Generator, n: int) -> Floats:
    kinds = rng.choice(3, p=[0.40, 0.25, 0.35], size=n)
    return np.choose(kinds, [rng.normal(-5, 1, n), rng.normal(5, 1, n), rng.normal(0, 1.5, n)])


def logistic(x: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-x)))


def deviation_of(points: float) -> float:
    """Return the deviation on the logistic scale that moves the mean chance by so many points."""
    rng = np.random.default_rng(2)
    x = difficulties(rng, MANY) + rng.normal(0, INTERACTION, MANY)
    slope = (logistic(x + 0.05).mean() - logistic(x - 0.05).mean()) / 0.1
    return float(points / 100 / slope)


class Row(NamedTuple):
    what: str
    n_tasks: int
    n_runs: int
    points: float  # standard deviation of runs
    truth: float
    coverage: float
    width: float
    supported: float | None  # share of experiments that call the difference supported

    def __str__(self) -> str:
        alarms = "–" if self.supported is None else f"{100 * self.supported:.1f} %"
        cells = [self.what, self.n_tasks, self.n_runs, f"{self.points:g}", f"{100 * self.truth:+.1f}"]
        return f"| {' | '.join(map(str, cells))} | {100 * self.coverage:.1f} % | {100 * self.width:.1f} | {alarms} |"


def differences(n_experiments: int) -> Iterator[Row]:
    """Yield the intervals of differences: tasks solved once, and pass rates."""
    rng = np.random.default_rng(0)
    for what, k in (("tasks solved", 1), ("pass rate", ATTEMPTS)):
        for n_tasks in (50, 200):
            for n_runs, points in ((1, 0.0), *((runs, points) for runs in (3, 5) for points in (0.0, 1.0, 2.0))):
                for effect in (0.0, 0.5):
                    world = World(effect, deviation_of(points))
                    truth = world.difference() if effect else 0.0
                    intervals, supported = [], 0
                    for _ in range(n_experiments):
                        a, b = world.draw(rng, n_runs, n_tasks)
                        first, second = rng.binomial(k, a) / k, np.repeat(rng.binomial(k, b) / k, n_runs, axis=0)
                        difference = estimate_difference(first, second)
                        intervals.append((difference.low, difference.high))
                        is_supported = (
                            compare("", "", first, second).supports_difference if k == 1 else difference.excludes_zero
                        )
                        supported += is_supported
                    yield row(what, n_tasks, n_runs, points, truth, intervals, supported / n_experiments)


def means(n_experiments: int) -> Iterator[Row]:
    """Yield the intervals of the means of one arm: shares of tasks solved, and pass rates."""
    rng = np.random.default_rng(3)
    world = World(0.0, 0.0)
    truth = float(logistic(difficulties(rng, MANY) + rng.normal(0, INTERACTION, MANY)).mean())
    kinds: list[tuple[str, Callable[[Floats], Floats]]] = [
        ("share of tasks solved", lambda chances: rng.binomial(1, chances).astype(float)),
        ("mean pass rate", lambda chances: rng.binomial(ATTEMPTS, chances) / ATTEMPTS),
    ]
    for what, values in kinds:
        for n_tasks in (50, 200):
            means = [estimate([values(world.draw(rng, 1, n_tasks)[1][0])]) for _ in range(n_experiments)]
            yield row(what, n_tasks, 1, 0.0, truth, [(mean.low, mean.high) for mean in means], None)


def rare_changes(n_experiments: int) -> Iterator[Row]:
    """Yield differences of tasks solved where few tasks change hands: gained by 2, 4 or 10 %, lost by none."""
    rng = np.random.default_rng(4)
    for n_tasks in (50, 200):
        for gained in (0.0, 0.02, 0.04, 0.10):
            intervals, supported = [], 0
            for _ in range(n_experiments):
                second = rng.random(n_tasks) < 0.5
                first = second | (rng.random(n_tasks) < 2 * gained)
                comparison = compare("", "", [first], [second])
                intervals.append((comparison.difference.low, comparison.difference.high))
                supported += comparison.supports_difference
            title = f"{100 * gained:g} % of tasks gained"
            yield row(title, n_tasks, 1, 0.0, gained, intervals, supported / n_experiments)


def row(
    what: str,
    n_tasks: int,
    n_runs: int,
    points: float,
    truth: float,
    intervals: list[tuple[float, float]],
    supported: float | None,
) -> Row:
    low, high = np.array(intervals).T
    coverage = float(((low <= truth + 1e-12) & (truth <= high + 1e-12)).mean())
    return Row(what, n_tasks, n_runs, points, truth, coverage, float((high - low).mean()), supported)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=2000, help="simulated experiments per row")
    n_experiments = parser.parse_args().experiments
    header = "|  | n tasks | runs | SD of runs (points) | true value (points) | coverage | width (points) | supported |"
    for title, rows in (
        ("Means of one arm", means),
        ("Differences of two arms", differences),
        ("Differences where few tasks change", rare_changes),
    ):
        print(f"\n### {title}\n\n{header}\n|---|--:|--:|--:|--:|--:|--:|--:|")
        for result in rows(n_experiments):
            print(result, flush=True)


if __name__ == "__main__":
    main()
