"""Metrics as Markdown tables. Every share of tasks has n and a 95 % interval (bootstrap over tasks).

A row of `comparisons_table`, from the demo (`config/config.yaml`):

| is_correct | solved | points | 95 % interval | only first / only second | McNemar p | tasks needed | supported |
| `refine-trained` − `independent` | 15 − 14 of 51 | +2.0 | [+0.0, +5.9] | 1 / 0 | 1.000 | 401 | no |
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from arc_refinery.config import Arm, Refining
from arc_refinery.evaluation.arms import (
    METRICS,
    PASS_RATE,
    SetResults,
    TurnOfArms,
    n_tasks_with_budget_left,
)
from arc_refinery.evaluation.bootstrap import Bootstrap
from arc_refinery.evaluation.statistics import (
    Comparison,
    compare,
    compare_repeated,
    generated_tokens,
    p_text,
    pass_at_k_scores,
    percent,
    points,
    solved_within,
    two_guess_scores,
)
from arc_refinery.reporting.markdown import markdown_table, write_csv

SOLVED = ("train_is_correct", "test_is_correct", "is_correct")  # 0 or 1 per task, so solved tasks can be counted
PASS_AT = (1, 8, 64, 512)


def metrics_table(columns: Mapping[str, pd.DataFrame], bootstrap: Bootstrap) -> str:
    """Return the published metrics (rows) of several groups of attempts (columns), each a table of `per_task`."""
    rows: list[list[str]] = [["n tasks", *(str(len(metrics)) for metrics in columns.values())]]
    for metric in METRICS:
        write = bootstrap.solved if metric in SOLVED else bootstrap.share
        cells = [write(list(metrics[metric])) if len(metrics) else "–" for metrics in columns.values()]
        rows.append([metric, *cells])
    return markdown_table(["", *columns], rows)


def metrics_csv(columns: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Write a CSV file: one line per arm or turn, one column per metric (shares 0..1, means over tasks)."""
    lines = {name: {"n_tasks": len(metrics), **metrics.mean()} for name, metrics in columns.items()}
    write_csv(pd.DataFrame.from_dict(lines, orient="index").rename_axis("name").reset_index(), path)


def turn_title(turn: TurnOfArms) -> str:
    """Return `turn 1 × 64` for a first turn, `turn 2 × 64 of refine-trained` for a later one."""
    title = f"turn {turn.turn} × {turn.n_predictions}"
    if turn.turn > 1:
        title += f" of `{turn.arms[0].name}`"
        return title if turn.adapter == "none" else f"{title} ({turn.adapter})"
    by = turn.branch.removeprefix("turn1").removeprefix("-")
    return f"{title} ({by})" if by else title


def published_table(columns: Mapping[str, pd.DataFrame]) -> str:
    """Return the published form: one line per arm or turn, one column per metric (%, means over tasks), maxima bold."""
    means = pd.DataFrame({name: 100 * metrics[list(METRICS)].mean() for name, metrics in columns.items()}).T.round(1)
    best = means.max().where(means.max() > means.min())  # no maximum if all are equal
    rows = [
        [name, *(f"**{value:.1f}**" if value == best[metric] else f"{value:.1f}" for metric, value in line.items())]
        for name, line in means.iterrows()
    ]
    return markdown_table(["%", *METRICS], rows)


def comparisons(
    experiment: Refining, metrics: Mapping[str, pd.DataFrame], bootstrap: Bootstrap, metric: str = "is_correct"
) -> list[Comparison]:
    """Compare arms on a metric that is 0 or 1 per task: for repeated arms their mean first, then each pair."""
    compared = []
    for first, second in experiment.compared:
        pairs = pairs_of_arms(experiment, first, second)
        if len(pairs) > 1:
            a, b = ([metrics[arm.name][metric] for arm in one] for one in zip(*pairs, strict=True))
            compared.append(compare_repeated(first, second, a, b, bootstrap.n_resamples, *bootstrap.address))
        compared += [
            compare(
                one.name,
                other.name,
                metrics[one.name][metric],
                metrics[other.name][metric],
                bootstrap.n_resamples,
                *bootstrap.address,
            )
            for one, other in pairs
        ]
    return compared


