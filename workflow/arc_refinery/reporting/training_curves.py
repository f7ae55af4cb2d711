"""A training's log as a table, and its curves: one panel for each group of metrics that was logged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from arc_refinery.reporting.publish import DASHES, line_colors, save
from arc_refinery.training.log import Choice, Decision, HeldoutResult, LoggedStep, read_lines
from arc_refinery.training.rewards import REWARD_TERM


@dataclass(slots=True)
class Log:
    """Parsed training log."""

    steps: pd.DataFrame = field(default_factory=pd.DataFrame)  # in order: `step`, all metrics
    checks: list[HeldoutResult] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    choice: Choice | None = None

    @property
    def is_grpo(self) -> bool:
        return "reward" in self.steps

    @property
    def n_steps(self) -> int:
        return int(self.steps["step"].max())

    @property
    def window(self) -> int:
        """Number of steps in a mean: a tenth of all."""
        return max(1, len(self.steps) // 10)

    @property
    def reward_terms(self) -> list[str]:
        """Metrics that are terms of the reward."""
        return [str(name) for name in self.steps if str(name).startswith(REWARD_TERM)]

    def first_and_last(self, metric: str) -> tuple[float, float]:
        """Return the means of a metric over the first and the last tenth of the steps; nan if it is missing there."""
        values = self.steps[metric]
        return float(values.iloc[: self.window].mean()), float(values.iloc[-self.window :].mean())


def read_log(path: Path) -> Log:
    """Read a training.jsonl; raises `RecordError`."""
    log = Log()
    steps: list[LoggedStep] = []
    for line in read_lines(path):
        match line:
            case HeldoutResult():
                log.checks.append(line)
            case Decision():
                log.decisions.append(line)
            case Choice():
                log.choice = line
            case dict() if "reward" in line or "loss" in line:  # other lines are summaries
                steps.append(line)
            case _:
                pass
    log.steps = pd.DataFrame(steps).apply(pd.to_numeric)  # values that are not finite are null in the log, nan here
    return log


@dataclass(frozen=True, slots=True)
class CurvesPanel:
    """Panel of a training's plot: metrics with one unit."""

    title: str
    lines: Mapping[str, str]  # metric of a step: label
    band: tuple[str, str] | None = None  # metrics of its lower and upper edge
    check: str = ""  # field of `Check` that is marked: the value on held-out prompts
    is_share: bool = False


