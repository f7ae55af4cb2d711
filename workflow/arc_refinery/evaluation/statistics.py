"""Comparisons of arms, and scores of tasks that combine their attempts. Intervals: intervals.py."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from math import comb, isnan
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binomtest

from arc_refinery.evaluation.intervals import Estimate, are_flags, difference_of, estimate, estimate_difference
from arc_refinery.evaluation.power import SIGNIFICANCE

_Bools = NDArray[np.bool_]
_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Tasks solved by two arms, paired by task; for repeated arms, the means over repetitions."""

    first: str
    second: str
    n_first: float  # tasks that the first arm solved, mean over its repetitions
    n_second: float
    only_first: int  # tasks solved by the first arm and not by the second (repeated arms: solved more often)
    only_second: int
    difference: Estimate  # share of tasks solved, first minus second
    p_value: float  # nan: one task or two runs, which are too few for a test
    is_exact: bool  # p is McNemar's, of 0 and 1 in one run; else that of the interval's t
    corrected: float | None = None  # Holm's p among all comparisons but the primary one; None: not corrected
    is_primary: bool = False

    @property
    def n_runs(self) -> int:
        return len(self.difference.runs)

    @property
    def supports_difference(self) -> bool:
        """Whether the interval excludes 0 and p < 0.05, for all but the primary comparison after correction."""
        p_value = self.p_value if self.corrected is None else self.corrected
        return self.difference.supports_difference and p_value < SIGNIFICANCE


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm 1979): the chance of any false alarm stays below the level."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def correct(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons of a report with Holm's p; the primary comparison is not among those corrected."""
    is_other = [not comparison.is_primary and not isnan(comparison.p_value) for comparison in comparisons]
    others = iter(holm([comparison.p_value for comparison in compress(comparisons, is_other)]))
    return [
        replace(comparison, corrected=next(others)) if is_corrected else comparison
        for comparison, is_corrected in zip(comparisons, is_other, strict=True)
    ]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that k of n samples, c of them correct, contain a correct one (Chen et al. 2021, eq. 1)."""
    if not 0 <= c <= n or not 1 <= k <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n and 1 <= k <= n, got n={n}, c={c}, k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def solved_at_k(solved: _Bools, prompts: NDArray[Any], k: int) -> float:
    """Return pass@k of attempts that are spent as they are sampled, prompt by prompt: all of some prompts, drawn at
    random, and the rest of k from another one.

    Attempts on one prompt are more alike than others, so this is below pass@k of attempts drawn singly. `prompts[i]` is
    the prompt of attempt i.
    """
    return _solved_at_k(*_per_prompt(solved, prompts), k)


def _per_prompt(solved: _Bools, prompts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return numbers per prompt: of attempts, and of those that solve the task."""
    _, prompt_of_attempt = np.unique(prompts, return_inverse=True)
    return np.bincount(prompt_of_attempt), np.bincount(prompt_of_attempt, weights=solved).astype(int)


def _solved_at_k(sizes: NDArray[Any], n_correct: NDArray[Any], k: int) -> float:
    """Return `solved_at_k` from the numbers per prompt."""
    if k >= sizes.sum() or not n_correct.any():
        return float(n_correct.any())
    short = np.flatnonzero(sizes < sizes.max())
    if len(short) == 1:
        return _with_a_short_prompt(sizes, n_correct, int(short[0]), k)
    n_whole, rest = divmod(k, int(sizes.max()))
    n_winning = int((n_correct > 0).sum())
    if not rest:
        return pass_at_k(len(sizes), n_winning, n_whole)
    failure = 0.0
    for (size, correct), n_alike in Counter(zip(sizes.tolist(), n_correct.tolist(), strict=True)).items():
        in_rest = 1.0 - pass_at_k(size, correct, min(rest, size))
        others = pass_at_k(len(sizes) - 1, n_winning - (correct > 0), n_whole) if n_whole else 0.0
        failure += n_alike * in_rest * (1.0 - others)
    return 1.0 - failure / len(sizes)


