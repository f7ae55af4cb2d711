"""Plots as PNG files whose bytes depend on the figures alone: own style, fixed resolution, no date, no version."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import matplotlib.style
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from arc_refinery.evaluation.statistics import Interval
from arc_refinery.reporting import training_log

DPI = 120
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito 2008
DASHES = ("-", "--", "-.", ":")
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.titlesize": 10,
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Curve:
    """Solved against budget of one arm: a table of `budget_curve`, where turns start, the interval at the end."""

    table: pd.DataFrame
    turn_ends: tuple[int, ...]  # budget after each turn but the last
    interval: Interval


@contextmanager
def style() -> Iterator[None]:
    """Draw in this module's style, whatever the user's matplotlibrc says."""
    with matplotlib.style.context(["default", STYLE], after_reset=True):
        yield


def save(figure: Figure, path: Path) -> None:
    figure.savefig(path, dpi=DPI, format="png", metadata={"Software": None})


def budget_plot(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Share of tasks solved against attempts and against tokens a task, one line an arm."""
    figure = Figure(figsize=(9.5, 4.0), layout="constrained")
    by_attempts, by_tokens = figure.subplots(1, 2, sharey=True)
    _curves(by_attempts, curves, "budget", 1.0)
    _curves(by_tokens, curves, "tokens", 1000.0)
    by_attempts.set(xlabel="attempts a task", ylabel="tasks solved (%)", ylim=(0, None))
    by_tokens.set(xlabel="tokens a task, prompts and completions (thousands)")
    handles, labels = by_attempts.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _curves(axes: Axes, curves: Mapping[str, Curve], x: str, unit: float) -> None:
    widest = max(curve.table[x].max() for curve in curves.values()) / unit
    looks = zip(curves.items(), cycle(COLORS), cycle(DASHES), strict=False)
    for number, ((name, curve), color, dashes) in enumerate(looks):
        across, solved = curve.table[x] / unit, 100 * curve.table["solved"]
        axes.plot(across, solved, color=color, linestyle=dashes, label=name, linewidth=1.8)
        ends = [end - 1 for end in curve.turn_ends]
        axes.plot(across.iloc[ends], solved.iloc[ends], color=color, linestyle="", marker="o", markersize=5)
        low, high = (100 * bound for bound in curve.interval)
        axes.vlines(widest * (1.03 + 0.025 * number), low, high, color=color, linestyle="-", linewidth=2.5, alpha=0.7)
    axes.set_xlim(0, None)


def training_plot(log: pd.DataFrame, path: Path) -> None:
    """What was logged at each training step, with a moving mean over a tenth of the steps."""
    names = [name for name in training_log.FIGURES if name in log]
    n_rows = (len(names) + 1) // 2
    figure = Figure(figsize=(9.5, 2.4 * n_rows), layout="constrained")
    panels = figure.subplots(n_rows, 2, sharex=True, squeeze=False).flatten()
    window = training_log.tenth_of(log)
    for axes, name in zip(panels, names, strict=False):
        values = log.set_index("step")[name].dropna()
        axes.plot(values, color=COLORS[5], linewidth=0.8, marker=".", markersize=3, label="each step")
        smooth = values.rolling(window, min_periods=1).mean()
        axes.plot(smooth, color=COLORS[0], linewidth=2.0, label=f"mean of {window} steps")
        axes.set_title(training_log.FIGURES[name], loc="left")
    for axes in panels[len(names) :]:
        axes.remove()
    for axes in panels[max(0, len(names) - 2) : len(names)]:
        axes.set_xlabel("optimizer step")
        axes.tick_params(labelbottom=True)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save(figure, path)
