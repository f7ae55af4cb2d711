"""Figures as Markdown tables. Every share of tasks comes with n and a 95 % interval (bootstrap over tasks)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from arc_refinery.config import Arm
from arc_refinery.evaluation.arms import (
    METRICS,
    SetResults,
    TurnOfArms,
    n_tasks_with_budget_left,
    per_task,
    tasks_with_attempts,
)
from arc_refinery.evaluation.statistics import (
    Comparison,
    Difference,
    Interval,
    bootstrap_interval,
    compare,
    p_text,
    paired_difference,
    pass_at_k_scores,
    percent,
    points,
    two_guess_scores,
)
from arc_refinery.reporting.training_log import FIGURES, Log

SOLVED = ("train_is_correct", "test_is_correct", "is_correct")  # shares of tasks, so they can be counted
PASS_AT = (1, 8, 64, 512)


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Intervals over the tasks of one evaluation set. All figures see the same resamples, drawn by `address`."""

    n_resamples: int
    address: tuple[int | str, ...]

    def interval(self, values: ArrayLike) -> Interval:
        return bootstrap_interval(values, self.n_resamples, *self.address)

    def share(self, values: Sequence[float]) -> str:
        if len(values) < 2:  # nothing can be said of other tasks
            return percent(float(np.mean(values)))
        low, high = self.interval(values)
        return f"{percent(float(np.mean(values)))} [{100 * low:.1f}, {100 * high:.1f}]"

    def solved(self, values: Sequence[float]) -> str:
        return f"{round(sum(values))}/{len(values)} = {self.share(values)}"

    def difference(self, a: ArrayLike, b: ArrayLike) -> Difference:
        return paired_difference(a, b, self.n_resamples, *self.address)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [list(header), ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def figures_table(columns: Mapping[str, pd.DataFrame], bootstrap: Bootstrap) -> str:
    """The published figures (rows) of several groups of attempts (columns), each a table of `per_task`."""
    rows: list[list[str]] = [["n tasks", *(str(len(figures)) for figures in columns.values())]]
    for metric in METRICS:
        write = bootstrap.solved if metric in SOLVED else bootstrap.share
        cells = [write(list(figures[metric])) if len(figures) else "–" for figures in columns.values()]
        rows.append([metric, *cells])
    return markdown_table(["", *columns], rows)


def figures_csv(columns: Mapping[str, pd.DataFrame], path: Path) -> None:
    """The published table's own form: one line an arm or turn, one column a figure (shares 0..1, means over tasks)."""
    lines = {name: {"n_tasks": len(figures), **figures.mean()} for name, figures in columns.items()}
    write_csv(pd.DataFrame.from_dict(lines, orient="index").rename_axis("name").reset_index(), path)


def write_csv(table: pd.DataFrame, path: Path) -> None:
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")


def turn_title(turn: TurnOfArms) -> str:
    """`turn 1 x 64` for what arms share, `turn 2 x 64 of refine-trained` for what is one arm's own."""
    title = f"turn {turn.turn} × {turn.n_predictions}"
    if turn.turn > 1:
        title += f" of `{turn.arms[0].name}`"
    return title if turn.adapter == "none" else f"{title} ({turn.adapter})"


def turn_figures(results: SetResults, turn: TurnOfArms) -> pd.DataFrame:
    """`per_task` of one turn alone; of later turns over the tasks that had something to refine."""
    attempts = results.of_turn(turn.arms[0], turn.turn)
    task_ids = results.task_ids if turn.turn == 1 else tasks_with_attempts(attempts, results.task_ids)
    return per_task(attempts, task_ids)


def comparisons(figures: Mapping[str, pd.DataFrame], bootstrap: Bootstrap) -> list[Comparison]:
    """Each pair of arms on `is_correct`, the later arm of the config first; those against the baseline lead."""
    return [
        compare(
            second,
            first,
            figures[second]["is_correct"],
            figures[first]["is_correct"],
            bootstrap.n_resamples,
            *bootstrap.address,
        )
        for first, second in combinations(figures, 2)
    ]


def comparisons_table(compared: Iterable[Comparison]) -> str:
    rows = [
        [
            f"`{c.first}` − `{c.second}`",
            f"{c.n_first} − {c.n_second} of {c.difference.n}",
            points(c.difference.mean),
            f"[{points(c.difference.low)}, {points(c.difference.high)}]",
            f"{c.only_first} / {c.only_second}",
            p_text(c.p_value).removeprefix("p = ").removeprefix("p "),
            "yes" if c.supports_difference else "no",
        ]
        for c in compared
    ]
    header = ["is_correct", "solved", "points", "95 % interval", "only first / only second", "McNemar p", "supported"]
    return markdown_table(header, rows)


def later_turns_table(results: SetResults, turns: Sequence[TurnOfArms], bootstrap: Bootstrap) -> str:
    """Pass rates of later turns of different arms against each other, on the tasks that both refined."""
    rows = []
    for first, second in combinations([turn for turn in turns if turn.turn > 1], 2):
        a, b = turn_figures(results, second), turn_figures(results, first)
        common = [task_id for task_id in a.index if task_id in b.index]
        if first.turn != second.turn or not common:
            continue
        for metric in ("train_pass_rate", "test_pass_rate"):
            d = bootstrap.difference(a.loc[common, metric], b.loc[common, metric])
            interval = f"[{points(d.low, 2)}, {points(d.high, 2)}]"
            cells = [points(d.mean, 2), interval, "yes" if d.excludes_zero else "no"]
            rows.append([f"{metric}: {turn_title(second)} − {turn_title(first)}", d.n, *cells])
    header = ["per turn", "n tasks", "points", "95 % interval", "interval excludes 0"]
    return markdown_table(header, rows) if rows else ""


def pass_at_k_table(results: SetResults, turns: Iterable[TurnOfArms], bootstrap: Bootstrap) -> str:
    """pass@k of the attempts of each turn, for the k that its budget allows; of first turns, of the largest."""
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
    """What each arm spent, and what a submission of two guesses would score."""
    n = len(results.task_ids)
    rows = []
    for arm in arms:
        attempts = results.of_arm(arm)
        cut = float((attempts["finish_reason"] == "length").mean())
        guesses = list(two_guess_scores(attempts, results.task_ids))
        rows.append(
            [
                f"`{arm.name}`",
                arm.budget,
                f"{len(attempts) / n:.1f}",
                f"{n_tasks_with_budget_left(attempts, arm, results.task_ids)}/{n}",
                f"{attempts['tokens'].sum() / n:.0f}",
                percent(cut),
                bootstrap.solved(guesses),
            ]
        )
    header = [
        "arm",
        "budget",
        "attempts a task",
        "tasks with budget left",
        "tokens a task",
        "completions cut",
        "two guesses",
    ]
    return markdown_table(header, rows)


def runs_table(logs: Mapping[str, Log]) -> str:
    """Mean reward of each GRPO training at its start and at its end, and of its adapter on held-out prompts."""
    rows = []
    for run, log in logs.items():
        first, last = log.first_and_last("reward")
        n_steps = int(log.steps["step"].max())
        heldout = "–" if log.chosen is None or log.chosen.heldout_reward is None else f"{log.chosen.heldout_reward:.2f}"
        step = log.chosen.step if log.chosen else n_steps
        rows.append([f"`{run}`", n_steps, f"{first:.2f}", f"{last:.2f}", f"{last - first:+.2f}", step, heldout])
    header = ["training", "steps", "first tenth", "last tenth", "change", "adapter of step", "its held-out reward"]
    return markdown_table(header, rows)


def training_table(log: Log) -> str:
    """Means over the first and the last tenth of the logged steps, of the figures that were logged."""
    rows = [
        [title, *(f"{mean:.3f}" for mean in log.first_and_last(name))]
        for name, title in FIGURES.items()
        if name in log.steps and log.steps[name].notna().any() and (name != "loss" or not log.is_grpo)
    ]
    steps = "step" if log.window == 1 else f"{log.window} steps"
    return markdown_table(["", f"first {steps}", f"last {steps}"], rows).replace(" nan ", " – ")


def checks_table(log: Log) -> str:
    """What each checkpoint earned on the held-out prompts."""
    rows = []
    for check in sorted(log.checks + log.abandoned_checks, key=lambda check: check.step):
        is_kept = check in log.checks
        note = "the adapter" if is_kept and log.chosen and check.step == log.chosen.step else ""
        solved = "–" if check.solved is None else percent(check.solved)
        rows.append([check.step, f"{check.reward:.2f}", solved, note if is_kept else "abandoned by a rollback"])
    return markdown_table(["held out: step", "mean reward", "completions that solve", ""], rows)