def _with_a_short_prompt(sizes: NDArray[Any], n_correct: NDArray[Any], short: int, k: int) -> float:
    """Return `_solved_at_k` where one prompt has fewer attempts than the others: mean over its place in the order."""
    whole_sizes, whole_correct = np.delete(sizes, short), np.delete(n_correct, short)
    size, correct, whole = int(sizes[short]), int(n_correct[short]), int(sizes.max())
    failures = []
    for n_before in range(len(sizes)):
        in_short = min(max(0, k - n_before * whole), size)
        others = _solved_at_k(whole_sizes, whole_correct, k - in_short) if k > in_short else 0.0
        failures.append((1.0 - others) * (1.0 - (pass_at_k(size, correct, in_short) if in_short else 0.0)))
    return 1.0 - float(np.mean(failures))


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of a split at least this uneven, if both arms are equally good."""
    discordant = only_first + only_second
    return float(binomtest(only_first, discordant).pvalue) if discordant else 1.0


def compare(first: str, second: str, a: ArrayLike, b: ArrayLike, is_paired: bool = True) -> Comparison:
    """Compare which tasks two arms solved; a[r][i]: whether run r of the first one solved task i.

    If `is_paired`, run r of the first arm is paired with run r of the second. The values of a run are 0 or 1; means
    over several samplings with one adapter make one run. Runs that are all alike count as one.
    """
    tables = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    solved, other = (table.mean(axis=0) for table in tables)
    better = difference_of(solved, other)
    only_first, only_second = int((better > 0).sum()), int((better < 0).sum())
    difference = estimate_difference(*tables, is_paired)
    is_exact = all(map(are_flags, tables))
    return Comparison(
        first=first,
        second=second,
        n_first=float(solved.sum()),
        n_second=float(other.sum()),
        only_first=only_first,
        only_second=only_second,
        difference=difference,
        p_value=mcnemar(only_first, only_second) if is_exact and difference.has_interval else difference.p_value,
        is_exact=is_exact,
    )


def two_guesses_solve(shown_solved: _Bools, solved: _Bools, fingerprints: Sequence[str]) -> bool:
    """Return whether a submission of two guesses solves a task.

    Attempts that are correct on all train pairs vote for their test outputs; the two outputs with most votes are the
    guesses (ties: the earlier one). Fingerprints include train outputs, on which all voters agree. Without voters there
    are no guesses.
    """
    voters = np.flatnonzero(shown_solved).tolist()
    votes = Counter(fingerprints[voter] for voter in voters)
    guesses = {fingerprint for fingerprint, _ in votes.most_common(2)}
    return any(bool(solved[voter]) and fingerprints[voter] in guesses for voter in voters)


def two_guess_scores(attempts: pd.DataFrame, task_ids: Sequence[str]) -> _Floats:
    """Return 1 for each task that two guesses solve, else 0."""
    tasks = _arrays(attempts, ["shown_solved", "solved", "fingerprint"])
    return np.array([task_id in tasks and two_guesses_solve(*tasks[task_id]) for task_id in task_ids], dtype=float)


def pass_at_k_scores(attempts: pd.DataFrame, task_ids: Sequence[str], k: int) -> _Floats:
    """Return `solved_at_k` of each task; a task with fewer than k attempts uses all of them."""
    tasks = _arrays(attempts, ["solved", "prompt_id"])
    arrays = [tasks.get(task_id) for task_id in task_ids]
    return np.array([0.0 if task is None else solved_at_k(task[0], task[1], k) for task in arrays])


def budget_curve(attempts: pd.DataFrame, task_ids: Sequence[str], n_first: int, budget: int) -> pd.DataFrame:
    """Return the share of tasks solved and tokens per task after 1, 2, ..., `budget` attempts per task (task means).

    Within the first turn (`n_first` attempts) these are expectations over the order of prompts (`solved_at_k`). After
    it, all first-turn attempts are spent and later ones count in slot order. `low` and `high`: 95 % interval of the
    share at each budget.
    """
    tasks = _arrays(attempts, ["slot", "solved", "prompt_id", "tokens"])
    n = len(task_ids)
    solved, tokens = np.zeros((n, budget)), np.zeros(budget)
    for index, task_id in enumerate(task_ids):
        if task_id not in tasks:
            continue
        slot, solves, prompts, cost = tasks[task_id]
        first = slot < n_first
        if first.any():
            tokens[:n_first] += cost[first].mean() * np.minimum(np.arange(1, n_first + 1), first.sum())
        if solves[first].any():
            numbers = _per_prompt(solves[first], prompts[first])
            solved[index, :n_first] = [_solved_at_k(*numbers, k) for k in range(1, n_first + 1)]
        for k in range(n_first + 1, budget + 1):
            if k == n_first + 1 or k - 1 in slot:
                spent = slot < k
                is_solved, n_tokens = solves[spent].any(), cost[spent].sum()
            solved[index, k - 1] = is_solved
            tokens[k - 1] += n_tokens
    shares = [estimate([column]) for column in solved.T]
    low, high = np.clip([(share.low, share.high) for share in shares], 0, 1).T
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


def solved_within(attempts: pd.DataFrame, task_ids: Sequence[str], tokens: _Floats, cost: str = "n_tokens") -> _Floats:
    """Return 1 for each task solved within its budget of tokens, else 0. Attempts count in slot order.

    `tokens[i]` is the budget of task i; the attempt that exceeds it does not count. `cost`: column of an attempt's
    tokens, by default those of its completion.
    """
    tasks = _arrays(attempts, ["slot", cost, "solved"])
    solved = np.zeros(len(task_ids))
    for index, task_id in enumerate(task_ids):
        if task_id in tasks:
            slot, costs, solves = tasks[task_id]
            order = np.argsort(slot, kind="stable")
            paid = order[np.cumsum(costs[order]) <= tokens[index] + 1e-6]  # shares of prompts are fractions
            solved[index] = solves[paid].any()
    return solved


def spent_tokens(attempts: pd.DataFrame, task_ids: Sequence[str], cost: str = "n_tokens") -> _Floats:
    """Return the tokens of all attempts at each task; `cost`: column of an attempt's tokens."""
    sums = attempts.groupby("task_id")[cost].sum()
    return np.asarray(sums.reindex(list(task_ids), fill_value=0), dtype=float)


def _arrays(attempts: pd.DataFrame, columns: list[str]) -> dict[str, list[Any]]:
    """Return some columns as arrays per task, in the order of its attempts."""
    if attempts.empty:
        return {}
    codes, task_ids = pd.factorize(attempts["task_id"])
    order, ends = np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1]
    parts = [np.split(attempts[column].to_numpy()[order], ends) for column in columns]
    return {str(task_id): list(values) for task_id, *values in zip(task_ids, *parts, strict=True)}
