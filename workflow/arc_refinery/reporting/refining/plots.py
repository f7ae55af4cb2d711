"""Plots of arms and turns: tasks solved against budget, outcomes of attempts, pass rates."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from arc_refinery.reporting.plots import COLORS, DASHES, save

MANY = 4  # equal tasks, which are marked by one mark and from here on counted beside it
RATES = (0, 1, 5, 10, 25, 50, 75, 100)  # ticks of pass rates (%)
LEGEND_CHARACTERS = 130  # that have room in a line of a legend
MOST_BANDS = 4  # more lie over each other


@dataclass(frozen=True, slots=True)
class Curve:
    """Solved against budget of one arm: a table of `budget_curve`, and where turns start."""

    table: pd.DataFrame
    turn_ends: tuple[int, ...]  # budget after each turn but the last


def budget_plot(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Share of tasks solved against attempts and against tokens a task, one line an arm."""
    n_columns = max(1, min(4, len(curves), LEGEND_CHARACTERS // (9 + max(map(len, curves)))))
    n_rows = -(-len(curves) // n_columns)
    figure = Figure(figsize=(9.5, 3.8 + 0.2 * n_rows), layout="constrained")
    by_attempts, by_tokens = figure.subplots(1, 2, sharey=True)
    _curves(by_attempts, curves, "budget", 1.0)
    _curves(by_tokens, curves, "tokens", 1000.0)
    by_attempts.set(xlabel="attempts a task", ylabel="tasks solved (%)", ylim=(0, None))
    by_tokens.set(xlabel="tokens a task, prompts and completions (thousands)")
    handles, labels = by_attempts.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
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
        low, high = 100 * curve.table["low"], 100 * curve.table["high"]
        if len(curves) <= MOST_BANDS:
            axes.fill_between(across, low, high, color=color, alpha=0.08, linewidth=0)
        index = widest * (1.03 + 0.025 * number)
        axes.vlines(index, low.iloc[-1], high.iloc[-1], color=color, linestyle="-", linewidth=2.5, alpha=0.7)
    axes.set_xlim(0, None)


def outcomes_plot(
    shares: Mapping[str, pd.DataFrame], looks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """One bar a turn, of the mean share of each outcome (a column of 0..1, one row a task).

    `looks`: colour and hatch of each outcome.
    """
    bars = [f"{name.replace('`', '')}\nn = {len(of_turn)} tasks" for name, of_turn in shares.items()]
    means = pd.DataFrame([100 * of_turn.mean() for of_turn in shares.values()]).fillna(0.0)
    n_rows = -(-len(means.columns) // 4)
    figure = Figure(figsize=(9.5, 1.1 + 0.5 * len(bars) + 0.25 * n_rows), layout="constrained")
    axes = figure.subplots()
    left = pd.Series(0.0, means.index)
    for outcome in means:
        color, hatch = looks[outcome]
        drawn = axes.barh(
            bars, means[outcome], 0.62, left=left, color=color, hatch=hatch, edgecolor="black", linewidth=0.5
        )
        labels = [f"{share:.0f}" if share >= 4 else "" for share in means[outcome]]
        for text in axes.bar_label(drawn, labels, label_type="center", fontsize=8):
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0} if text.get_text() else None)
        left += means[outcome]
    axes.set(xlim=(0, 100), xlabel="share of attempts (%)")
    axes.invert_yaxis()
    axes.grid(False)
    handles = [Patch(facecolor=looks[o][0], hatch=looks[o][1], edgecolor="black", label=o) for o in means]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, handlelength=2.5, handleheight=1.2)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def pass_rates_plot(
    panels: Mapping[str, pd.DataFrame], marks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """One panel an arm, one mark a task: its pass rate in later turns against that in turn 1.

    Each table has one row a task, with the columns `first` and `later` (shares 0..1) and `solved_by`, a key of `marks`,
    which are the marker and the colour. Equal tasks share a mark, which grows with their number.
    """
    n_columns = min(2 if len(panels) == 4 else 3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = Figure(figsize=(0.5 + 3.0 * max(2, n_columns), 1.0 + 3.1 * n_rows), layout="constrained")
    indices = figure.subplots(n_rows, n_columns, squeeze=False).flatten()
    for axes in indices[len(panels) :]:
        axes.remove()
    for axes, (arm, rates) in zip(indices, panels.items(), strict=False):
        axes.axline((0, 0), (1, 1), color="black", linestyle="--", linewidth=0.8, zorder=1)
        for (solved_by, first, later), equal in rates.groupby(["solved_by", "first", "later"]):
            marker, color = marks[solved_by]
            size = 25 * (1 + np.log2(len(equal)))
            axes.scatter(100 * first, 100 * later, size, color=color, marker=marker, alpha=0.7, linewidth=1.2, zorder=2)
            if len(equal) > MANY:
                look = {"xytext": (5, 4), "textcoords": "offset points", "fontsize": 7}
                axes.annotate(str(len(equal)), (100 * first, 100 * later), **look)
        for scale, limits, ticks in (
            (axes.set_xscale, axes.set_xlim, axes.set_xticks),
            (axes.set_yscale, axes.set_ylim, axes.set_yticks),
        ):
            scale("function", functions=(_root, _square))
            limits(-0.3, 112)
            ticks(RATES)
        axes.set(xlabel="pass rate in turn 1 (%)", ylabel="in later turns (%)", aspect="equal")
        axes.set_title(f"{textwrap.fill(arm, 34)}\nn = {len(rates)} tasks", loc="left", parse_math=False, fontsize=9)
    handles = [
        Line2D([], [], linestyle="", marker=marker, color=color, alpha=0.7, label=name)
        for name, (marker, color) in marks.items()
    ]
    figure.legend(handles=handles, title="task solved by", loc="outside lower center", ncols=len(handles))
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _root(values: Any) -> Any:
    """Signed square root: pass rates near 0 are told apart, equal ones still lie on the diagonal."""
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)