PANELS = (
    CurvesPanel("reward", {"reward": "mean"}, ("reward/min", "reward/max"), "reward"),
    CurvesPanel(
        "shares",
        {"share/solved": "completions that solve", "share/zero_variance": "groups with equal rewards"},
        check="solved",
        is_share=True,
    ),
    CurvesPanel("tools", {"share/calling": "episodes that call", "share/faulty_calls": "faulty calls"}, is_share=True),
    CurvesPanel("loss (nats/token)", {"loss": "loss"}),
    CurvesPanel("token accuracy", {"mean_token_accuracy": "accuracy"}, is_share=True),
    CurvesPanel("KL from the start (nats/token)", {"kl": "KL"}),
    CurvesPanel("entropy (nats/token)", {"entropy": "entropy"}),
    CurvesPanel(
        "completion length (tokens)",
        {"completions/mean_length": "mean"},
        ("completions/min_length", "completions/max_length"),
    ),
    CurvesPanel("share of completions truncated", {"share/truncated": "truncated"}, is_share=True),
    CurvesPanel(
        "share of repeated 4-grams in completions",
        {"repetition/finished": "not truncated", "repetition/truncated": "truncated"},
        is_share=True,
    ),
    CurvesPanel(
        "unique tokens / tokens in completions",
        {"unique_tokens/finished": "not truncated", "unique_tokens/truncated": "truncated"},
        is_share=True,
    ),
    CurvesPanel(
        "share of completions that fail",
        {"share/error": "error", "share/no_code": "no program", "share/timeout": "timeout", "share/memory": "memory"},
        is_share=True,
    ),
    CurvesPanel(
        "second turns",
        {"share/second_turn": "completions with a second turn", "share/improved": "higher reward than the first"},
        is_share=True,
    ),
    CurvesPanel("feedback between turns (nats/token)", {"loss/feedback": "cross-entropy"}),
    CurvesPanel("log-probability gap, trainer to sampler (nats)", {"sampling/sampling_logp_difference/mean": "mean"}),
    CurvesPanel("gradient norm before clipping", {"grad_norm": "norm"}),
)
# Metrics of a step and their titles in the report; any may be missing from a log
METRIC_TITLES = {
    "reward": "mean reward",
    "reward/max": "best reward of a step",
    "loss": "loss (nats/token)",  # SFT only; the loss of GRPO is not informative
    "mean_token_accuracy": "token accuracy",
    "share/solved": "share of completions that solve their task",
    "share/zero_variance": "share of groups with equal rewards",
    "share/calling": "share of episodes that call a tool",
    "share/faulty_calls": "share of faulty calls",
    "calls": "calls per episode",
    "share/improved": "share of second turns with a higher reward than the first",
    "loss/feedback": "cross-entropy of feedback between turns (nats/token)",
    "kl": "KL from the start (nats/token)",
    "entropy": "entropy (nats/token)",
    "completions/mean_length": "completion length (tokens)",
    "share/truncated": "share of completions truncated",
    "reward/truncated": "mean reward of truncated completions",
    "unique_tokens/finished": "unique tokens / tokens, completions not truncated",
    "repetition": "share of repeated 4-grams",
    "share/no_code": "share of completions without a program",
    "share/error": "share of completions that fail with an error",
    "share/invalid_output": "share of completions with invalid outputs",
    "share/timeout": "share of completions that time out",
    "share/memory": "share of completions that run out of memory",
    "sampling/sampling_logp_difference/mean": "log-probability gap, trainer to sampler",
    "grad_norm": "gradient norm before clipping",
}
# Metrics of several trainings, one panel each
RUNS_METRICS = ("reward", "share/zero_variance", "share/truncated", "completions/mean_length", "kl", "grad_norm")
TUNING_METRICS = ("loss", "mean_token_accuracy")
LEGEND_WIDTH = 100  # letters of a line of the legend
COLLAPSE_MARK: dict[str, Any] = {"linestyle": "", "marker": "x", "markersize": 9, "markeredgewidth": 2.0}
DECISION_LINE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.0}
CHECK_MARK: dict[str, Any] = {
    "color": "black",
    "linestyle": "",
    "marker": "D",
    "markersize": 6,
    "markerfacecolor": "white",
}
ADAPTER_MARK: dict[str, Any] = {**CHECK_MARK, "marker": "*", "markersize": 14, "markerfacecolor": "#E69F00"}


def panel_grid(n: int, n_columns: int, heights: tuple[float, float], x_label: str) -> tuple[Figure, Sequence[Axes]]:
    """Return n panels with one x axis in a figure; `heights`: inches of a row, and of what surrounds the rows."""
    n_rows = -(-n // n_columns)
    figure = Figure(figsize=(9.5, heights[0] * n_rows + heights[1]), layout="constrained")
    panels = figure.subplots(n_rows, n_columns, sharex=True, squeeze=False).flatten()
    for axes in panels[n:]:
        axes.remove()
    for axes in panels[max(0, n - n_columns) : n]:
        axes.set_xlabel(x_label)
        axes.tick_params(labelbottom=True)
    return figure, list(panels[:n])


def training_plot(log: Log, path: Path) -> None:
    """Draw the metrics of each training step, in the panels whose metrics were logged."""
    terms = CurvesPanel("terms of the reward", {name: name.removeprefix(REWARD_TERM) for name in log.reward_terms})
    panels_in_order = [PANELS[0], terms, *PANELS[1:]]
    logged = [panel for panel in panels_in_order if any(name in log.steps for name in panel.lines)]
    logged = [panel for panel in logged if "loss" not in panel.lines or not log.is_grpo]
    figure, panels = panel_grid(len(logged), 2, (2.3, 0.4), "optimizer step")
    for axes, panel in zip(panels, logged, strict=True):
        _training_panel(axes, panel, log)
    for step in {decision.step for decision in log.decisions}:
        actions = ["stopped" if line.action == "stop" else "collapsed" for line in log.decisions if line.step == step]
        words = ", then ".join(actions)
        look: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 8}
        panels[0].annotate(f"{words} ", (step, 1.0), xycoords=("data", "axes fraction"), **look)
    figure.legend(handles=_training_legend(log), loc="outside lower center", ncols=3)
    save(figure, path)


