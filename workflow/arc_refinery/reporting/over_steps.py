"""Report section on the kept steps of a training: metrics by step, and the step that a validation set chooses.

A row of the table: | 20 | 100 | 71.3 % [63.0, 79.6] | 12.1 % [9.8, 14.4] | ... |
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from arc_refinery.config import Compared
from arc_refinery.evaluation.intervals import Estimate, estimate
from arc_refinery.evaluation.metrics import PASS_RATE, SOLVED, UNIQUE
from arc_refinery.evaluation.sides import Runs, by_training, match_runs
from arc_refinery.reporting.markdown import estimate_text, folded, markdown_table, percent, points_text, write_csv
from arc_refinery.reporting.publish import DASHES, Attachments, line_colors, save
from arc_refinery.reporting.training_curves import panel_grid

SHORT = {SOLVED: "solved", PASS_RATE: "pass rate", UNIQUE: UNIQUE}

_Results = Mapping[str, pd.DataFrame]  # `per_task` of each arm on a set


@dataclass(frozen=True, slots=True)
class Series:
    """An arm at several steps, on one set. Step 0: before the training."""

    task_set: Any
    by_step: dict[int, dict[str, Estimate]]  # estimates of each metric
    solved: dict[int, Runs]

    @property
    def metrics(self) -> list[str]:
        return list(next(iter(self.by_step.values())))

    def best(self) -> int:
        """Return the step that solves most tasks; ties: the highest pass rate, then the earliest step."""
        return max(
            self.by_step, key=lambda step: (*(self.by_step[step][name].mean for name in (SOLVED, PASS_RATE)), -step)
        )


def section(experiment: Compared[Any], results: Sequence[tuple[Any, _Results]], files: Attachments) -> list[str]:
    """Return Markdown blocks about the arms that ask for the adapters of every kept step, if there are any."""
    blocks: list[str] = []
    for name, arms in experiment.over_steps.items():
        all_series = [_series(experiment, task_set, arms, metrics) for task_set, metrics in results]
        plot = files.add(f"{name}-steps.png", partial(_plot, all_series, f"{name} over the steps of its training"))
        table = files.add(f"{name}-steps.csv", partial(_csv, all_series))
        blocks += [f"### `{name}`", *_step_choices(all_series)]
        for series in all_series:
            blocks += [
                f"On `{series.task_set.name}`:",
                _table(series, SHORT),
                folded("All metrics", _table(series, {metric: metric for metric in series.metrics})),
            ]
        seen = []
        for series in all_series:
            first, last = (series.by_step[step][SOLVED].mean for step in (min(series.by_step), max(series.by_step)))
            begin = "before" if 0 in series.by_step else "at the first step"
            seen.append(f"on {series.task_set.name} {percent(first)} solved {begin}, {percent(last)} at the last step")
        blocks += [f"![Metrics over the steps of {name}: {'; '.join(seen)}]({plot})", f"[As CSV]({table})."]
    if not blocks:
        return []
    explained = "The same arms with the adapter as it was after each kept step. Step 0 is the model before training. "
    n_runs = len(experiment.training.seeds) if experiment.training else 0
    runs = "tasks and training runs" if n_runs > 1 else "tasks"
    return ["## Over the steps of the training", f"{explained}Brackets: 95 % intervals over {runs}.", *blocks]


def _series(experiment: Compared[Any], task_set: Any, arms: Mapping[int, str], results: _Results) -> Series:
    by_step, solved = {}, {}
    for step, name in arms.items():
        repeated = [results[arm.name] for arm in experiment.arms_called(name)]
        by_step[step] = {
            metric: estimate(np.array([table[metric] for table in repeated], dtype=float))
            for metric in repeated[0].columns
        }
        solved[step] = by_training(experiment, name, [table[SOLVED] for table in repeated])
    return Series(task_set, by_step, solved)


def _step_choices(all_series: Sequence[Series]) -> Iterator[str]:
    """Name the step that each validation set chooses, with its results there and on the other sets."""
    others = [series for series in all_series if not series.task_set.validation]
    validations = [series for series in all_series if series.task_set.validation]
    if not validations:
        yield "No set has `validation: true`, so no step is chosen: choosing by the results below would flatter them."
    for series in validations:
        step = series.best()
        there = f"{estimate_text(series.by_step[step][SOLVED])} of `{series.task_set.name}`"
        elsewhere = [
            f"{estimate_text(other.by_step[step][SOLVED])} of `{other.task_set.name}`{_gains(other, step)}"
            for other in others
        ]
        on = f" On sets that nothing was chosen on it solves {'; '.join(elsewhere)}." if elsewhere else ""
        yield f"**Chosen on the validation set `{series.task_set.name}`: step {step}**, which solves {there}.{on}"


def _gains(series: Series, step: int) -> str:
    """Return by how many points a step solves more tasks than the last one, and than the untrained model, if any."""
    texts = []
    for other in sorted({0, max(series.solved)} & series.solved.keys() - {step}):
        difference = match_runs(series.solved[step], series.solved[other]).difference
        texts.append(f"{points_text(difference)} against step {other}")
    return f" ({', '.join(texts)})"


def _table(series: Series, metrics: Mapping[str, str]) -> str:
    rows = [
        [step, estimates[PASS_RATE].n_tasks, *(estimate_text(estimates[metric]) for metric in metrics)]
        for step, estimates in series.by_step.items()
    ]
    return markdown_table(["step", "n tasks", *metrics.values()], rows)


def _csv(all_series: Sequence[Series], path: Path) -> None:
    """Write a CSV file: one line per set, step and metric (shares 0..1, with the ends of their intervals)."""
    lines = [
        {
            "set": series.task_set.name,
            "step": step,
            "metric": name,
            "mean": value.mean,
            "low": np.clip(value.low, 0, 1),
            "high": np.clip(value.high, 0, 1),
        }
        for series in all_series
        for step, metrics in series.by_step.items()
        for name, value in metrics.items()
    ]
    write_csv(pd.DataFrame(lines), path)


def _plot(all_series: Sequence[Series], title: str, path: Path) -> None:
    """Draw a panel per metric, with a line and a band per set."""
    metrics = all_series[0].metrics
    figure, panels = panel_grid(len(metrics), 4, (1.75, 0.9), "step")
    for axes, metric in zip(panels, metrics, strict=True):
        for series, color, dashes in zip(all_series, line_colors(len(all_series)), cycle(DASHES), strict=False):
            steps, estimates = list(series.by_step), [at_step[metric] for at_step in series.by_step.values()]
            axes.plot(
                steps,
                _percent([value.mean for value in estimates]),
                color=color,
                linestyle=dashes,
                marker="o",
                markersize=3.5,
                label=series.task_set.name,
            )
            low, high = np.clip([(value.low, value.high) for value in estimates], 0, 1).T
            axes.fill_between(steps, _percent(low), _percent(high), color=color, alpha=0.1, linewidth=0)
        axes.set_title(f"{metric} (%)", loc="left", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _percent(shares: ArrayLike) -> NDArray[np.float64]:
    return 100 * np.asarray(shares)
