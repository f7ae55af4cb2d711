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

from arc_refinery.reporting.publish import DASHES, LINE_COLORS, save

MAX_UNCOUNTED = 4  # tasks with equal rates share a mark; more than this are counted next to it
RATES = (0, 1, 5, 10, 25, 50, 75, 100)  # ticks of pass rates (%)
LEGEND_CHARACTERS = 130  # characters per legend line
MOST_BANDS = 4  # more would overlap


@dataclass(frozen=True, slots=True)
class Curve:
    """Tasks solved against budget for one arm: a table of `budget_curve`, and where turns end."""

    table: pd.DataFrame
    turn_ends: tuple[int, ...]  # budget after each turn but the last


def budget_plot(curves: Mapping[str, Curve], title: str, path: Path) -> None:
    """Draw the share of tasks solved against attempts and tokens per task, one line per arm."""
    n_columns = max(1, min(4, len(curves), LEGEND_CHARACTERS // (9 + max(map(len, curves)))))
    n_rows = -(-len(curves) // n_columns)
    figure = Figure(figsize=(9.5, 3.8 + 0.2 * n_rows), layout="constrained")
    by_attempts, by_tokens = figure.subplots(1, 2, sharey=True)
    _curves(by_attempts, curves, "budget", 1.0)
    _curves(by_tokens, curves, "tokens", 1000.0)
    by_attempts.set(xlabel="attempts per task", ylabel="tasks solved (%)", ylim=(0, None))
    by_tokens.set(xlabel="tokens per task, prompts and completions (thousands)")
    handles, labels = by_attempts.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)
    figure.suptitle(title, fontsize=11)
    save(figure, path)


def _curves(axes: Axes, curves: Mapping[str, Curve], x: str, unit: float) -> None:
    widest = max(curve.table[x].max() for curve in curves.values()) / unit
    looks = zip(curves.items(), cycle(LINE_COLORS), cycle(DASHES), strict=False)
    for number, ((name, curve), color, dashes) in enumerate(looks):
        xs, solved = curve.table[x] / unit, 100 * curve.table["solved"]
        axes.plot(xs, solved, color=color, linestyle=dashes, label=name, linewidth=1.8)
        ends = [end - 1 for end in curve.turn_ends]
        axes.plot(xs.iloc[ends], solved.iloc[ends], color=color, linestyle="", marker="o", markersize=5)
        low, high = 100 * curve.table["low"], 100 * curve.table["high"]
        if len(curves) <= MOST_BANDS:
            axes.fill_between(xs, low, high, color=color, alpha=0.08, linewidth=0)
        right = widest * (1.03 + 0.025 * number)
        axes.vlines(right, low.iloc[-1], high.iloc[-1], color=color, linestyle="-", linewidth=2.5, alpha=0.7)
    axes.set_xlim(0, None)


def outcomes_plot(
    shares: Mapping[str, pd.DataFrame], looks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """Draw one bar per turn with the mean share of each outcome (a column of 0..1, one row per task).

    `looks`: colour and hatch of each outcome.
    """
    bars = [f"{name.replace('`', '')}\nn = {len(table)} tasks" for name, table in shares.items()]
    means = pd.DataFrame([100 * table.mean() for table in shares.values()]).fillna(0.0)
    n_rows = -(-len(means.columns) // 4)
    figure = Figure(figsize=(9.5, 1.1 + 0.5 * len(bars) + 0.25 * n_rows), layout="constrained")
    axes = figure.subplots()
    left = pd.Series(0.0, means.index)
    for outcome in means:
        color, hatch = looks[outcome]
        patches = axes.barh(
            bars, means[outcome], 0.62, left=left, color=color, hatch=hatch, edgecolor="black", linewidth=0.5
        )
        labels = [f"{share:.0f}" if share >= 4 else "" for share in means[outcome]]
        for text in axes.bar_label(patches, labels, label_type="center", fontsize=8):
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
    """Draw one panel per arm, one mark per task: its pass rate in later turns against that in turn 1.

    Each table has one row per task, with the columns `first` and `later` (shares 0..1) and `solved_by`, a key of
    `marks` (marker, colour). Tasks with equal rates share a mark, which grows with their number.
    """
    n_columns = min(2 if len(panels) == 4 else 3, len(panels))
    n_rows = -(-len(panels) // n_columns)
    figure = Figure(figsize=(0.5 + 3.0 * max(2, n_columns), 1.0 + 3.5 * n_rows), layout="constrained")
    subplots = figure.subplots(n_rows, n_columns, squeeze=False).flatten()
    for axes in subplots[len(panels) :]:
        axes.remove()
    for axes, (arm, rates) in zip(subplots, panels.items(), strict=False):
        axes.axline((0, 0), (1, 1), color="black", linestyle="--", linewidth=0.8, zorder=1)
        for (solved_by, first, later), equal in rates.groupby(["solved_by", "first", "later"]):
            marker, color = marks[solved_by]
            size = 25 * (1 + np.log2(len(equal)))
            axes.scatter(100 * first, 100 * later, size, color=color, marker=marker, alpha=0.7, linewidth=1.2, zorder=2)
            if len(equal) > MAX_UNCOUNTED:
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
    """Return the signed square root: it spreads pass rates near 0 and keeps equal rates on the diagonal."""
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)