def pairs_of_arms(experiment: Refining, first: str, second: str) -> list[tuple[Arm, Arm]]:
    """Pair the repetitions of two arms: those with the same sampling seed if there are any, else all."""
    pairs = list(product(experiment.arms_called(first), experiment.arms_called(second)))
    return [(one, other) for one, other in pairs if one.seed == other.seed] or pairs


def comparisons_table(compared: Iterable[Comparison]) -> str:
    rows = [
        [
            f"`{c.first}` − `{c.second}`{f' (mean of {c.repetitions})' if c.repetitions > 1 else ''}",
            f"{_count(c.n_first)} − {_count(c.n_second)} of {c.difference.n}",
            points(c.difference.mean),
            f"[{points(c.difference.low)}, {points(c.difference.high)}]",
            f"{c.only_first} / {c.only_second}",
            "–" if c.p_value is None else p_text(c.p_value).removeprefix("p = ").removeprefix("p "),
            c.difference.n_needed or "–",
            "yes" if c.supports_difference else "no",
        ]
        for c in compared
    ]
    header = [
        "is_correct",
        "solved",
        "points",
        "95 % interval",
        "only first / only second",
        "McNemar p",
        "tasks needed",
        "supported",
    ]
    return markdown_table(header, rows)


def _count(tasks: float) -> str:
    return f"{tasks:.1f}".removesuffix(".0")


PairOfTurns = tuple[pd.DataFrame, pd.DataFrame]
TURN_METRICS = {PASS_RATE: "pass rate", "test_pass_rate": "test_pass_rate", "unique outputs": "unique outputs"}


def turn_differences_table(experiment: Refining, results: SetResults, bootstrap: Bootstrap) -> str:
    """Compare the pass rates of arms turn by turn, on the tasks that both have attempts on."""
    rows = []
    for first, second in experiment.compared:
        for number, of_turn in _pairs_of_turns(experiment, results, first, second).items():
            shown = {name: [pair] for name, pair in of_turn.items()}
            if len(of_turn) > 1:
                shown = {f"`{first}` − `{second}` (mean of {len(of_turn)})": list(of_turn.values()), **shown}
            for name, pairs in shown.items():
                n, cells = _turn_difference(pairs, bootstrap)
                rows.append([f"turn {number}: {name}", n, *cells])
    return markdown_table(["turn by turn", "n tasks", *TURN_METRICS.values()], rows) if rows else ""


def refining_headline(experiment: Refining, by_set: Mapping[str, tuple[SetResults, Bootstrap]]) -> str:
    """Compare later turns with real feedback: one line per set and comparison."""
    rows = []
    for name, (results, bootstrap) in by_set.items():
        for first, second in experiment.compared:
            arms = [*experiment.arms_called(first), *experiment.arms_called(second)]
            if any(turn.feedback != "real" for arm in arms for turn in arm.turns):
                continue
            for number, of_turn in _pairs_of_turns(experiment, results, first, second).items():
                if number > 1:
                    n, cells = _turn_difference(list(of_turn.values()), bootstrap)
                    mean = f" (mean of {len(of_turn)})" if len(of_turn) > 1 else ""
                    rows.append([f"`{name}`, turn {number}: `{first}` − `{second}`{mean}", n, *cells])
    header = ["refining turns, difference in points", "n tasks", *TURN_METRICS.values()]
    return markdown_table(header, rows) if rows else ""


def _pairs_of_turns(
    experiment: Refining, results: SetResults, first: str, second: str
) -> dict[int, dict[str, PairOfTurns]]:
    """Return the metrics of each pair of repetitions, for each turn that two compared arms do not share."""
    pairs = pairs_of_arms(experiment, first, second)
    n_turns = min(len(arm.turns) for pair in pairs for arm in pair)
    found = {
        number: {
            f"`{one.name}` − `{other.name}`": (
                results.metrics_of_turn(one, number),
                results.metrics_of_turn(other, number),
            )
            for one, other in pairs
            if one.branch(number) != other.branch(number)
        }
        for number in range(1, n_turns + 1)
    }
    return {number: of_turn for number, of_turn in found.items() if of_turn and _common_tasks(of_turn.values())}


def _common_tasks(pairs: Iterable[PairOfTurns]) -> list[str]:
    every = [metrics.index for pair in pairs for metrics in pair]
    return [task_id for task_id in every[0] if all(task_id in index for index in every)]


