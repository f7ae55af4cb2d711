"""Estimates and their uncertainty over tasks: intervals resample tasks, tests pair them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, comb
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest, bootstrap, norm

from arc_refinery.seeding import stream

SIGNIFICANCE = 0.05
POWER = 0.8  # of the test that `n_needed` plans for

Interval = tuple[float, float]
_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """Mean over n tasks of one arm's metric minus the other's, with its 95 % interval."""

    n: int
    mean: float
    low: float
    high: float
    deviation: float  # standard deviation of the tasks' differences

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def n_needed(self) -> int | None:
        """Tasks needed to detect a difference of this size with `POWER`, at p < 0.05, two-sided.

        Normal approximation for the mean of paired differences: ((z_0.975 + z_power) * deviation / mean)^2.
        """
        if abs(self.mean) < 1e-12:
            return None
        z = float(norm.ppf(1 - SIGNIFICANCE / 2) + norm.ppf(POWER))
        return max(2, ceil((z * self.deviation / self.mean) ** 2))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tasks solved by two arms, paired by task; for repeated arms, the means over repetitions."""

    first: str
    second: str
    n_first: float  # tasks that the first arm solved, mean over its repetitions
    n_second: float
    only_first: int  # tasks solved by the first arm and not by the second (repeated arms: solved more often)
    only_second: int
    difference: Difference  # share of tasks solved, first minus second
    p_value: float | None  # exact McNemar test; None for repeated arms
    repetitions: int = 1

    @property
    def supports_difference(self) -> bool:
        """Whether the interval excludes 0 and, for arms sampled once, p < 0.05."""
        return self.difference.excludes_zero and (self.p_value is None or self.p_value < SIGNIFICANCE)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that k of n samples, c of them correct, contain a correct one (Chen et al. 2021, eq. 1)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def solved_at_k(train_is_correct: _Bools, test_is_correct: _Bools, k: int) -> float:
    """Return pass@k of `is_correct`: the probability that k random attempts contain one that is correct on the train
    pairs and one that is correct on the test pairs (usually the same one; then this is ordinary pass@k).

    P(train and test) = P(train) + P(test) - P(train or test), each a pass@k.
    """
    n = len(train_is_correct)
    counts = [int(flags.sum()) for flags in (train_is_correct, test_is_correct, train_is_correct | test_is_correct)]
    train, test, either = (pass_at_k(n, c, k) for c in counts)
    return train + test - either


def bootstrap_interval(values: ArrayLike, n_resamples: int, *address: int | str) -> Interval:
    """Return the 95 % percentile interval of the mean; values (one per task) are resampled with `address` as seed."""
    sample = np.asarray(values, dtype=float)
    if not len(sample):
        raise ValueError("an interval needs at least one value")
    if len(sample) == 1:
        return float(sample[0]), float(sample[0])
    rng = stream(*address)
    drawn = bootstrap((sample,), np.mean, n_resamples=n_resamples, batch=1000, method="percentile", rng=rng)
    return float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)


