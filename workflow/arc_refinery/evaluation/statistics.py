"""Estimates and their uncertainty. Tasks are what varies: intervals resample tasks, tests pair them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from arc_refinery.seeding import stream

SIGNIFICANCE = 0.05

Interval = tuple[float, float]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over n tasks of one arm's figure minus the other's, with its 95 % interval."""

    n: int
    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which tasks two arms solved, paired by task."""

    first: str
    second: str
    n_first: int  # tasks that the first arm solved
    n_second: int
    only_first: int  # tasks that the first arm solved and the second did not
    only_second: int
    difference: Difference  # share of tasks solved, first minus second
    p_value: float  # exact McNemar test

    @property
    def supports_difference(self) -> bool:
        """The evidence supports a difference when the interval excludes 0 and p < 0.05."""
        return self.difference.excludes_zero and self.p_value < SIGNIFICANCE


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k samples is correct, given c correct ones among n (Chen et al. 2021, eq. 1)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def solved_at_k(train_is_correct: Bools, test_is_correct: Bools, k: int) -> float:
    """pass@k of `is_correct`: chance that k of a task's attempts, drawn at random, contain one that is correct on the
    train pairs and one that is correct on the test pairs (mostly the same one; then this is the usual pass@k).

    P(train and test) = P(train) + P(test) - P(train or test), each of them a pass@k.
    """
    n = len(train_is_correct)
    counts = [int(flags.sum()) for flags in (train_is_correct, test_is_correct, train_is_correct | test_is_correct)]
    train, test, either = (pass_at_k(n, c, k) for c in counts)
    return train + test - either


def bootstrap_interval(values: ArrayLike, n_resamples: int, *address: int | str) -> Interval:
    """95 % percentile interval of the mean, resampling the values (one a task) with the random stream of `address`."""
    sample = np.asarray(values, dtype=float)
    if not len(sample):
        raise ValueError("an interval needs at least one value")
    places = stream(*address).integers(len(sample), size=(n_resamples, len(sample)), dtype=np.int32)
    low, high = np.percentile(sample[places].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def paired_difference(a: ArrayLike, b: ArrayLike, n_resamples: int, *address: int | str) -> Difference:
    """Mean of a - b, where a[i] and b[i] are figures of the same task, with the bootstrap interval over tasks."""
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    low, high = bootstrap_interval(differences, n_resamples, *address)
    return Difference(len(differences), float(differences.mean()), low, high)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of so uneven a split of the tasks that just one arm solved, if both arms are equally good."""
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def compare(first: str, second: str, a: ArrayLike, b: ArrayLike, n_resamples: int, *address: int | str) -> Comparison:
    """Compare which tasks two arms solved; a[i] and b[i] say whether the first and the second one solved task i."""
    solved, other = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    only_first, only_second = int((solved & ~other).sum()), int((other & ~solved).sum())
    return Comparison(
        first=first,
        second=second,
        n_first=int(solved.sum()),
        n_second=int(other.sum()),
        only_first=only_first,
        only_second=only_second,
        difference=paired_difference(solved, other, n_resamples, *address),
        p_value=mcnemar(only_first, only_second),
    )


def verdict_sentence(comparison: Comparison) -> str:
    """Says in plain words whether the evidence supports a difference between two arms, with all the numbers."""
    c, d = comparison, comparison.difference
    numbers = (
        f"`{c.first}` solved {c.n_first} of {d.n} tasks ({percent(c.n_first / d.n)}) and `{c.second}` {c.n_second} "
        f"({percent(c.n_second / d.n)}): {points(d.mean)} points, 95 % interval [{points(d.low)}, {points(d.high)}]; "
        f"{c.only_first} solved by the first only, {c.only_second} by the second only, "
        f"exact McNemar {p_text(c.p_value)}."
    )
    if not c.supports_difference:
        return f"{numbers} **The evidence does not support a difference.**"
    better = c.first if d.mean > 0 else c.second
    return f"{numbers} **The evidence supports a difference: `{better}` solves more.**"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def points(share: float, decimals: int = 1) -> str:
    """A difference of shares in percentage points, with its sign."""
    return f"{round(100 * share, decimals) + 0.0:+.{decimals}f}"


def p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def two_guesses_solve(train_is_correct: Bools, test_is_correct: Bools, fingerprints: Sequence[str]) -> bool:
    """Whether a submission of two guesses solves a task.

    Attempts that are correct on all train pairs vote for their test outputs; the two with most votes are the guesses
    (ties: what came first). Fingerprints cover train outputs too, but voters agree on these. No voter, no guess.
    """
    voters = np.flatnonzero(train_is_correct).tolist()
    votes = Counter(fingerprints[voter] for voter in voters)
    guesses = {fingerprint for fingerprint, _ in votes.most_common(2)}
    return any(bool(test_is_correct[voter]) and fingerprints[voter] in guesses for voter in voters)


def two_guess_scores(attempts: pd.DataFrame, task_ids: Sequence[str]) -> Floats:
    """1 for each task that two guesses solve, else 0."""
    tasks = _arrays(attempts, ["train_is_correct", "test_is_correct", "fingerprint"])
    return np.array([task_id in tasks and two_guesses_solve(*tasks[task_id]) for task_id in task_ids], dtype=float)


def pass_at_k_scores(attempts: pd.DataFrame, task_ids: Sequence[str], k: int) -> Floats:
    """`solved_at_k` of each task; a task with fewer than k attempts counts with all that it has."""
    nothing = [np.zeros(0, bool), np.zeros(0, bool)]
    tasks = _arrays(attempts, ["train_is_correct", "test_is_correct"])
    correct = [tasks.get(task_id, nothing) for task_id in task_ids]
    return np.array([_solved(train, test, k) for train, test in correct])


def budget_curve(attempts: pd.DataFrame, task_ids: Sequence[str], n_first: int, budget: int) -> pd.DataFrame:
    """Share of tasks solved, and tokens spent a task, after 1, 2, ..., `budget` attempts a task (means over tasks).

    Within the first turn (`n_first` attempts) these are expectations over the order of attempts (`solved_at_k`); from
    then on all first-turn attempts are spent and later ones count in their order, slot by slot.
    """
    tasks = _arrays(attempts, ["slot", "train_is_correct", "test_is_correct", "tokens"])
    solved, tokens = np.zeros(budget), np.zeros(budget)
    for task_id in task_ids:
        if task_id not in tasks:
            continue
        slot, train, test, cost = tasks[task_id]
        first = slot < n_first
        for k in range(1, budget + 1):
            if k <= n_first:
                solved[k - 1] += _solved(train[first], test[first], k)
                tokens[k - 1] += cost[first].mean() * min(k, first.sum()) if first.any() else 0.0
            else:
                spent = slot < k
                solved[k - 1] += train[spent].any() and test[spent].any()
                tokens[k - 1] += cost[spent].sum()
    n = len(task_ids)
    table = {"budget": np.arange(1, budget + 1), "tokens": tokens / n, "solved": solved / n, "solved_tasks": solved}
    return pd.DataFrame(table)


def _solved(train_is_correct: Bools, test_is_correct: Bools, k: int) -> float:
    n = len(train_is_correct)
    return solved_at_k(train_is_correct, test_is_correct, min(k, n)) if n else 0.0


def _arrays(attempts: pd.DataFrame, columns: list[str]) -> dict[str, list[Any]]:
    """For each task the values of some columns, as arrays in the order of its attempts."""
    groups = attempts.groupby("task_id")
    return {str(task_id): [rows[column].to_numpy() for column in columns] for task_id, rows in groups}