def _turn_difference(pairs: Sequence[PairOfTurns], bootstrap: Bootstrap) -> tuple[int, list[str]]:
    task_ids = _common_tasks(pairs)
    cells = []
    for metric in TURN_METRICS:
        a, b = (np.mean([metrics.loc[task_ids, metric] for metrics in one], axis=0) for one in zip(*pairs, strict=True))
        d = bootstrap.difference(a, b)
        text = f"{points(d.mean)} [{points(d.low)}, {points(d.high)}]"
        cells.append(f"**{text}**" if d.excludes_zero else text)
    return len(task_ids), cells


def equal_tokens_table(
    experiment: Refining, results: SetResults, metrics: Mapping[str, pd.DataFrame], bootstrap: Bootstrap
) -> str:
    """Compare arms at equal generated tokens: on each task, both are limited to the tokens of the arm with fewer."""
    owned = {arm.name: results.of_arm(arm) for arm in experiment.arms}
    spent = {name: generated_tokens(attempts, results.task_ids) for name, attempts in owned.items()}
    rows = []
    for first, second in experiment.compared:
        pairs = pairs_of_arms(experiment, first, second)
        solved = []
        for pair in pairs:
            tokens = np.minimum(*(spent[arm.name] for arm in pair))
            solved.append([solved_within(owned[arm.name], results.task_ids, tokens) for arm in pair])
        a, b = np.mean(solved, axis=0)
        d = bootstrap.difference(a, b)
        mean_spent = [np.mean([spent[arm.name] for arm in arms]) for arms in zip(*pairs, strict=True)]
        rows.append(
            [
                f"`{first}` − `{second}`{f' (mean of {len(pairs)})' if len(pairs) > 1 else ''}",
                f"{mean_spent[0]:.0f} / {mean_spent[1]:.0f}",
                f"{_count(a.sum())} − {_count(b.sum())} of {d.n}",
                f"{points(d.mean)} [{points(d.low)}, {points(d.high)}]",
            ]
        )
    header = ["at equal generated tokens", "tokens per task, unlimited", "solved", "points"]
    return markdown_table(header, rows) if rows else ""


def pass_at_k_table(results: SetResults, turns: Iterable[TurnOfArms], bootstrap: Bootstrap) -> str:
    """Return pass@k of the attempts of each turn, up to its budget; of shared first turns, the largest counts."""
    largest: dict[str, TurnOfArms] = {}
    for turn in turns:
        if turn.n_predictions > getattr(largest.get(turn.branch), "n_predictions", 0):
            largest[turn.branch] = turn
    rows = []
    shown = [k for k in PASS_AT if k <= max((turn.n_predictions for turn in largest.values()), default=0)]
    for turn in largest.values():
        attempts = results.of_turn(turn.arms[0], turn.turn)
        scores = {k: pass_at_k_scores(attempts, results.task_ids, k) for k in shown if k <= turn.n_predictions}
        cells = [bootstrap.share(list(scores[k])) if k in scores else "–" for k in shown]
        rows.append([turn_title(turn), *cells])
    return markdown_table([f"n = {len(results.task_ids)} tasks", *(f"pass@{k}" for k in shown)], rows)


def spending_table(results: SetResults, arms: Iterable[Arm], bootstrap: Bootstrap) -> str:
    """Return what each arm spent, and the score of a submission of two guesses."""
    n = len(results.task_ids)
    rows = []
    for arm in arms:
        attempts = results.of_arm(arm)
        truncated = float((attempts["finish_reason"] == "length").mean())
        guesses = list(two_guess_scores(attempts, results.task_ids))
        rows.append(
            [
                f"`{arm.name}`",
                arm.budget,
                f"{len(attempts) / n:.1f}",
                f"{n_tasks_with_budget_left(attempts, arm, results.task_ids)}/{n}",
                f"{attempts['tokens'].sum() / n:.0f}",
                percent(truncated),
                bootstrap.solved(guesses),
            ]
        )
    header = [
        "arm",
        "budget",
        "attempts per task",
        "tasks with budget left",
        "tokens per task",
        "completions truncated",
        "two guesses",
    ]
    return markdown_table(header, rows)