def runs_plot(groups: Mapping[str, Mapping[str, Log]], metrics: Sequence[str], path: Path) -> None:
    """Draw the rolling means of trainings, with their collapses, in one panel per metric that was logged.

    Trainings of a group differ only in their seeds: their mean is drawn while all of them run, with a band from the
    lowest to the highest.
    """
    logs = [log for group in groups.values() for log in group.values()]
    metrics = [name for name in metrics if any(name in log.steps for log in logs)]
    figure, panels = panel_grid(len(metrics), 2, (2.3, 0.4 + 0.1 * len(groups)), "optimizer step")
    for axes, metric in zip(panels, metrics, strict=True):
        axes.set_title(METRIC_TITLES[metric], loc="left")
        for (name, group), color, dashes in zip(groups.items(), line_colors(len(groups)), cycle(DASHES), strict=False):
            smooth = {run: _rolling_mean(log, metric) for run, log in group.items() if metric in log.steps}
            if smooth:
                together = pd.DataFrame(smooth).dropna()
                label = name if len(group) == 1 else f"{name}, {len(group)} trainings"
                axes.plot(together.mean(axis=1), color=color, linestyle=dashes, linewidth=1.5, label=label)
                if len(smooth) > 1:
                    low, high = together.min(axis=1), together.max(axis=1)
                    axes.fill_between(together.index, low, high, color=color, alpha=0.2, linewidth=0)
            for run, values in smooth.items():
                if len(smooth) > 1:
                    axes.plot(values, color=color, linewidth=0.6, alpha=0.5)
                for decision in group[run].decisions:
                    axes.plot(values[: decision.step].iloc[-1:], color=color, **COLLAPSE_MARK)
    handles, labels = panels[0].get_legend_handles_labels()
    more = [("collapse", COLLAPSE_MARK)] if any(log.decisions for log in logs) else []
    handles += [Line2D([], [], color="black", **look) for _, look in more]
    labels += [name for name, _ in more]
    n_columns = max(1, min(3, LEGEND_WIDTH // max(map(len, labels))))
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
    save(figure, path)


def _rolling_mean(log: Log, metric: str) -> "pd.Series[float]":
    """Return a metric's mean over the guard's window up to each step, by step."""
    return log.steps.set_index("step")[metric].dropna().rolling(log.window, min_periods=1).mean()


def _training_panel(axes: Axes, panel: CurvesPanel, log: Log) -> None:
    """Draw each step (thin) and the rolling mean (thick)."""
    if panel.band and all(name in log.steps for name in panel.band):
        low, high = (log.steps[name] for name in panel.band)
        axes.fill_between(
            log.steps["step"], low, high, color="#888888", alpha=0.2, linewidth=0, label="lowest to highest"
        )
    names = [name for name in panel.lines if name in log.steps]
    for name, color, dashes in zip(names, line_colors(len(names)), cycle(DASHES), strict=False):
        axes.plot(log.steps.set_index("step")[name].dropna(), color=color, linewidth=0.7, alpha=0.5)
        axes.plot(_rolling_mean(log, name), color=color, linestyle=dashes, linewidth=2.0, label=panel.lines[name])
    if panel.check:
        _checks(axes, panel.check, log)
    for decision in log.decisions:
        axes.axvline(decision.step, **DECISION_LINE)
    if panel.is_share:
        top = max(0.1, min(1.02, axes.get_ylim()[1]))
        axes.set_ylim(-0.02 * top, top)  # so that a line of zeros is visible
    axes.set_title(panel.title, loc="left")
    if len(panel.lines) > 1 or panel.band:
        axes.legend(fontsize=8, loc="upper left")


def _checks(axes: Axes, name: str, log: Log) -> None:
    for check in log.checks:
        is_adapter = log.choice is not None and check.step == log.choice.step
        value = getattr(check, name)
        if value is not None:
            axes.plot(check.step, value, **(ADAPTER_MARK if is_adapter else CHECK_MARK))


def _training_legend(log: Log) -> list[Line2D]:
    """Return the legend entries that all panels share."""
    entries = [
        (log.window > 1, {"color": "black", "linewidth": 0.7, "alpha": 0.5}, "each step"),
        (True, {"color": "black", "linewidth": 2.0}, f"mean of {log.window} steps" if log.window > 1 else "each step"),
        (log.checks, CHECK_MARK, "held-out prompts"),
        (log.checks and log.choice, ADAPTER_MARK, "checkpoint that became the adapter"),
        (log.decisions, DECISION_LINE, "collapse"),
    ]
    return [Line2D([], [], **look, label=label) for is_shown, look, label in entries if is_shown]
