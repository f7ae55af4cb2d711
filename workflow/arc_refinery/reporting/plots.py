"""Plots of arms and turns: tasks solved against budget, outcomes of attempts, pass rates."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from arc_refinery.config.arms import BaseArm
from arc_refinery.evaluation.intervals import Estimate, estimate
from arc_refinery.evaluation.metrics import SOLVED
from arc_refinery.reporting.markdown import estimate_text
from arc_refinery.reporting.publish import LineEnd, label_line_ends, line_colors, save

MAX_UNCOUNTED = 4  # tasks with equal rates share a mark; more than this are counted next to it
RATES = (0, 1, 5, 10, 25, 50, 75, 100)  # ticks of pass rates (%)
X_LABELS = {
    "budget": ("attempts per task", 1),
    "tokens": ("tokens per task, prompts and completions (thousands)", 1000),
}


MAX_LABEL, MAX_BAR_LABEL = 30, 48  # characters of a line's and a bar's label in a row


@dataclass(frozen=True, slots=True)
class Curve:
    """Tasks solved against budget for one arm: a table of `budget_curve` per repetition, and where turns end."""

    tables: Sequence[pd.DataFrame]
    turn_ends: tuple[int, ...]  # budget after each turn but the last
    solved: Estimate  # share solved with the whole budget

    @classmethod
    def of(cls, arms: Sequence[BaseArm], tables: Sequence[pd.DataFrame], metrics: Iterable[pd.DataFrame]) -> Self:
        """Return the curve of an arm's repetitions; `metrics`: `per_task` of each."""
        return cls(tables, arms[0].turn_ends, estimate(np.array([table[SOLVED] for table in metrics], dtype=float)))


def budget_plot(panels: Mapping[str, Mapping[str, Curve]], x: str, path: Path) -> None:
    """Draw, in a panel per title, the share of tasks solved against `x`, a key of `X_LABELS`: one line per arm.

    Its name is at its end. The line of a repeated arm is the mean of the repetitions; a band reaches from the lowest to
    the highest.
    """
    labels = [
        {
            name: textwrap.fill(f"{name}, mean of {n}" if (n := len(curve.tables)) > 1 else name, MAX_LABEL)
            for name, curve in curves.items()
        }
        for curves in panels.values()
    ]
    n_lines = max(sum(text.count("\n") + 2 for text in titles.values()) for titles in labels)
    figure = Figure(figsize=(5.4, max(3.2, 1.0 + 0.225 * n_lines) * len(panels)), layout="constrained")
    all_axes = figure.subplots(len(panels), squeeze=False).flat
    for axes, titles, (title, curves) in zip(all_axes, labels, panels.items(), strict=True):
        _draw_budget(axes, curves, titles, x, title)
    save(figure, path)


def solved_in_words(curves: Mapping[str, Curve]) -> str:
    return ", ".join(f"{arm} {estimate_text(curve.solved)}" for arm, curve in curves.items())


def marks_in_words(curves: Iterable[Curve]) -> str:
    """Return what else a caption says."""
    curves = list(curves)
    dots = " A dot marks the start of the next turn." if any(curve.turn_ends for curve in curves) else ""
    is_repeated = any(len(curve.tables) > 1 for curve in curves)
    band = " Of repeated arms, the line is the mean, and the band reaches from the lowest to the highest." * is_repeated
    return dots + band


def _draw_budget(axes: Axes, curves: Mapping[str, Curve], titles: Mapping[str, str], x: str, title: str) -> None:
    label, unit = X_LABELS[x]
    ends = []
    for (name, curve), color in zip(curves.items(), line_colors(len(curves)), strict=True):
        xs = np.mean([table[x] for table in curve.tables], axis=0) / unit
        runs = 100 * np.array([table["solved"] for table in curve.tables])
        solved = runs.mean(axis=0)
        axes.plot(xs, solved, color=color, linewidth=1.8)
        if len(runs) > 1:
            axes.fill_between(xs, runs.min(axis=0), runs.max(axis=0), color=color, alpha=0.2, linewidth=0)
        turn_starts = [end - 1 for end in curve.turn_ends]
        axes.plot(xs[turn_starts], solved[turn_starts], color=color, linestyle="", marker="o", markersize=5)
        ends.append(LineEnd(f"{titles[name]}\n{estimate_text(curve.solved)}", xs[-1], solved[-1], color))
    axes.set(xlabel=label, ylabel="tasks solved (%)", xlim=(0, None))
    axes.set_ylim(0, max(1.0, axes.get_ylim()[1]))  # not 0.05 % where nothing is solved
    axes.xaxis.set_major_locator(MaxNLocator(integer=x == "budget"))
    axes.set_title(title, loc="left")
    label_line_ends(axes, ends)


def outcomes_plot(
    shares: Mapping[str, pd.DataFrame], looks: Mapping[str, tuple[str, str]], title: str, path: Path
) -> None:
    """Draw one bar per turn with the mean share of each outcome (a column of 0..1, one row per task).

    `looks`: colour and hatch of each outcome.
    """
    names = [textwrap.fill(name.replace("`", ""), MAX_BAR_LABEL) for name in shares]
    bars = [f"{name}\nn = {len(table)} tasks" for name, table in zip(names, shares.values(), strict=True)]
    n_lines = sum(bar.count("\n") + 1 for bar in bars)
    means = pd.DataFrame([100 * table.mean() for table in shares.values()]).fillna(0.0)
    n_rows = -(-len(means.columns) // 4)
    figure = Figure(figsize=(9.5, 1.1 + 0.25 * n_lines + 0.25 * n_rows), layout="constrained")
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