def paired_difference(a: ArrayLike, b: ArrayLike, n_resamples: int, *address: int | str) -> Difference:
    """Return the mean of a - b and its bootstrap interval over tasks; a[i] and b[i] belong to the same task."""
    differences = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    low, high = bootstrap_interval(differences, n_resamples, *address)
    deviation = float(differences.std(ddof=1)) if len(differences) > 1 else 0.0
    return Difference(len(differences), float(differences.mean()), low, high, deviation)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of a split at least this uneven, if both arms are equally good."""
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def compare(first: str, second: str, a: ArrayLike, b: ArrayLike, n_resamples: int, *address: int | str) -> Comparison:
    """Compare which tasks two arms solved; a[i] and b[i]: whether the first and the second solved task i."""
    solved, other = np.asarray(a, dtype=bool), np.asarray(b, dtype=bool)
    mean = compare_repeated(first, second, [solved], [other], n_resamples, *address)
    return replace(mean, p_value=mcnemar(mean.only_first, mean.only_second))


def compare_repeated(
    first: str, second: str, a: Sequence[ArrayLike], b: Sequence[ArrayLike], n_resamples: int, *address: int | str
) -> Comparison:
    """Compare the means over repetitions of two arms; a[r][i]: whether repetition r of the first solved task i."""
    solved, other = np.mean(np.asarray(a, dtype=float), axis=0), np.mean(np.asarray(b, dtype=float), axis=0)
    return Comparison(
        first=first,
        second=second,
        n_first=float(solved.sum()),
        n_second=float(other.sum()),
        only_first=int((solved > other).sum()),
        only_second=int((other > solved).sum()),
        difference=paired_difference(solved, other, n_resamples, *address),
        p_value=None,
        repetitions=max(len(a), len(b)),
    )


def verdict_sentence(comparison: Comparison) -> str:
    """Return a sentence with all numbers that says whether the evidence supports a difference between two arms."""
    c, d = comparison, comparison.difference
    solved = [f"{count:.1f}" if c.repetitions > 1 else f"{count:.0f}" for count in (c.n_first, c.n_second)]
    only, more = ("solved by", "only") if c.p_value is not None else ("solved more often by", "")
    numbers = (
        f"`{c.first}` solved {solved[0]} of {d.n} tasks ({percent(c.n_first / d.n)}) and `{c.second}` {solved[1]} "
        f"({percent(c.n_second / d.n)}): {points(d.mean)} points, 95 % interval [{points(d.low)}, {points(d.high)}]; "
        f"{c.only_first} {only} the first {more}".rstrip()
        + f", {c.only_second} by the second {more}".rstrip()
    )
    numbers += f", exact McNemar {p_text(c.p_value)}." if c.p_value is not None else f" ({c.repetitions} repetitions)."
    if c.supports_difference:
        better = c.first if d.mean > 0 else c.second
        return f"{numbers} **The evidence supports a difference: `{better}` solves more.**"
    return f"{numbers} **The evidence does not support a difference.**{_needed_sentence(d)}"


def _needed_sentence(difference: Difference) -> str:
    if difference.n_needed is None:
        return ""
    return (
        f" Detecting a difference of this size takes about {difference.n_needed} tasks ({100 * POWER:.0f} % power, "
        f"p < {SIGNIFICANCE})."
    )


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def points(share: float, decimals: int = 1) -> str:
    """Format a difference of shares in percentage points, with its sign."""
    return f"{round(100 * share, decimals) + 0.0:+.{decimals}f}"


def p_text(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def two_guesses_solve(train_is_correct: _Bools, test_is_correct: _Bools, fingerprints: Sequence[str]) -> bool:
    """Whether a submission of two guesses solves a task.

    Attempts that are correct on all train pairs vote for their test outputs; the two outputs with most votes are the
    guesses (ties: the earlier one). Fingerprints include train outputs, on which all voters agree. Without voters there
    are no guesses.
    """
    voters = np.flatnonzero(train_is_correct).tolist()
    votes = Counter(fingerprints[voter] for voter in voters)
    guesses = {fingerprint for fingerprint, _ in votes.most_common(2)}
    return any(bool(test_is_correct[voter]) and fingerprints[voter] in guesses for voter in voters)


def two_guess_scores(attempts: pd.DataFrame, task_ids: Sequence[str]) -> _Floats:
    """Return 1 for each task that two guesses solve, else 0."""
    tasks = _arrays(attempts, ["train_is_correct", "test_is_correct", "fingerprint"])
    return np.array([task_id in tasks and two_guesses_solve(*tasks[task_id]) for task_id in task_ids], dtype=float)


def pass_at_k_scores(attempts: pd.DataFrame, task_ids: Sequence[str], k: int) -> _Floats:
    """Return `solved_at_k` of each task; a task with fewer than k attempts uses all of them."""
    nothing = [np.zeros(0, bool), np.zeros(0, bool)]
    tasks = _arrays(attempts, ["train_is_correct", "test_is_correct"])
    correct = [tasks.get(task_id, nothing) for task_id in task_ids]
    return np.array([_solved(train, test, k) for train, test in correct])


def budget_curve(
    attempts: pd.DataFrame, task_ids: Sequence[str], n_first: int, budget: int, n_resamples: int, *address: int | str
) -> pd.DataFrame:
    """Return the share of tasks solved and tokens per task after 1, 2, ..., `budget` attempts per task (task means).

    Within the first turn (`n_first` attempts) these are expectations over the order of attempts (`solved_at_k`). After
    it, all first-turn attempts are spent and later ones count in slot order. `low` and `high`: 95 % interval of the
    share at each budget, resampling tasks.
    """
    tasks = _arrays(attempts, ["slot", "train_is_correct", "test_is_correct", "tokens"])
    n = len(task_ids)
    solved, tokens = np.zeros((n, budget)), np.zeros(budget)
    for index, task_id in enumerate(task_ids):
        if task_id not in tasks:
            continue
        slot, train, test, cost = tasks[task_id]
        first = slot < n_first
        for k in range(1, budget + 1):
            if k <= n_first:
                solved[index, k - 1] = _solved(train[first], test[first], k)
                tokens[k - 1] += cost[first].mean() * min(k, first.sum()) if first.any() else 0.0
            else:
                spent = slot < k
                solved[index, k - 1] = train[spent].any() and test[spent].any()
                tokens[k - 1] += cost[spent].sum()
    drawn = stream(*address).multinomial(n, np.full(n, 1 / n), size=n_resamples)  # how often each task is drawn
    low, high = np.percentile(drawn @ solved / n, [2.5, 97.5], axis=0)
    return pd.DataFrame(
        {
            "budget": np.arange(1, budget + 1),
            "tokens": tokens / n,
            "solved": solved.mean(axis=0),
            "low": low,
            "high": high,
            "solved_tasks": solved.sum(axis=0),
        }
    )


def solved_within(attempts: pd.DataFrame, task_ids: Sequence[str], tokens: _Floats) -> _Floats:
    """Return 1 for each task solved within its budget of generated tokens, else 0. Attempts count in slot order.

    `tokens[i]` is the budget of task i; the attempt that exceeds it does not count.
    """
    tasks = _arrays(attempts, ["slot", "n_tokens", "train_is_correct", "test_is_correct"])
    solved = np.zeros(len(task_ids))
    for index, task_id in enumerate(task_ids):
        if task_id in tasks:
            slot, cost, train, test = tasks[task_id]
            order = np.argsort(slot, kind="stable")
            paid = order[np.cumsum(cost[order]) <= tokens[index]]
            solved[index] = train[paid].any() and test[paid].any()
    return solved


def generated_tokens(attempts: pd.DataFrame, task_ids: Sequence[str]) -> _Floats:
    """Return the tokens of all completions of each task."""
    sums = attempts.groupby("task_id")["n_tokens"].sum()
    return np.asarray(sums.reindex(list(task_ids), fill_value=0), dtype=float)


def _solved(train_is_correct: _Bools, test_is_correct: _Bools, k: int) -> float:
    n = len(train_is_correct)
    return solved_at_k(train_is_correct, test_is_correct, min(k, n)) if n else 0.0


def _arrays(attempts: pd.DataFrame, columns: list[str]) -> dict[str, list[Any]]:
    """Return some columns as arrays per task, in the order of its attempts."""
    groups = attempts.groupby("task_id")
    return {str(task_id): [rows[column].to_numpy() for column in columns] for task_id, rows in groups}
